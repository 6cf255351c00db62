"""FX148: the one rank whose device is in another kernel than communication, and looks that only seem to say so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from forensics.model import Confidence, Outcome, Verdict
from tests.recordings.paper_logs import LOOKS, as_cuda_gdb
from tests.recordings.verdicts import named, verdict_of

REDUCTION, GEMM = (
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "ampere_bf16_s16816gemm_128x64(Params)",
)


def judged(folder: Path, kernels: Mapping[int, Sequence[tuple[int, str]]], dated: bool = True) -> Verdict:
    """Looks of each rank: the number of the launch, and the kernel."""
    texts = {
        f"rank{rank}.txt": "".join(
            f"{LOOKS[number] if dated else ''}\n{as_cuda_gdb(4100 + rank, rank, *look)}" for number, look in enumerate(looks)
        )
        for rank, looks in kernels.items()
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return verdict_of(folder)


def test_a_launch_that_two_looks_found_is_enough(tmp_path: Path) -> None:
    kernels = {rank: [(rank, GEMM if rank == 1 else REDUCTION)] * 2 for rank in range(4)}
    verdict = judged(tmp_path, kernels)
    assert named(verdict) == {1} and verdict.outcome is Outcome.HANG
    assert verdict.suspects[0].confidence is Confidence.LIKELY


@pytest.mark.parametrize(
    ("kernels", "dated"),
    [
        ({rank: [(rank, GEMM if rank == 1 else REDUCTION)] for rank in range(4)}, True),
        ({rank: [(rank, GEMM if rank == 1 else REDUCTION)] * 2 for rank in range(4)}, False),
        ({rank: [(look, GEMM if rank == 1 else REDUCTION) for look in range(2)] for rank in range(4)}, True),
        ({rank: [(rank, GEMM if rank in (1, 2) else REDUCTION)] * 2 for rank in range(4)}, True),
        ({rank: [(rank, GEMM if rank == 1 else REDUCTION)] * 2 for rank in range(2)}, True),
        ({rank: [(rank, GEMM)] * 2 for rank in range(4)}, True),
    ],
    ids=["one look", "no times", "other launches", "two apart", "one peer", "nobody communicates"],
)
def test_nobody_is_named_for(tmp_path: Path, kernels: Mapping[int, Sequence[tuple[int, str]]], dated: bool) -> None:
    assert not named(judged(tmp_path, kernels, dated))


def test_ranks_are_those_of_processes_that_another_file_knows(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"env_{4100 + rank}.txt").write_text(f"RANK={rank}\nWORLD_SIZE=4\nLOCAL_RANK={rank}\n")
        text = as_cuda_gdb(4100 + rank, 0, 7, GEMM if rank == 3 else REDUCTION)
        (tmp_path / f"cuda-gdb_{4100 + rank}.txt").write_text("".join(f"{look}\n{text}" for look in LOOKS))
    assert named(verdict_of(tmp_path)) == {3}


@pytest.mark.parametrize(("looked_at", "cleared"), [(4, True), (3, False)])
def test_devices_that_communicate_rule_it_out_where_all_were_seen(tmp_path: Path, looked_at: int, cleared: bool) -> None:
    for rank in range(4):
        (tmp_path / f"env_{4100 + rank}.txt").write_text(f"RANK={rank}\nWORLD_SIZE=4\nLOCAL_RANK={rank}\n")
    verdict = judged(tmp_path, {rank: [(rank, REDUCTION)] * 2 for rank in range(looked_at)})
    assert any((one.rule, one.status) == ("FX148", "ruled_out") for one in verdict.ruled_out) is cleared
