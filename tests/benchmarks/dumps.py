"""Flight Recorder dumps of a large job, as torch would have written them: TP8 x DP over NCCL, one rank misses the last call.

Every rank's ring has wrapped. A step is made of tensor-parallel all-reduces of each layer, data-parallel reduce-scatters and
all-gathers of the gradients and parameters, and one all-reduce over the world for the gradient norm, which is the last call.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from forensics.fixtures.simulator.writers.torch_pickle import HEAD, STOP, Pickler, Shared, Slot, scalar

START_NS = 1_790_000_000_000_000_000
TENSOR_PARALLEL = 8
ENTRIES = 2000
DEPTH = 20
LAYERS = 12
FIRST_RECORD = 34_567
FIRST_SEQUENCE = 4_000
PREFIX = "nccl_trace_rank_"

_SLOT = Slot()
_SITE_PACKAGES = "/usr/local/lib/python3.12/dist-packages"


@dataclass(frozen=True, slots=True)
class Site:
    """A line of the training program that makes one call: the kind of its group, the call, shapes, and who calls it."""

    group: str
    kind: str
    sizes_in: tuple[int, ...]
    sizes_out: tuple[int, ...]
    frames: tuple[tuple[str, str, int], ...]


def write_dumps(folder: Path, ranks: int, processes: int) -> int:
    """Write one dump for each rank and give the bytes written; the rank that misses the last call is `culprit(ranks)`."""
    folder.mkdir(parents=True)
    work = [(folder, rank, ranks) for rank in range(ranks)]
    with ProcessPoolExecutor(processes, mp_context=get_context("forkserver")) as pool:
        return sum(pool.map(_write_dump, work, chunksize=8))


def culprit(ranks: int) -> int:
    """The rank that misses the last call."""
    return ranks * 5 // 8 + 3


def _write_dump(work: tuple[Path, int, int]) -> int:
    folder, rank, ranks = work
    return (folder / f"{PREFIX}{rank}").write_bytes(dump(rank, ranks))


def dump(rank: int, ranks: int) -> bytes:
    """The dump of one rank."""
    writer = Pickler()
    groups = _groups(rank, ranks)
    config = {name: {"name": name, "desc": desc, "ranks": str(members)} for name, desc, members in groups.values()}
    parts = [HEAD, b"}(", writer.value("version"), writer.value("2.10"), writer.value("pg_config"), writer.value(config)]
    counts = dict.fromkeys(groups, FIRST_SEQUENCE)
    entries = list(_entries(writer, rank, ranks, groups, counts))
    status = {
        str(number): _status(counts[group], group == "world" and rank != culprit(ranks)) for number, group in enumerate(groups)
    }
    parts += [writer.value("pg_status"), writer.value(status), writer.value("comm_lib_version"), writer.value("2.27.3")]
    return b"".join([*parts, writer.value("entries"), b"](", *entries, b"e", b"u", STOP])


def _groups(rank: int, ranks: int) -> dict[str, tuple[str, str, list[int]]]:
    """Groups of a rank by what they are for, in the order it made them: name, description, members."""
    width = min(TENSOR_PARALLEL, ranks)
    tensor = rank // width
    data = rank % width
    return {
        "world": ("0", "default_pg", list(range(ranks))),
        "tensor": (str(1 + tensor), "TENSOR_MODEL_PARALLEL_GROUP", list(range(tensor * width, (tensor + 1) * width))),
        "data": (str(1 + ranks // width + data), "DATA_PARALLEL_GROUP", list(range(data, ranks, width))),
    }


def _status(count: int, waits: bool) -> dict[str, int]:
    done = count - 1 if waits else count
    return {"last_enqueued_collective": count, "last_started_collective": -1, "last_completed_collective": done}


def _entries(
    writer: Pickler, rank: int, ranks: int, groups: dict[str, tuple[str, str, list[int]]], counts: dict[str, int]
) -> Iterator[bytes]:
    """The entries in order. A site's first entry fills the memo; what follows differs in its numbers only."""
    templates: dict[tuple[Site, bool], bytes] = {}
    sites = _calls(ranks // min(TENSOR_PARALLEL, ranks))
    time_ns = START_NS + (rank * 7919) % 100_000
    for number, site in enumerate(sites):
        done = number < len(sites) - 1
        if not done and rank == culprit(ranks):
            return
        parts = templates.get((site, done))
        if parts is None:
            entry = _entry(site, groups, list(groups).index(site.group), done=done)
            parts = writer.template(entry)
            templates[site, done] = writer.template(entry)
        counts[site.group] += 1
        time_ns += 3_000_000 + (number * 104_729 + rank * 31) % 50_000
        sequence = counts[site.group]
        values = (FIRST_RECORD + number, sequence, sequence, time_ns, *((time_ns + 2_500_000,) if done else ()))
        yield parts % tuple(map(scalar, values))


def _entry(site: Site, groups: dict[str, tuple[str, str, list[int]]], number: int, *, done: bool) -> dict[str, Any]:
    name, description, _ = groups[site.group]
    return {
        "frames": [_frame(*frame) for frame in site.frames],
        "record_id": _SLOT,
        "pg_id": number,
        "process_group": (name, description),
        "thread_name": "python3",
        "thread_id": "139992571607936",
        "collective_seq_id": _SLOT,
        "p2p_seq_id": 0,
        "op_id": _SLOT,
        "profiling_name": f"nccl:{site.kind}",
        "time_created_ns": _SLOT,
        "input_sizes": [list(site.sizes_in)],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [list(site.sizes_out)],
        "output_dtypes": ["BFloat16"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": _SLOT if done else None,
        "retired": done,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


@cache
def _frame(name: str, file: str, line: int) -> Shared:
    return Shared(name=name, filename=file, line=line)


@cache
def _calls(replicas: int) -> tuple[Site, ...]:
    """The calls in the ring: as many whole steps as fit, and the tail of the one before."""
    step = _step(replicas)
    steps = -(-ENTRIES // len(step))
    return tuple(islice(step * steps, len(step) * steps - ENTRIES, None))


def _step(replicas: int) -> tuple[Site, ...]:
    hidden = (4096, 1, 8192)
    forward = [
        _site(
            "tensor", "all_reduce", hidden, hidden, ("reduce_from_tensor_model_parallel_region", 200 + half), layer, "forward"
        )
        for layer in range(LAYERS)
        for half in (0, 40)
    ]
    backward = [
        _site("tensor", "all_reduce", hidden, hidden, ("copy_to_tensor_model_parallel_region", 300 + half), layer, "backward")
        for layer in reversed(range(LAYERS))
        for half in (0, 40)
    ]
    bucket, shard = (1 << 26,), ((1 << 26) // replicas,)
    gradients = [
        _site("data", "_reduce_scatter_base", bucket, shard, ("start_grad_sync", 150), index, "finalize") for index in range(4)
    ]
    parameters = [
        _site("data", "_all_gather_base", shard, bucket, ("start_param_sync", 220), index, "optimizer") for index in range(4)
    ]
    norm = _site("world", "all_reduce", (1,), (1,), ("get_grad_norm_fp32", 99), 0, "optimizer")
    return (*forward, *backward, *gradients, *parameters, norm)


def _site(
    group: str,
    kind: str,
    sizes_in: tuple[int, ...],
    sizes_out: tuple[int, ...],
    caller: tuple[str, int],
    index: int,
    phase: str,
) -> Site:
    """A call below `DEPTH` frames: torch's own, the caller, one frame of its layer, and the trainer's common ones."""
    inner = [
        (
            "all_reduce" if kind == "all_reduce" else kind.strip("_"),
            f"{_SITE_PACKAGES}/torch/distributed/distributed_c10d.py",
            2806,
        ),
        ("wrapper", f"{_SITE_PACKAGES}/torch/distributed/c10d_logger.py", 81),
        (caller[0], "/opt/megatron-lm/megatron/core/tensor_parallel/mappings.py", caller[1]),
        (f"{phase}_step", "/opt/megatron-lm/megatron/core/transformer/transformer_block.py", 400 + index),
    ]
    outer = [
        (f"{phase}_{depth}", f"/opt/megatron-lm/megatron/core/{phase}/level_{depth % 5}.py", 31 * depth + index)
        for depth in range(11)
    ]
    trainer = "/opt/megatron-lm/megatron/training/training.py"
    common = [
        ("train_step", trainer, 1400),
        ("train", trainer, 2299),
        ("pretrain", trainer, 787),
        ("main", "/workspace/pretrain_gpt.py", 250),
    ]
    frames = [*inner, *outer, *common, ("<module>", "/workspace/pretrain_gpt.py", 262)]
    return Site(group, kind, sizes_in, sizes_out, tuple(frames[:DEPTH]))
