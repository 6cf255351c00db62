"""Waits in collectives: what a recorder knows of the begin of a call, and what its duration tells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forensics.case.database import new_case
from forensics.rules.reductions.frontier.accounting import Ints
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, judge
from forensics.rules.reductions.frontier.waits import Wait, Waits, collective_waits, of_window
from tests.unit.frontier.jobs import job

MS = 1_000_000
STEP = 1_700_000_000 * 1000 * MS
# Rank 1 comes 300 ms late to the one call of the step; both leave it 400 ms after the step began.
LASTED = {0: 310 * MS, 1: 10 * MS}
END = STEP + 400 * MS


@pytest.mark.parametrize("found_ns", [0, 60 * MS], ids=["as a trace has it", "as the watchdog finds it"])
def test_a_call_began_its_duration_before_its_end(found_ns: int) -> None:
    """torch's recorder asks for begin and end at one moment, up to 100 ms after the end."""
    case = new_case()
    for rank, lasted in LASTED.items():
        ended = END + found_ns
        began = ended - 400 if found_ns else END - lasted
        case.execute("INSERT INTO steps (rank, step, begin_ns) VALUES (?, 7, ?)", [rank, STEP])
        case.execute(
            "INSERT INTO operations (rank, pg_name, kind, sequence, state, enqueued_ns, device_start_ns, device_end_ns, "
            "duration_ns) VALUES (?, '0', 'all_reduce', 1, 'done', ?, ?, ?, ?)",
            [rank, END - lasted, began, ended, lasted],
        )
    waits = collective_waits(case)
    ((begin, end, called, of_host),) = waits[0, 7]
    assert of_host and called == END - LASTED[0]
    assert end - begin == 300 * MS
    assert 0 <= begin - (END - LASTED[0]) <= 100 * MS


def waits_of(late: StageMatrix, column: int, waited: Ints, *, unseen: int | None = None) -> Waits:
    """One call a step, made as its stage begins."""
    begun = (late.begins + late.epoch_ns + late.durations[:, :column].sum(axis=1)).astype(int) + 1
    return {
        (rank, step): [Wait(int(begun[row, at]), int(begun[row, at] + waited[row, at]), int(begun[row, at]))]
        for row, step in enumerate(late.steps.tolist())
        for at, rank in enumerate(late.ranks)
        if rank != unseen
    }


def blamed(late: StageMatrix, waits: Waits) -> list[tuple[str, tuple[int, ...]]]:
    found = of_window(waits, late)
    assert found is not None
    assert found.of_all is all((rank, step) in waits for rank in late.ranks for step in late.steps.tolist())
    culprits = judge(FrontierWindow(late, found), Gates()).attribution.culprits
    return [(culprit.stage, culprit.ranks) for culprit in culprits]


def test_a_rank_without_recorded_calls_is_not_taken_for_one_that_never_waits() -> None:
    """Rank 3 is late in forward; of rank 5, which waits for it in backward as all do, no call was recorded."""
    late = job("forward", arrivals=True)
    assert late.arrived is not None
    waited = (late.durations[:, 2] - late.arrived["backward"]).astype(int)
    assert blamed(replace(late, arrived=None), waits_of(late, 2, waited, unseen=5)) == [("forward", (3,))]


def test_who_waits_for_a_rank_without_recorded_calls_is_seen_to_wait() -> None:
    """Of rank 3, which is late in forward, no call was recorded: the others are in their calls for as long as each other."""
    late = job("forward")
    waited = np.tile(np.arange(len(late.ranks)) * 10_000 + 1, (len(late.steps), 1))
    assert blamed(late, waits_of(late, 2, waited, unseen=3)) == [("forward", (3,))]


def test_waits_are_of_the_stage_that_the_host_waits_in() -> None:
    """Callbacks end with a barrier: all are in them for as long as rank 3, and rank 3 is not longer in backward."""
    late = job("callbacks", arrivals=True, who=lambda _: slice(None))
    assert late.arrived is not None
    in_backward = (late.durations[:, 2] - late.arrived["backward"]).astype(int)
    in_backward[0] += 100_000 * int(MS)  # most waits are in backward: the job starts there
    in_callbacks = np.where(np.array(late.ranks) == 3, 0, 110 * MS).astype(int) * np.ones_like(in_backward)
    waits = waits_of(late, 2, in_backward)
    for key, found in waits_of(late, 3, in_callbacks).items():
        waits[key] += found
    assert blamed(replace(late, arrived=None), waits) == [("callbacks", (3,))]


@pytest.mark.parametrize(("ends_ms", "where"), [(150, "backward"), (175, "callbacks")], ids=["there", "after it"])
def test_a_wait_is_of_the_stage_in_which_it_ends(ends_ms: int, where: str) -> None:
    """A host that runs ahead of its device is in a later stage by then: backward lasts from 65 to 165 ms, callbacks to 169."""
    late = job(steps=4)
    begun = late.begins + late.epoch_ns + 100 * MS
    until = late.begins + late.epoch_ns + ends_ms * MS
    if where == "callbacks":
        assert late.ends is not None
        until = late.ends[:, 3] + late.epoch_ns
    waits = {
        (rank, step): [Wait(int(begun[step, at]), int(until[step, at]), int(begun[step, at]))]
        for step in late.steps.tolist()
        for at, rank in enumerate(late.ranks[1:], start=1)
    }
    found = of_window(waits, late)
    assert found is not None and late.columns[found.where].stage == where


def calls_of(late: StageMatrix, waited: Sequence[Ints]) -> Waits:
    """Calls of each step that are made one after the other as its backward pass begins, with what each rank waits in them."""
    made: dict[tuple[int, int], list[Wait]] = {}
    for place, each in enumerate(waited):
        for key, found in waits_of(late, 2, each).items():
            made.setdefault(key, []).extend(wait._replace(called=wait.called + place) for wait in found)
    return made


def test_a_rank_that_comes_later_to_a_later_call_is_seen_behind_those_late_to_the_first() -> None:
    """Ranks 0 and 1 are late in forward; from step 60 on rank 5 is late to the second call, for which all wait longer."""
    early = job("forward", who=lambda _: slice(0, 2), delay_ms=40)
    since = (np.arange(120) >= 60)[:, None]
    longer = early.durations.copy()
    longer[:, 2] += since * 60 * MS
    moved = np.cumsum(np.where(since[:, 0], 60 * MS, 0)).astype(np.int64)
    assert early.ends is not None
    ends = early.ends + moved[:, None, None]
    ends[:, :2] -= np.where(since, 60 * MS, 0).astype(np.int64)[:, :, None]
    begins = early.begins + (moved - np.where(since[:, 0], 60 * MS, 0))[:, None].astype(np.int64)
    late = replace(early, durations=longer, walls=early.walls + since * 60 * MS, ends=ends, begins=begins)
    others = np.array(late.ranks) > 1
    first = np.where(others, 40 * MS, 0) * np.ones((120, 1), int)
    second = np.where(others, 15 * MS, 0) + since * np.where(np.array(late.ranks) == 5, -15 * MS, 60 * MS)
    assert ("backward", (5,)) in blamed(late, calls_of(late, (first, second.clip(0).astype(int))))


def test_what_the_others_would_have_worked_between_calls_makes_no_rank_long_there() -> None:
    """Rank 3 is late in forward by more and less: to the second call it comes by the work that lies between them."""
    late = job("forward", when=lambda step: True, delay_ms=80)
    by = np.where(np.arange(120) % 2, 80 * MS, 45 * MS).astype(int)[:, None] * (np.array(late.ranks) != 3)
    assert blamed(late, calls_of(late, (by, np.minimum(by, 70 * MS)))) == [("forward", (3,))]


def test_a_rank_without_recorded_calls_waits_with_the_others_in_other_stages_too() -> None:
    """All wait for rank 3 in backward, and in one step half a minute in the optimizer; calls of rank 5 were lost."""
    late = job("backward", rank=3, arrivals=True, steps=40)
    waited = np.full(late.walls.shape, 110 * MS)
    waited[:, 3] = 0
    waits = waits_of(late, 2, waited, unseen=5)
    assert late.ends is not None
    end = int(late.ends[7, 4, 0] + late.epoch_ns)
    waits[0, int(late.steps[7])].append(Wait(end - 30_000 * MS, end - 1, end - 2))
    found = of_window(waits, late)
    assert found is not None and found.where == 4 and not found.of_all
    assert float(np.median(found.times[:, 2, 5])) >= 100 * MS and not found.times[:, 2, 3].any()
