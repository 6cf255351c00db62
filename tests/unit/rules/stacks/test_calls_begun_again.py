"""Two looks at one call at the same place: what shows that it ended in between, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import verdict_of

HANDS_OVER, WAITS = 3010, 3016
"""Lines of one call: it gives its work to the back end, then waits for it."""


TORCH, HOROVOD = "all_gather (torch/distributed/distributed_c10d.py:{0})", "synchronize (horovod/torch/mpi_ops.py:{0})"


def dump(pid: int, line: int, state: str, call: str = TORCH) -> str:
    frames = (call.format(line), "score (valid.py:40)", "<module> (valid.py:71)")
    lines = "".join(f"    {frame}\n" for frame in frames)
    return f'Process {pid}: python valid.py\nPython v3.11.9 (/usr/bin/python3)\n\nThread {pid} ({state}): "MainThread"\n{lines}'


@pytest.mark.parametrize(
    ("looks", "outcome"),
    [
        (((WAITS, "idle"), (HANDS_OVER, "active")), Outcome.INCONCLUSIVE),
        (((WAITS, "idle"), (HANDS_OVER, "idle")), Outcome.INCONCLUSIVE),
        (((HANDS_OVER, "active+gil"), (WAITS, "idle")), Outcome.HANG),
        (((WAITS, "active"), (HANDS_OVER, "active")), Outcome.HANG),
        (((WAITS, "idle"), (WAITS, "idle")), Outcome.HANG),
    ],
    ids=["again", "again and waiting", "goes in", "arguments of several lines", "stays"],
)
def test_a_wait_that_is_back_at_an_earlier_line_of_its_call_ended(
    tmp_path: Path, looks: tuple[tuple[int, str], ...], outcome: Outcome
) -> None:
    """Rank 0 goes into the call and waits there in both cases."""
    for time, (line, state), first in zip(("031205", "031405"), looks, (HANDS_OVER, WAITS), strict=True):
        (tmp_path / f"rank0_{time}.txt").write_text(dump(70, first, "idle"))
        (tmp_path / f"rank1_{time}.txt").write_text(dump(71, line, state))
    assert verdict_of(tmp_path).outcome is outcome


def test_a_call_that_asks_in_a_loop_whether_it_has_ended_is_no_new_one(tmp_path: Path) -> None:
    for time, line, state in (("031205", WAITS, "idle"), ("031405", HANDS_OVER, "active")):
        for rank in range(2):
            (tmp_path / f"rank{rank}_{time}.txt").write_text(dump(70 + rank, line, state, HOROVOD))
    assert "it moves" not in verdict_of(tmp_path).summary
