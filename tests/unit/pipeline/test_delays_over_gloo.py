"""Late hosts of gloo jobs whose dumps have no call paths: amid a step, when nobody else was late in it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from forensics.case.database import Connection
from forensics.model import Confidence, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.grouped_calls import case_of_dumps

MS = 1_000_000
GROUPS = {"all": (0, 1, 2, 3), "first": (0, 1), "second": (2, 3)}
PASSES, STEPS, LONG, STEP_MS = 4, 16, 9, 100
_COLUMNS = "source_id locator snapshot rank communicator backend record_id kind count sequence state enqueued_ns"


def case(late: dict[int, int], ms: int, without: int | None = None, cut: int | None = None, earlier: int = 0) -> Connection:
    """Ranks in two tensor-parallel groups; those in `late` come `ms` late from a pass of one step on, the others after it.

    Rank `without` left no record, and that of rank `cut` ends amid the last step, or one that is so many `earlier`.
    """
    return case_of_dumps(GROUPS, _COLUMNS, _rows(late, ms, without, cut, earlier), backend="gloo", host="host")


def _rows(late: dict[int, int], ms: int, without: int | None, cut: int | None, earlier: int) -> Iterator[tuple[object, ...]]:
    last = STEPS - 1 - earlier
    for rank in range(4):
        number = 0
        for step in range(STEPS):
            for call in range(PASSES + 1):
                own = "all" if call == PASSES else "first" if rank < 2 else "second"
                begun = (step, call) >= (LONG, late.get(rank, min(late.values()) + 1))
                at_ms = step * STEP_MS + call * 10 + (ms if begun else 0)
                place = (rank, number, 0, rank, own, "gloo", number, "all_reduce", 8 if call < PASSES else 1)
                if rank != without and not (rank == cut and (step, call) > (last, 0)):
                    yield (*place, step * PASSES + call if call < PASSES else step, "done", at_ms * MS)
                number += 1


def named(found: Verdict) -> list[tuple[tuple[int, ...], Confidence]]:
    return [(suspect.ranks, suspect.confidence) for suspect in found.suspects]


def test_a_host_that_alone_was_late_amid_a_step_is_suspected() -> None:
    assert named(diagnose(case({3: 2}, 1500))) == [((3,), Confidence.SUSPECT)]


@pytest.mark.parametrize("earlier", [0, 3])
def test_records_that_end_at_different_calls_tell_it_as_well(earlier: int) -> None:
    """Whoever left the last steps open is not known to have come late in them: its peers have no time inside those calls."""
    assert named(diagnose(case({3: 2}, 1500, cut=0, earlier=earlier))) == [((3,), Confidence.SUSPECT)]


def test_nobody_is_named_where_another_group_waits_in_the_same_step() -> None:
    """Either may have come late by a message of the other."""
    assert named(diagnose(case({1: 1, 3: 1}, 1500))) == []


def test_nobody_is_named_where_a_rank_left_no_record() -> None:
    assert named(diagnose(case({3: 2}, 1500, without=0))) == []


@pytest.mark.parametrize(("first", "ms"), [(0, 1500), (2, 600)])
def test_nobody_is_named_for_what_sound_jobs_have(first: int, ms: int) -> None:
    """Before the first call of its kind in the step a rank may have saved or evaluated; below a second a host may pause."""
    assert named(diagnose(case({3: first}, ms))) == []
