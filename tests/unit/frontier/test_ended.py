"""Traces of hosts that wait for their device behind all stages: ranks meet there, and what was late before that is stated."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.case.database import new_case
from forensics.rules.engine import find, supply_of, thresholds
from forensics.rules.interface import Thresholds
from forensics.rules.leads.frontier import frontier_leads
from forensics.rules.reductions.frontier.accounting import Floats
from forensics.rules.reductions.frontier.ended import ended
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.in_calls import InCalls
from forensics.rules.reductions.frontier.matrix import REST, StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.verdicts import FrontierWindow, judge
from forensics.rules.reductions.frontier.waits import Wait, Waits, of_window
from forensics.rules.reductions.pipeline.device_work import DeviceWork
from forensics.rules.reductions.pipeline.traced_work import TracedWork
from tests.unit.frontier.jobs import matrix

MS = 1_000_000
LAUNCHED, DEVICE_MS = (5, 3, 3, 1), 200
"""What a host takes for data and to launch forward, backward and optimizer, and the device for all of it (ms)."""
SLOW = 2


def traced(late: Floats, *, on_host: bool = True) -> tuple[StageMatrix, Waits]:
    """Hosts launch a step and wait for its end, the device of each for the one that comes last by `late` (`[step, rank]`).

    It is late since its host loads data for so long, or else by work of the device.
    """
    steps, ranks = late.shape
    stages = np.broadcast_to(np.array(LAUNCHED, float)[:, None], (steps, 4, ranks)).copy()
    stages[:, 0] += late * on_host
    begins = np.cumsum(np.r_[0, late.max(axis=1)[:-1] + sum(LAUNCHED) + DEVICE_MS]).astype(np.int64) * MS
    found = matrix(np.concatenate([stages, np.zeros((steps, 1, ranks))], axis=1))
    length = (late.max(axis=1) + sum(LAUNCHED) + DEVICE_MS)[:, None] * MS
    begin = np.broadcast_to(begins[:, None], (steps, ranks)).copy()
    made = replace(
        found, source="kineto", columns=found.columns[:3] + found.columns[4:], durations=stages * MS, begins=begin,
        walls=np.broadcast_to(length, (steps, ranks)).copy(),
        ends=(begin[:, None, :] + np.cumsum(stages, axis=1) * MS).astype(np.int64),
    )  # fmt: skip
    waits = {
        (rank, step): [_wait(int(begin[step, rank]), float(late[step, rank]), float(late[step].max()))]
        for step in range(steps)
        for rank in range(ranks)
    }
    return made, waits


def _wait(begin: int, own_ms: float, last_ms: float) -> Wait:
    """The one reduction of a step, which the host launched long before its device comes to it."""
    came = begin + round((own_ms + sum(LAUNCHED) + DEVICE_MS - 10) * MS)
    return Wait(came, came + round((last_ms - own_ms) * MS), came)


def window_of(made: StageMatrix, waits: Waits) -> FrontierWindow:
    wide = ended(made, waits)
    return FrontierWindow(made, of_window(waits, wide or made), wide)


def blamed(late: Floats) -> list[tuple[str, tuple[int, ...]]]:
    culprits = judge(window_of(*traced(late)), Gates()).attribution.culprits
    return [(culprit.stage, culprit.ranks) for culprit in culprits]


def late(rank: int | None, steps: int = 4, ms: float = 150.0) -> Floats:
    found = np.random.default_rng(3).random((steps, 8))
    if rank is not None:
        found[:, rank] += ms
    return found


@pytest.mark.parametrize("steps", [4, 12])
def test_who_loads_data_for_longer_is_stated_where_hosts_wait_at_the_end_of_the_step(steps: int) -> None:
    assert blamed(late(SLOW, steps)) == [("data", (SLOW,))]


def test_who_is_late_to_a_collective_that_the_devices_come_to_at_once_is_late_for_its_data() -> None:
    """Parameters are gathered first: the wait begins while the host launches, and is over long after it has."""
    delays = late(SLOW)
    made, waits = traced(delays)
    first = {
        (rank, step): [Wait(began := int(made.begins[step, rank] + (delays[step, rank] + 6) * MS), began + wait.length, began)]
        for (rank, step), (wait,) in waits.items()
    }
    wide = ended(made, first)
    assert wide is not None
    culprits = judge(FrontierWindow(made, of_window(first, wide), wide), Gates()).attribution.culprits
    assert [(culprit.stage, culprit.ranks) for culprit in culprits] == [("data", (SLOW,))]


def leads(made: StageMatrix, waits: Waits) -> list[str]:
    windows, nobody = FrontierWindows((window_of(made, waits),)), DeviceWork()
    return list(frontier_leads(windows, InCalls(dict.fromkeys(made.ranks, 0.0)), nobody, TracedWork(nobody)))


def test_who_is_longer_behind_all_stages_is_where_to_begin() -> None:
    (lead,) = leads(*traced(late(SLOW), on_host=False))
    assert lead.startswith(f"{REST} on rank {SLOW}: 149.7 ms") and "in 4 of 4 steps" in lead
    assert not leads(*traced(late(None), on_host=False))


@pytest.mark.parametrize(("rows", "expected"), [((2, 4), True), ((2,), False), ((1, 3, 5), False)], ids=["two", "one", "three"])
def test_who_is_late_in_two_steps_is_where_to_begin(rows: tuple[int, ...], expected: bool) -> None:
    delays = late(None, 7)
    delays[list(rows), SLOW] += 150.0
    found = [lead for lead in leads(*traced(delays)) if lead.startswith(f"data on rank {SLOW}: ")]
    assert bool(found) is expected and all("in steps 2, 4, of 6 compared" in lead for lead in found)


def test_two_ranks_that_are_late_once_each_are_not() -> None:
    delays = late(None, 7)
    delays[2, SLOW], delays[4, SLOW + 1] = 150.0, 150.0
    assert not leads(*traced(delays))


@pytest.mark.parametrize("delays", [late(None), late(None, 12), late(SLOW, ms=8.0)], ids=["few", "many", "little"])
def test_a_sound_job_names_nobody(delays: Floats) -> None:
    assert not [ranks for _, ranks in blamed(delays) if ranks]


def test_data_of_another_rank_in_each_step_is_of_no_rank() -> None:
    delays = late(None, 8)
    delays[np.arange(8), np.random.default_rng(5).permutation(8)] += 150.0
    assert not [ranks for _, ranks in blamed(delays) if ranks]


def test_a_rank_that_is_longer_in_what_follows_the_stages_alone_is_not_named() -> None:
    """Without kernels of its passes nothing shows a slow device from data that was longer in these few steps."""
    rule = find("FX170")
    assert rule is not None
    made, waits = traced(late(SLOW), on_host=False)
    window = window_of(made, waits)
    assert [culprit.stage for culprit in judge(window, Gates()).attribution.culprits] == [REST]
    given: dict[object, object] = {FrontierWindows: FrontierWindows((window,)), Thresholds: thresholds(rule, {})}
    assert not [each for each in supply_of(new_case(), None).call(rule.evaluate, given) if each.impact]


def test_what_follows_the_stages_counts_where_the_waiting_is_alone() -> None:
    """Where hosts wait inside a stage, and in what is no trace, the window stays as it is."""
    made, waits = traced(late(SLOW))
    wide = ended(made, waits)
    assert wide is not None and wide.columns[-1].stage == REST and np.abs(wide.residual).max() < 2
    held = traced(late(SLOW, ms=2.0))
    early = (sum(LAUNCHED) + DEVICE_MS - 10) * MS
    inside = {
        key: [Wait(begin - early, end - early, called) for begin, end, called, _ in each] for key, each in held[1].items()
    }
    assert ended(held[0], inside) is None
    assert ended(replace(made, source="recorder"), waits) is None
    assert ended(replace(made, ends=None), waits) is None
    assert ended(made, {}) is None
