"""Ranks that did not come as far as those who say that they wait, and logs that only look like it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import blamed, named, pasted

READY = "[net] rank={0} built in 3.{0} s\n"
LOADED = "[feed] rank={0} has its first shard, {0}2 MB\n"
WAITS = "[sync] rank={0} waiting {1}s in barrier() at loop.py:88\n"


def of(form: str, *ranks: int, seconds: int = 60) -> str:
    return "".join(form.format(rank, seconds) for rank in ranks)


EVERYONE = of(READY, 2, 0, 3, 1)
ALL_BUT_ONE = EVERYONE + of(LOADED, 3, 0, 1) + of(WAITS, 0, 1, 3)


def test_those_who_never_wrote_what_the_waiting_ones_did(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, ALL_BUT_ONE)
    assert (named(verdict), blamed(verdict), verdict.outcome) == ({2}, set(), Outcome.HANG)
    two = pasted(tmp_path, EVERYONE + of(LOADED, 0, 1) + of(WAITS, 0, 1))
    assert named(two) == {2, 3}
    torch = "".join(
        f"[rank{rank}]:{line}\n" for line in (" built", " fed", " waits for 40 s in a barrier") for rank in (0, 1, 2)
    )
    behind = torch.replace("[rank1]: fed\n", "").replace("[rank1]: waits for 40 s in a barrier\n", "")
    assert named(pasted(tmp_path, behind)) == {1}


@pytest.mark.parametrize(
    "text",
    [
        EVERYONE + of(LOADED, 0, 1, 2, 3) + of(WAITS, 0, 1, 2, 3),
        EVERYONE + of(LOADED, 0, 1, 3) + of(WAITS, 0, 1, 3, seconds=2),
        ALL_BUT_ONE + of(LOADED, 0, 1, 3),
        ALL_BUT_ONE + of(READY, 2),
        EVERYONE + of(WAITS, 0, 1, 3),
        EVERYONE + of(LOADED, 0) + of(WAITS, 0),
        EVERYONE + 2 * of(LOADED, 0, 1, 3) + of(WAITS, 0, 1, 3),
        of(READY, 0, 1, 3) + of(LOADED, 0, 1, 3) + of(WAITS, 0, 1, 3),
        EVERYONE + of("[eval] rank={0} begins\n", 2) + of(LOADED, 3, 0, 1) + of(WAITS, 0, 1, 3),
        of(READY, 0, 1) + of(LOADED, 0) + of(WAITS, 0),
        EVERYONE + of(LOADED, 0, 1, 3) + of("[sync] rank={0} waiting {1}s for a batch\n", 0, 1, 3),
        ALL_BUT_ONE.replace("rank=", "local_rank="),
        EVERYONE + of(LOADED, 3, 0, 1) + of("[sync] barrier() waiting {1}s for rank={0}\n", 0, 1, 3),
        EVERYONE + of(LOADED, 3, 0, 1) + of(WAITS, 0, 3) + of("[sync] rank={0} waiting {1}s in all_reduce\n", 1),
    ],
    ids=[
        "all wait",
        "a moment",
        "they went on",
        "it went on",
        "nothing before it",
        "the main process",
        "lines of a few",
        "never heard of",
        "at something else",
        "two ranks",
        "no communication",
        "local ranks",
        "spoken of",
        "in two operations",
    ],
)
def test_what_tells_nothing_of_who_is_behind(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))
