"""Reports of detectors of stragglers in a log: who is named, and where nobody may be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome, StageName, Verdict
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "train.log").write_text(text)
    return verdict_of(tmp_path)


def scores(*values: float, heading: str = "GPU relative performance") -> str:
    listed = "".join(f"  Rank={rank} Node=gpu-{rank // 4} Score={value:.2f}\n" for rank, value in enumerate(values))
    return f"nemo.StragglerDetection: {heading}:\n{listed}\n"


def section(name: str, *times: float, front: str = "") -> str:
    lines = [f"  {name}:", f"    Min: {min(times):.2f}ms, Max: {max(times):.2f}ms, Avg: 1.00ms, Slowdown: 1.00x"]
    return "\n".join(front + line for line in [*lines, *(f"    Rank {r}: {time:.2f}ms" for r, time in enumerate(times)), ""])


def extremes(slow: Iterable[int], most: float, clock: Mapping[int, int] | None = None) -> str:
    """Megatron's line, of 16 ranks; `clock` is the lowest one by rank."""
    lines = []
    for turn, rank in enumerate(slow):
        rank_of_clock, mhz = next(iter((clock or {turn: 1970}).items()))
        lines.append(
            f" 0: INFO:core.utils:[2026-03-14 23:0{turn}:56] | MnRtt/Rnk: 1000.00ms/{turn} | MxRtt/Rnk: {most:.2f}ms/{rank} | "
            f"MnPwr/Rnk: 601796.00W/8 | MnClk/Rnk: {mhz}.00MHz/{rank_of_clock} | MxClk/Rnk: 1980.00MHz/{turn} | "
            f"MnEtpt/Rnk: {300e3 / most:.2f}TF/{rank} | MxEtpt/Rnk: 300.00TF/{turn}\n"
        )
    return "".join(lines)


def test_scores_of_all_ranks_again_and_again(tmp_path: Path) -> None:
    verdict = judged(tmp_path, 3 * scores(0.98, 0.99, 0.45, 1.0))
    assert (verdict.outcome, named(verdict)) == (Outcome.SLOWDOWN, {2})
    assert verdict.suspects[0].confidence is Confidence.SUSPECT
    assert "in 3 of 3 reports the score of its GPU is the lowest" in verdict.suspects[0].evidence[0].statement


def gpu_tests(*of_rank: int | None, value: float = 411.2) -> str:
    """Megatron's test of GPUs between steps; each time with the outlier, if any."""
    lines = []
    for number, rank in enumerate(of_rank):
        front = f"[gpu sniff test] iteration {number}000:"
        lines += [f"{front} GEMM 8192x8192x8192 mean 603.1 TFLOP/s/GPU, std 31.2"]
        lines += [f"{front} OUTLIER rank {rank} (node-2): GEMM 8192x8192x8192 {value} TFLOP/s/GPU"] if rank is not None else []
    return "\n".join([*lines, ""])


def test_the_gpu_that_fails_a_test_between_steps_again_and_again(tmp_path: Path) -> None:
    verdict = judged(tmp_path, gpu_tests(17, 17, 17, None, 17, 17))
    assert named(verdict) == {17}
    assert "in 5 of 6 reports rank 17 reaches 68% of the mean" in verdict.suspects[0].evidence[0].statement


def later_gpu_tests(*of_rank: int | None, unit: str = "TFLOP/s/GPU", front: str = "") -> str:
    lines = []
    for number, rank in enumerate(of_rank):
        lines += ["=" * 60, f"  GPU sniff test -- iteration {number}000", "=" * 60]
        lines += [f"  GEMM throughput (8192x8192x8192, bf16) [{unit}]: median=603.10, mean=601.00, min=411.20, max=610.00"]
        lines += [f"    OUTLIER rank {rank} (node-2): 411.20 (-31.8%)"] if rank is not None else []
        lines += ["  All-reduce busbw (global PG, size=64, 268 MB) [GB/s]: median=380.00, mean=379.00, min=99.00, max=381.00"]
        lines += ["    OUTLIER rank 3 (node-0): 99.00 (-73.9%)"]
    return "".join(f"{front}{line}\n" for line in lines)


@pytest.mark.parametrize("front", ["", "[default0]:", "0: "])
def test_a_gpu_far_below_the_median_of_a_test_again_and_again(tmp_path: Path, front: str) -> None:
    assert named(judged(tmp_path, later_gpu_tests(17, 17, 17, None, 17, 17, front=front))) == {17}
    assert not judged(tmp_path, later_gpu_tests(17, None, None, 17, 17, front=front)).suspects
    assert not judged(tmp_path, later_gpu_tests(17, 17, 17, 17, unit="GB/s", front=front)).suspects


def test_a_section_whose_ranks_have_their_node_behind_them(tmp_path: Path) -> None:
    text = re.sub(r"(Rank \d):", r"\1 (gpu-node-0):", section("forward", 90, 91, 280, 92))
    verdict = judged(tmp_path, "Section Timings (ms):\n" + text)
    assert named(verdict) == {2}


def test_the_clock_of_the_slow_rank_says_why(tmp_path: Path) -> None:
    verdict = judged(tmp_path, extremes([9] * 5, 2000, {9: 700}))
    assert (named(verdict), verdict.suspects[0].cause) == ({9}, Cause.GPU_THROTTLED)
    other = judged(tmp_path, extremes([9] * 5, 2000, {3: 700}))
    assert (named(other), other.suspects[0].cause) == ({9}, Cause.COMPUTE_SLOW)


@pytest.mark.parametrize("front", ["", "[default0]:", " 0: "])
def test_one_report_of_a_section_that_holds_own_work(tmp_path: Path, front: str) -> None:
    text = f"{front}=== Straggler Report at Step 40 ===\n{front}Section Timings (ms):\n{front}\n"
    text += section("forward", 90, 91, 280, 92, front=front) + section("backward", 9, 9, 9, 9, front=front)
    verdict = judged(tmp_path, text)
    assert (named(verdict), verdict.suspects[0].stage.name) == ({2}, StageName.FORWARD)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(3 * scores(0.98, 0.99, 0.9, 1.0), id="boards that differ by a tenth"),
        pytest.param(scores(0.4, 1, 1, 1) + scores(1, 0.4, 1, 1) + scores(1, 1, 0.4, 1), id="ranks that take turns"),
        pytest.param(3 * scores(0.45, 0.46, 0.99, 1.0), id="two that are slow"),
        pytest.param(scores(0.98, 0.99, 0.6, 1.0), id="one report, and not by twice"),
        pytest.param(3 * scores(1, 1, 0.4, 1, heading="GPU individual performance"), id="against its own past"),
        pytest.param(extremes([9, 9], 2000), id="extremes of two reports"),
        pytest.param(gpu_tests(17, None, None, 17, 17), id="a test that is mostly passed"),
        pytest.param(gpu_tests(17, 4, 9, 17), id="tests that several fail"),
        pytest.param(gpu_tests(17, 17, 17, value=550), id="a test that is nearly passed"),
        pytest.param(extremes([9, 3, 9, 4, 9, 5], 2000), id="extremes that wander"),
        pytest.param(extremes([9] * 5, 1100), id="extremes that are near"),
        pytest.param("Section Timings (ms):\n" + section("grad_all_reduce", 9, 9, 90, 9), id="who waits is longest"),
        pytest.param("Section Timings (ms):\n" + section("forward_recv", 9, 9, 90, 9), id="who waits for a message"),
        pytest.param("Section Timings (ms):\n" + section("save_checkpoint", 90, 9, 9, 9), id="a duty of one rank"),
        pytest.param("".join(f"    Rank {rank}: {90 + 300 * (rank == 2)}ms\n" for rank in range(4)), id="no report"),
        pytest.param("GPU relative performance:\n  Rank=2 Node=a Score=0.20\n", id="a rank without peers"),
        pytest.param("GPU relative performance:\n  Rank=2 Node=a Score=0.00\n  Rank=1 Node=a Score=0.00\n", id="zeros"),
    ],
)
def test_who_is_not_named(tmp_path: Path, text: str) -> None:
    assert not judged(tmp_path, text).suspects


def test_what_is_read_of_the_worst_and_the_best() -> None:
    text = (
        "GPU relative performance:\n Worst performing 1/512 ranks:\n  Rank=76 Node=h-1 Score=0.50\n"
        " Best performing 1/512 ranks:\n  Rank=432 Node=h-2 Score=1.00\nstep 5\n  Rank=3 Node=h-3 Score=0.10\n"
    )
    rows = read(text.encode(), "train.log").rows("straggler_reports")
    assert [(row["report"], row["measure"], row["rank"], row["factor"]) for row in rows] == [
        (1, "score", 76, 2.0),
        (1, "score", 432, 1.0),
    ]


def test_a_rank_that_became_slow_is_named_by_the_reports_since_then(tmp_path: Path) -> None:
    early = scores(0.97, 0.99, 0.98, 1.0)
    assert named(judged(tmp_path, early + 2 * scores(0.98, 0.99, 0.57, 1.0))) == {2}


@pytest.mark.parametrize(
    "late",
    [
        scores(0.98, 0.99, 0.57, 1.0),  # once
        scores(0.98, 0.99, 0.57, 1.0) + scores(0.98, 0.57, 0.99, 1.0),  # another one
        2 * scores(0.98, 0.99, 0.72, 1.0),  # not by much
        2 * scores(0.98, 0.99, 0.57, 1.0) + scores(0.97, 0.99, 0.98, 1.0),  # and no longer
    ],
)
def test_two_ranks_or_little_since_then_are_not(tmp_path: Path, late: str) -> None:
    assert not named(judged(tmp_path, scores(0.97, 0.99, 0.98, 1.0) + late))
