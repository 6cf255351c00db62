"""A silence at the capture is held against stays at the same place of the program, not against saves made elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.rules.reductions.calls.shim_calls import calls
from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, Liveness, Motion, SilenceFactor
from forensics.rules.reductions.progress.shim_logs import logged_motion
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.progress.unusual_silence import UnusualSilence, unusual_silence
from forensics.rules.reductions.ranks.shim_logs import ShimLog

SECOND = 10**9
STEP = Speed(Pace.STEADY, "", steps=40, step_ns=2.0 * SECOND)
COLUMNS = "source_id locator rank snapshot communicator kind call_path enqueued_ns is_p2p state"
# Until the next call, in seconds: behind each of two calls of a step, and behind the save of every fifth one.
NORM, GRADIENTS, SAVE = ("world", "all_reduce", 1), ("dp", "all_reduce", 2), ("world", "barrier", 3)
STEPS = [(NORM, 1.5), (GRADIENTS, 0.5)] * 4 + [(NORM, 1.5), (SAVE, 16.0), (GRADIENTS, 0.5)]


def silent(made: Sequence[tuple[tuple[str, str, int], float]], silence_s: float, step: Speed = STEP) -> UnusualSilence:
    case, begins = new_case(), [0.0, *accumulate(stay for _, stay in made)]
    rows: list[tuple[object, ...]] = [
        (1, at, rank, 0, *call, round(begin * SECOND), False, "done")
        for rank in range(2)
        for at, ((call, _), begin) in enumerate(zip(made, begins, strict=False))
    ]
    insert_rows(case, "operations", COLUMNS, rows)
    motion = Liveness(Motion.TOO_EARLY, "", silence_ns=round(silence_s * SECOND), pause_ns=16 * SECOND)
    return unusual_silence(calls(case), motion, step, SilenceFactor(2.0))


@pytest.mark.parametrize(
    ("last", "silence_s", "is_unusual"),
    [
        ((NORM, 0.0), 14.0, True),
        ((NORM, 0.0), 2.9, False),
        ((SAVE, 0.0), 14.0, False),
        ((("world", "all_gather", 4), 0.0), 14.0, False),
    ],
    ids=["amid a step", "little longer than it was there", "in a save", "where it never was"],
)
def test_only_a_silence_that_was_never_as_long_at_its_place_is_unusual(
    last: tuple[tuple[str, str, int], float], silence_s: float, is_unusual: bool
) -> None:
    assert bool(silent([*STEPS * 6, last], silence_s)) is is_unusual


def test_pauses_that_come_wherever_the_job_is_are_usual_everywhere() -> None:
    made = [*STEPS * 2, (NORM, 15.0), *STEPS, (GRADIENTS, 17.0), *STEPS, (NORM, 0.0)]
    assert not silent(made, 14.0)


def test_a_place_that_was_seldom_seen_and_an_unknown_step_say_nothing() -> None:
    assert not silent([*STEPS[:4], (NORM, 0.0)], 14.0)
    assert not silent([*STEPS * 6, (NORM, 0.0)], 14.0, Speed(Pace.NOT_MEASURED, ""))


@pytest.mark.parametrize(("silence_ns", "motion"), [(SECOND, Motion.MOVING), (LEAST_SILENCE_NS + 1, Motion.TOO_EARLY)])
def test_a_log_that_ends_in_a_long_silence_shows_no_motion_however_long_saves_are(silence_ns: int, motion: Motion) -> None:
    end = 100 * SECOND
    log = ShimLog(0, 0, "0.frx", "n0", 0, end, end, False, end - silence_ns, None, 16 * SECOND, frozenset())
    found = logged_motion([log], 2.0)
    assert found is not None and found.motion is motion
