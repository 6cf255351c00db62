"""Processes that began to start in NCCL, of which one is missing while watchdogs are stuck: where to begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

START = "n{0}:{1}:{2} [{3}] NCCL INFO comm 0x7f{1} rank {4} nranks {5} cudaDev {3} busId 1b000 commId 0x4f1c - Init START\n"
STUCK = (
    "[rank{0}]:[E1005 08:10:01.118800200 ProcessGroupNCCL.cpp:1484] [PG ID 0 PG GUID 0(default_pg) Rank {0}] "
    "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives.\n"
)


UNPLACED = "n1:{0}:{0} [1] NCCL INFO Bootstrap : Using eth0:10.44.3.18<0>\n"


def log(*missing: int, size: int = 16) -> str:
    """Processes that say of no communicator that they started are of ranks that no line shows."""
    begun = [rank for rank in range(size) if rank not in missing]
    lines = [START.format(rank // 8, 100 + rank, 200 + rank, rank % 8, rank, size) for rank in begun]
    lines += [UNPLACED.format(100 + rank) for rank in missing]
    return "".join(lines) + "".join(STUCK.format(rank) for rank in begun[::5])


@pytest.mark.parametrize(
    ("missing", "said"), [((9,), "of rank 9:"), ((8, 9), "of ranks 8-9:"), (tuple(range(8, 16)), ""), ((), "")]
)
def test_the_ranks_that_did_not_begin(tmp_path: Path, missing: tuple[int, ...], said: str) -> None:
    verdict = pasted(tmp_path, log(*missing))
    assert not named(verdict)
    assert said in " ".join(verdict.leads) if said else not any("py-spy dump" in lead for lead in verdict.leads)
