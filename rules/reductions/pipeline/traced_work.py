"""Ranks of a pipeline that are outside of calls for longer than those with the same work, as profilers of devices saw it.

A host that is late leaves its device idle: that is neither work of the device nor time inside a call. So what is not inside a
call counts, of each step between two moments at which the ranks meet (VenusTrace section 3.2: a node lasts from the end of a
receive to the begin of a send).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NewType

import numpy as np

from forensics.model import StageName
from forensics.rules.reductions.frontier.accounting import Floats
from forensics.rules.reductions.frontier.matrix import StageMatrix
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.device_work import MOST, PASSES, DeviceWork, LongWork, WorkTable, compared_work
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.steps.records import Ints
from forensics.rules.reductions.steps.times import Steps, StepTimes

TracedWork = NewType("TracedWork", DeviceWork)
"""As `DeviceWork`, of the time that ranks are in no call."""


@reduction
def traced_work(times: StepTimes, windows: FrontierWindows, layout: Layout, devices: DeviceWork) -> TracedWork:
    """Ranks that are longer whether sends count as waiting or not, but for those whose device is known to be.

    A send that holds up its stream waits for the receiver, and one beside computation may last as long as its receiver likes.
    """
    matrices = [window.matrix for window in windows if window.matrix.messages]
    if not matrices or not times.is_traced:
        return TracedWork(DeviceWork())
    paths = {rank: matrix.path(rank) for matrix in matrices for rank in matrix.ranks}
    longer, sure = (compared_work(_table(times, paths, sends=sends), layout) for sends in (False, True))
    both = {item.rank for item in (*sure.found, *sure.of_few)} - {item.rank for item in devices.found}
    found = tuple(_placed(item, matrices) for item in longer.found if item.rank in both)
    of_few = tuple(item for item in longer.of_few if item.rank in both)
    return TracedWork(DeviceWork(found, longer.compared & sure.compared, of_few))


def _placed(item: LongWork, matrices: Sequence[StageMatrix]) -> LongWork:
    """With the stage beside the passes that is longer on this rank than on its peers by most of what it works longer."""
    for matrix in matrices:
        if {item.rank, *item.peers} <= {*matrix.ranks}:
            at, others = matrix.ranks.index(item.rank), [matrix.ranks.index(rank) for rank in item.peers]
            for name in {column.stage for column in matrix.columns} & ({*StageName} - {*PASSES}):
                columns = [index for index, column in enumerate(matrix.columns) if column.stage == name]
                spent = np.median(matrix.durations[:, columns].sum(axis=1), axis=0)
                if spent[at] - np.median(spent[others]) >= MOST * (item.own_ns - item.usual_ns):
                    return replace(item, stage=StageName(name))
    return item


def _table(times: StepTimes, paths: Mapping[int, str | None], *, sends: bool) -> WorkTable:
    """Time in no call, of the steps that all ranks have whole; `sends` count as calls."""
    ranks = tuple(sorted(times.ranks))
    numbers = times.shared_by(ranks)
    length = times.length[np.isin(times.number, numbers)][:, None]
    inside = np.stack([_inside(times.ranks[rank], numbers, sends=sends) for rank in ranks], axis=1)
    walls = np.broadcast_to(length, inside.shape)
    passes = np.zeros((len(PASSES), *inside.shape))
    known = {rank: paths.get(rank) for rank in ranks}
    return WorkTable(ranks, passes, length - inside, walls, known, {rank: at for at, rank in enumerate(ranks)}, on_host=True)


def _inside(steps: Steps, numbers: Ints, *, sends: bool) -> Floats:
    """ns of a rank in calls in each of some steps; NaN where that is not known of a call."""
    durations = steps.durations(numbers)
    counts = np.full(durations.shape[1], True) if sends else ~steps.record.is_send[steps.order[0]]
    found: Floats = durations[:, counts].sum(axis=1)
    return found
