"""Ranks of a pipeline whose hosts compute themselves, and which work longer than others do, as profilers saw it.

Ranks with the same work are compared as devices are. Where no rank has equals, a stage between the first and the last is
compared with all others; those two have an embedding or a head, and fewer messages. Who is slow may change from step to step:
then each rank is compared with itself as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import has_rows
from forensics.model import StageName
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.device_work import (
    FACTOR,
    DeviceWork,
    LongWork,
    WorkTable,
    are_of_passes,
    compared_work,
    is_much,
    stage_of,
)
from forensics.rules.reductions.pipeline.host_passes import HostPasses, host_passes
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.own_work import LEAST_PART
from forensics.rules.reductions.steps.records import Ints

HostWork = NewType("HostWork", DeviceWork)
"""Ranks whose hosts work longer, most lost first, of those that were `compared`."""

StageTimes = NewType("StageTimes", bool)
"""Whether anything says how long ranks worked in stages, or in whole steps of a pipeline."""

_LEAST_STAGES, _LEAST_STEPS = 3, 3
# Times the operators of the middle one of the others: the ends of a pipeline run some that are not of layers.
_MORE = 1.2
# Steps of one rank in which it is not slow, where other load on its host does not show.
_ALIKE = 1.4


@reduction
def host_work(connection: DuckDBPyConnection, layout: Layout) -> HostWork:
    """Compare the hosts of ranks whose traces have messages and no device."""
    return HostWork(work_of(host_passes(connection), layout) if has_rows(connection, "spans") else DeviceWork())


@reduction
def stage_times(windows: FrontierWindows, hosts: HostWork) -> StageTimes:
    """Where passes are nothing but time between messages, traces have no stages and hosts can be compared all the same."""
    return StageTimes(bool(windows) or bool(hosts.compared))


def work_of(traced: Mapping[int, HostPasses], layout: Layout) -> DeviceWork:
    """Ranks with equals against these, others against all or against themselves; experts have other work by design."""
    if len(traced) < _LEAST_STAGES or layout.along(Axis.EXPERT):
        return DeviceWork()
    table = _table(traced)
    found = compared_work(table, layout)
    if found.compared or len(table.total) < _LEAST_STEPS:
        return found
    items = tuple(_by_stages(table, traced, layout)) or tuple(_in_turns(table))
    return DeviceWork(items, frozenset(table.ranks))


def _table(traced: Mapping[int, HostPasses]) -> WorkTable:
    """Of the steps that all ranks have."""
    ranks = tuple(sorted(traced))
    steps = np.array(sorted(set.intersection(*({*each.steps.tolist()} for each in traced.values()))), np.int64)
    at = {rank: np.searchsorted(traced[rank].steps, steps) for rank in ranks}
    walls, work, forward, backward = (
        np.stack([getattr(traced[rank], name)[at[rank]] for rank in ranks], axis=1)
        for name in ("wall", "work", "forward", "backward")
    )
    return WorkTable(
        ranks, np.stack([forward, backward]), work, walls, {rank: traced[rank].path for rank in ranks},
        {rank: place for place, rank in enumerate(ranks)}, on_host=True,
    )  # fmt: skip


def _by_stages(table: WorkTable, traced: Mapping[int, HostPasses], layout: Layout) -> Iterator[LongWork]:
    """A stage within the only pipeline that works half as long again as every other one, on as many operators."""
    pipes = [*layout.pipelines, *(layout.members[label] for label in layout.along(Axis.PIPELINE))] or [table.ranks]
    if any({*pipe} != {*table.ranks} for pipe in pipes) or any(layout.along(axis) for axis in (Axis.TENSOR, Axis.DATA)):
        return
    columns = range(len(table.ranks))
    at = int(table.total.min(axis=0).argmax())
    ends = min(each.messages for each in traced.values())
    lost = table.total[:, at] - np.delete(table.total, at, axis=1).max(axis=1)
    costs = np.median(lost) >= LEAST_PART * np.median(table.walls[:, at])
    more = _runs_more(table.ranks[at], traced)
    if traced[table.ranks[at]].messages > ends and is_much(table, at, columns) and costs and not more:
        yield _item(
            table, at, np.arange(len(table.total)), float(np.median(np.delete(table.total, at, axis=1))), by_stages=True
        )


def _runs_more(rank: int, traced: Mapping[int, HostPasses]) -> bool:
    """Whether a rank runs more operators than the others usually do, as a stage with more layers does."""
    return traced[rank].operators > _MORE * median(each.operators for other, each in traced.items() if other != rank)


def _in_turns(table: WorkTable) -> Iterator[LongWork]:
    """Ranks that in some steps work half as long again as they do in others, and as every other rank does in these steps."""
    own = table.total.min(axis=0)
    most = table.total.argmax(axis=1)
    second = np.sort(table.total, axis=1)[:, -2]
    longest = table.total.max(axis=1)
    slow = (longest >= FACTOR * second) & (longest >= FACTOR * own[most])
    if slow.sum() < _LEAST_STEPS or 2 * slow.sum() <= len(slow) or len({*most[slow].tolist()}) < 2:
        return
    usual = table.total.copy()
    usual[np.flatnonzero(slow), most[slow]] = np.nan
    if (np.nanmax(usual, axis=0) > _ALIKE * own).any():
        return  # hosts that share cores with others work now longer, now shorter
    items = [_item(table, at, np.flatnonzero(slow & (most == at)), float(own[at])) for at in sorted({*most[slow].tolist()})]
    yield from (item for item in items if all(each.computes for each in items))


def _item(table: WorkTable, at: int, steps: Ints, usual: float, *, by_stages: bool = False) -> LongWork:
    others = np.delete(table.total[steps], at, axis=1)
    theirs = np.median(np.delete(table.passes, at, axis=2), axis=(1, 2))
    base = theirs if by_stages else table.passes[:, :, at].min(axis=1)
    parts = np.median(table.passes[:, steps, at], axis=1) - base
    own = float(np.median(table.total[steps, at]))
    computes = are_of_passes(parts, own - usual)
    return LongWork(
        rank=table.ranks[at], peers=tuple(rank for rank in table.ranks if rank != table.ranks[at]) if by_stages else (),
        steps=len(steps), own_ns=own, usual_ns=usual, step_ns=float(np.median(table.walls[steps, at])),
        lost_ns=float(np.median(table.total[steps, at] - others.max(axis=1))),
        stage=stage_of(parts) if computes else StageName.UNKNOWN, source=table.paths[table.ranks[at]],
        on_host=True, by_stages=by_stages, computes=computes,
    )  # fmt: skip
