"""Waits in collectives: what a recorder knows of the begin of a call, and what its duration tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.case.database import new_case
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, judge
from forensics.rules.reductions.frontier.waits import collective_waits, of_window
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
    ((begin, end),) = waits[0, 7]
    assert end - begin == 300 * MS
    assert 0 <= begin - (END - LASTED[0]) <= 100 * MS


def test_a_rank_without_recorded_calls_is_not_taken_for_one_that_never_waits() -> None:
    """Rank 3 is late in forward; of rank 5, which waits for it in backward as all do, no call was recorded."""
    late = job("forward", arrivals=True)
    assert late.arrived is not None
    waited = (late.durations[:, 2] - late.arrived["backward"]).astype(int)
    begun = (late.begins + late.epoch_ns + late.durations[:, :2].sum(axis=1)).astype(int) + 1
    waits = {
        (rank, step): [(int(begun[row, column]), int(begun[row, column] + waited[row, column]))]
        for row, step in enumerate(late.steps.tolist())
        for column, rank in enumerate(late.ranks)
        if rank != 5
    }
    found = of_window(waits, replace(late, arrived=None))
    assert found is not None
    assert not found.of_all
    culprits = judge(FrontierWindow(replace(late, arrived=None), found), Gates()).attribution.culprits
    assert [(culprit.stage, culprit.ranks) for culprit in culprits] == [("forward", (3,))]
