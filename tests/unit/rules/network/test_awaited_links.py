"""Ranks whose own link is slow, and those in step with one that a slow link brings its data late."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.network.awaited_links import lost_to_links
from forensics.rules.reductions.network.channel_flows import channel_flows
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.layout import AxisOf, Layout
from tests.unit.rules.network.made_up_flows import flows_of, ring
from tests.unit.rules.network.test_slow_links import channel_of, sound

IN_STEP = Layout(
    {"in step": AxisOf(Axis.TENSOR, "calls"), "data": AxisOf(Axis.DATA, "calls"), "stages": AxisOf(Axis.PIPELINE, "calls")},
    {"in step": (3, 7), "data": (2, 6), "stages": (7, 11)},
)


@pytest.fixture(scope="module")
def slowness() -> Slowness:
    """The link from rank 2 to rank 3 is slow, those of the rest of the ring are not."""
    with flows_of(4) as connection:
        ring(connection, 4, 20, lambda s, r, step: (10.0, 0.1, 40.0, 50.0, 0.2) if s == 2 else sound(s, r, step))
        found = channel_flows(connection)
    return Slowness(channels={(each.sender, each.receiver): (each,) for each in found})


@pytest.mark.parametrize(("rank", "waits"), [(3, True), (7, True), (11, True), (2, True), (6, False), (1, False)])
def test_who_waits_for_a_slow_link(slowness: Slowness, rank: int, waits: bool) -> None:
    lost = channel_of(slowness.channels[2, 3], 2).share
    assert lost > 0.2
    assert lost_to_links(slowness, IN_STEP).get(rank, 0.0) == (lost if waits else 0.0)


def test_nobody_waits_for_a_link_that_is_not_slow(slowness: Slowness) -> None:
    sound_links = {link: channels for link, channels in slowness.channels.items() if link != (2, 3)}
    assert lost_to_links(replace(slowness, channels=sound_links), IN_STEP) == {}
