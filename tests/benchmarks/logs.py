"""Logs of a job of many ranks: interleaved progress, warnings and lines of NCCL; in the end a watchdog gives up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

NEEDLE = "Watchdog caught"
_START = 1_774_058_400


def write_log(path: Path, ranks: int, size: int) -> Path:
    """One file of at least `size` bytes, a line of each rank in each step."""
    with path.open("w") as stream:
        step = 0
        while stream.tell() < size:
            step += 1
            stream.writelines(progress(rank, step) for rank in range(ranks))
        stream.writelines(map(timeout, range(1, ranks)))
    return path


def write_folder(folder: Path, ranks: int, size: int) -> Path:
    """A file of about `size` bytes for each rank."""
    folder.mkdir()
    for rank in range(ranks):
        steps = 1 + size // 130
        text = "".join(progress(rank, step) for step in range(steps)) + (timeout(rank) if rank else "")
        (folder / f"rank-{rank}.log").write_text(text)
    return folder


def progress(rank: int, step: int) -> str:
    """A line of one of several trainers; some are warnings that speak of peers and retries, and some are NCCL's."""
    noise = random.Random(rank * 1_000_003 + step)
    time = f"2026-03-21 {step // 3600 % 24:02}:{step // 60 % 60:02}:{step % 60:02},{noise.randrange(1000):03}"
    return next(_form(rank, step, time, noise))


def _form(rank: int, step: int, time: str, noise: random.Random) -> Iterator[str]:
    """What a rank may write in a step; the first is taken."""
    front = f"[rank{rank}]:"
    own = f"node{rank // 8}:{10000 + rank}:{20000 + rank} [{rank % 8}] NCCL INFO"
    comm = f"comm 0x7f4a1c0{rank % 8}"
    if step == 1:
        yield f"{own} ncclCommInitRank {comm} rank {rank} nranks 1024 cudaDev 0 busId 1b000 commId 0x9f2b64c1 - Init COMPLETE\n"
    if step % 50 == 2:
        yield f"{own} Channel 03/0 : {rank}[0] -> 1[1] [send] via NET/IB/3\n"
    if step % 50 == 3:
        called = f"opCount {step:x} sendbuff 0x7f4a10 recvbuff 0x7f4a20 count 4096 datatype 9 op 0 root 0 {comm}"
        yield f"{own} AllReduce: {called} [nranks=1024] stream 0x55d0c0\n"
    if step % 100 == 4:
        yield f"{front}[W321 04:00:00.465224069 reducer.cpp:1400] Warning: grad strides do not match; Error: none (call)\n"
    if rank % 6 < 3:
        yield f"{front} {time} - trainer - INFO - step: {step:6}  loss: {noise.random():.4f}  memory: 71.20GiB  mfu: 41.2%\n"
    if rank % 6 == 3:
        yield (
            f"{front} [{time}] iteration {step:8}/ 100000 | consumed samples: {step * 1024:12} | elapsed time per "
            f"iteration (ms): {noise.random() * 2000:.1f} | learning rate: 1.500E-04 | lm loss: {noise.random():.6E} |\n"
        )
    shard, took = noise.randrange(9999), noise.random()
    yield f"{front} {time} | WARNING | data | peer cache miss of shard {shard} took {took:.3f} s, retrying\n"


def timeout(rank: int) -> str:
    """What torch's watchdog says of a rank that waited."""
    return (
        f"[rank{rank}]:[E321 04:00:00.465224069 ProcessGroupNCCL.cpp:683] [Rank {rank}] {NEEDLE} collective operation timeout: "
        "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before "
        "timing out.\n"
    )
