"""One moment of stacks in which a few ranks make the same call from another place."""

from __future__ import annotations

from pathlib import Path

from tests.recordings.collection import py_spy
from tests.recordings.places import JOB, SITE, Place
from tests.recordings.verdicts import named, verdict_of

SENDS = ("send", f"{SITE}torch/distributed/distributed_c10d.py", 2753)
FORWARD: Place = (SENDS, ("fwd", JOB, 13), ("<module>", JOB, 28))
BACKWARD: Place = (SENDS, ("bwd", JOB, 21), ("<module>", JOB, 28))


def test_the_callers_are_named_where_the_calls_are_the_same(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.json").write_bytes(py_spy(BACKWARD if rank == 3 else FORWARD, 100 + rank))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    (lead,) = (each for each in verdict.leads if "rank 3" in each)
    assert "bwd (" in lead.partition(" while ")[0]
    assert "fwd (" in lead.partition(" while ")[2]
