"""Ranks in a row that lack what all others wrote once, in a log of a job that stood still; files given up by their server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

WROTE = "{0:2}: rank {0} flushed part {0} after {0}.5 s\n"
LIMIT = "slurmstepd: error: *** STEP 81.0 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n"
BY_HAND = "slurmstepd: error: *** STEP 81.0 ON n1 CANCELLED AT 2026-03-01T10:00:00 ***\n"
EVICTED = (
    "[Sun Mar  1 08:00:00 2026] LustreError: 167-0: fs-OST0003-osc-ff: This client was evicted by fs-OST000{}; in progress\n"
)


def roll(*lacking: int, ranks: int = 16) -> str:
    return "".join(WROTE.format(rank) for rank in range(ranks) if rank not in lacking)


@pytest.mark.parametrize(("lacking", "which"), [((4, 5, 6, 7), "ranks 4-7:"), ((9,), "rank 9:")])
def test_the_ranks_that_lack_it_are_where_to_begin(tmp_path: Path, lacking: tuple[int, ...], which: str) -> None:
    verdict = pasted(tmp_path, roll(*lacking) + LIMIT)
    assert not named(verdict)
    assert f"logs, stacks and host of {which}" in verdict.would_change[0]
    assert "time limit" in verdict.would_change[1]


@pytest.mark.parametrize(
    "text",
    [
        roll(4, 5),  # nothing says that the job stood still
        roll(4, 5) + BY_HAND,
        roll(4, 9) + LIMIT,  # two that are not neighbours
        roll(*range(4, 16), ranks=17) + LIMIT,  # most lack it
        roll(4) + WROTE.format(4) + LIMIT,  # it came later
        roll(4) + "4: rank 4 has a shard that is larger\n" + LIMIT,  # it wrote something else since
        roll(4) + roll(4) + LIMIT,  # what is written again and again tells no place
        roll(12, 13, 14, 15) + LIMIT,  # the job may have twelve ranks
    ],
)
def test_what_shows_nothing(tmp_path: Path, text: str) -> None:
    assert not any("and they did not" in each for each in pasted(tmp_path, text).would_change)


@pytest.mark.parametrize(
    ("prompt", "where"), [("[root@n7 ~]# dmesg -T\n", "n7"), ("", "the host with this kernel log"), ("ssh n7 dmesg -T\n", "n7")]
)
def test_the_host_whose_files_were_given_up(tmp_path: Path, prompt: str, where: str) -> None:
    verdict = pasted(tmp_path, roll() + LIMIT + prompt + EVICTED.format(3))
    assert f"the files and ranks of {where}: fs-OST0003" in verdict.would_change[0]


def test_a_server_that_gives_up_several_hosts_is_no_lead(tmp_path: Path) -> None:
    text = "".join(f"[root@n{n} ~]# dmesg -T\n{EVICTED.format(3)}" for n in (7, 8))
    assert not any("gave it up" in each for each in pasted(tmp_path, roll() + LIMIT + text).would_change)
