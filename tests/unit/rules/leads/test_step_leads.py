"""The one rank that did not give up waiting, and whose log ends at an earlier step than those of all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

STEP = "2026-02-11 04:{0:02d}:{1:02d} [rank {2}] step {3} done\n"
GAVE_UP = (
    "[rank{0}]:[E211 04:31:10.4 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={1}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=900000) ran for 900012 milliseconds\n"
)


def log(rank: int, last: int, end: str) -> str:
    steps = "".join(STEP.format(step // 10, step % 10 * 6, rank, step) for step in range(20, last + 1))
    return steps + end.format(rank, 77)


def leads(folder: Path, logs: dict[int, tuple[int, str]]) -> list[str]:
    verdict = pasted(folder, "".join(log(rank, last, end) for rank, (last, end) in logs.items()))
    assert not named(verdict)
    return [lead for lead in verdict.leads if "it alone did not give up" in lead]


OTHERS = dict.fromkeys(range(3), (90, GAVE_UP))


def test_the_rank_whose_log_ends_earlier(tmp_path: Path) -> None:
    (lead,) = leads(tmp_path, OTHERS | {3: (88, "")})
    assert "rank 3:" in lead
    assert "step 88" in lead


@pytest.mark.parametrize(
    "logs",
    [
        OTHERS | {3: (90, "")},
        OTHERS | {3: (91, "")},
        OTHERS | {3: (88, GAVE_UP)},
        OTHERS | {3: (88, ""), 4: (88, "")},
        OTHERS | {3: (88, ""), 4: (89, GAVE_UP)},
        {0: (90, GAVE_UP), 1: (90, GAVE_UP), 2: (88, "")},
        dict.fromkeys(range(3), (90, "")) | {3: (88, "")},
    ],
    ids=["as far", "ahead", "gave up too", "two", "others apart", "few others", "nobody gave up"],
)
def test_steps_that_single_out_nobody(tmp_path: Path, logs: dict[int, tuple[int, str]]) -> None:
    assert not leads(tmp_path, logs)
