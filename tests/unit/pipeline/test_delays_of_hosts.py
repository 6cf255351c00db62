"""Whose delay a long step is: that of a host in the step, of a host between two steps, or of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from forensics.case.database import Connection
from forensics.model import Assessment, Cause, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from tests.recordings.grouped_calls import case_of_dumps

MS = 1_000_000
RANKS, CALLS, STEPS, LATE = 4, 6, 20, 2
TWICE, UNEVENLY, EVENLY = (6, 10), (4, 6, 10), (4, 7, 10)
STEP_MS, BETWEEN_MS, INSIDE_MS = 300, 20, 10

# By how many ms a host issues a call later, and by how many the others wait longer in it: of a rank, a step and a call.
Course = Callable[[int, int, int], tuple[int, int]]
Steps = tuple[int, ...]
_COLUMNS = (
    "source_id locator snapshot rank communicator backend record_id kind count sequence state "
    "enqueued_ns duration_ns device_end_ns"
)


def case(course: Course, kind: str = "all_reduce") -> Connection:
    """Dumps of ranks that reduce gradients of several sizes in each step, ahead of their devices; or exchange something."""
    return case_of_dumps({"all": tuple(range(RANKS))}, _COLUMNS, _rows(course, kind))


def _rows(course: Course, kind: str) -> Iterator[tuple[object, ...]]:
    for rank in range(RANKS):
        for number in range(STEPS * CALLS):
            step, call = divmod(number, CALLS)
            late, waits = course(rank, step, call)
            issued = (step * STEP_MS + call * BETWEEN_MS + late) * MS
            taken = (INSIDE_MS + waits) * MS
            place = (rank, number, 0, rank, "all", "nccl", 100 + number, kind, 1000 + call, 100 + number, "done")
            yield (*place, issued, taken, issued + taken)


def host_from(call: int, ms: int, steps: Steps = TWICE) -> Course:
    """A host that pauses before a call of the long steps; the others wait there and come as late to what follows."""

    def course(rank: int, step: int, at: int) -> tuple[int, int]:
        here = _reached(_calls(steps, call), (step, at)) - (0 if rank == LATE or (step, at) not in _calls(steps, call) else 1)
        return here * ms, ms if (step, at) in _calls(steps, call) and rank != LATE else 0

    return course


def device_at(call: int, ms: int, steps: Steps = TWICE) -> Course:
    """A device that is late to a call of the long steps which its host made in time."""

    def course(rank: int, step: int, at: int) -> tuple[int, int]:
        here = (step, at) in _calls(steps, call)
        return (_reached(_calls(steps, call), (step, at)) - here) * ms, ms if here and rank != LATE else 0

    return course


def _calls(steps: Steps, call: int) -> list[tuple[int, int]]:
    return [(step, call) for step in steps]


def _reached(delayed: Sequence[tuple[int, int]], here: tuple[int, int]) -> int:
    """How many of the delays are not after this call."""
    return sum(each <= here for each in delayed)


def first_delay(course: Course) -> Delay:
    found = supply_of(case(course), None).get(Delays).found
    assert len(found) == len(TWICE)
    return found[0]


def withheld(found: Verdict) -> list[Assessment]:
    return [each for each in found.assessments if each.ranks == (LATE,) and each.withheld]


def test_a_host_that_comes_late_to_the_step_itself_is_not_taken_for_its_device() -> None:
    delay = first_delay(host_from(0, 500))
    assert (delay.ranks, delay.before_step, delay.on_host) == ((LATE,), True, None)


def test_a_host_that_pauses_within_the_step_is_distinguished_from_its_device() -> None:
    delay = first_delay(host_from(3, 500))
    assert (delay.ranks, delay.before_step, delay.on_host) == ((LATE,), False, True)


@pytest.mark.parametrize("late", [0, 500], ids=["a device", "a host as well"])
def test_hosts_that_come_late_from_a_long_step_are_late_alike(late: int) -> None:
    """They run ahead: each makes the calls of the second long step when the first one has ended."""
    steps = (6, 7)

    def course(rank: int, step: int, call: int) -> tuple[int, int]:
        ended = 500 * sum(each < step for each in steps)
        own = late if rank == LATE and (step, call >= 3) == (7, True) else 0
        return ended + own, 500 if step in steps and call == 3 and rank != LATE else 0

    first, second = supply_of(case(course), None).get(Delays).found
    assert (first.on_host, first.step + 1) == (False, second.step)
    assert (second.ranks, second.before_step, second.on_host) == ((LATE,), False, late > 0)


def test_a_host_that_comes_to_the_step_before_others_and_then_pauses_is_late_by_itself() -> None:
    """The others wait at the end of a long step for their devices, which wait for it."""
    steps = (6, 7)

    def course(rank: int, step: int, call: int) -> tuple[int, int]:
        paused = 500 * sum((each, 3) <= (step, call) for each in steps)
        ended = 500 * sum(each < step for each in steps)
        return paused if rank == LATE else ended, 500 if step in steps and call == 3 and rank != LATE else 0

    found = supply_of(case(course), None).get(Delays).found
    assert [(each.ranks, each.on_host) for each in found] == [((LATE,), True)] * 2


def test_a_device_that_is_late_to_the_first_call_is_not_taken_for_its_host() -> None:
    delay = first_delay(device_at(0, 500))
    assert (delay.ranks, delay.before_step, delay.on_host) == ((LATE,), False, False)


@pytest.mark.parametrize("call", [0, 3])
def test_a_pause_of_a_host_that_sound_jobs_have_too_accuses_nobody(call: int) -> None:
    found = diagnose(case(host_from(call, 500)))
    assert found.suspects == ()
    assert len(withheld(found)) == 1


def test_a_host_that_is_long_late_between_two_steps_is_named_without_a_pass_or_a_cause() -> None:
    (suspect,) = diagnose(case(host_from(0, 2500, UNEVENLY))).suspects
    assert (suspect.ranks, suspect.cause, suspect.stage.microbatch) == ((LATE,), Cause.UNKNOWN, None)


def test_a_host_that_works_between_two_steps_every_so_many_steps_is_accused_by_nobody() -> None:
    found = diagnose(case(host_from(0, 2500, EVENLY)))
    assert found.suspects == ()
    assert len(withheld(found)) == 1


def test_a_device_that_is_late_as_long_as_a_pause_is_named() -> None:
    (suspect,) = diagnose(case(device_at(3, 500))).suspects
    assert (suspect.ranks, suspect.cause) == ((LATE,), Cause.COMPUTE_SLOW)


def through_early(call: int, ms: int) -> Course:
    """One whose messages of a long call are through as usual, and that waits for the others in its next one."""

    def course(rank: int, step: int, at: int) -> tuple[int, int]:
        here, after = ((step, at - more) in _calls(TWICE, call) for more in (0, 1))
        issued = (_reached(_calls(TWICE, call), (step, at)) - (here or (rank == LATE and after))) * ms
        return issued, ms if (after if rank == LATE else here) else 0

    return course


@pytest.mark.parametrize(
    ("kind", "course", "is_named"),
    [
        ("all_to_all", through_early(3, 500), False),
        ("all_to_all", device_at(3, 500), True),
        ("all_reduce", through_early(3, 500), True),
    ],
    ids=["of an exchange", "late to an exchange", "of a collective that nobody leaves early"],
)
def test_who_is_through_with_an_exchange_and_waits_in_the_next_call_was_not_late(
    kind: str, course: Course, is_named: bool
) -> None:
    found = supply_of(case(course, kind), None).get(Delays).found
    assert any(delay.ranks == (LATE,) for delay in found) is is_named
