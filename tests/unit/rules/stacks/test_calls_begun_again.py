"""Two looks at one call at the same place: what shows that it ended in between, and what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import verdict_of

HANDS_OVER, WAITS = 3010, 3016
"""Lines of one call: it gives its work to the back end, then waits for it."""


def dump(pid: int, line: int, state: str) -> str:
    frames = (f"all_gather (torch/distributed/distributed_c10d.py:{line})", "score (valid.py:40)", "<module> (valid.py:71)")
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
