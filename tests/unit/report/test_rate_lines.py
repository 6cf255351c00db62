"""Rates of NICs in a terminal: a slow one shows beside the others although all are as busy on average."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.model import Granularity, Since
from forensics.report import rate_lines, rates_svg, text
from forensics.report.rates import NO_CURVES, RateCurve, RateCurves, rate_curves
from forensics.rules.engine import supply_of
from forensics.rules.reductions.epochs.operators import NicOperators
from tests.recordings.nic_captures import Ring, captures, write
from tests.unit.report.verdicts import DATALOADER, HANG

SLOW = replace(HANG, suspects=(replace(DATALOADER, ranks=(2,), granularity=Granularity.NIC),))


def lines(found: RateCurves, width: int = 60, since: Since | None = None) -> list[str]:
    section = rate_lines.section(found, replace(SLOW, since=since), width, 2)
    return [f"{item.marker}|{item.drawing}|{item.text}" for item in section.items]


def curve(rank: int, busy: list[float], begin: int | None = 0) -> RateCurve:
    return RateCurve(rank, "host", "mlx5_0", begin, 10, np.array(busy), np.zeros(len(busy)))


def test_a_sign_is_a_share_of_the_highest_rate_and_what_was_lost_is_none() -> None:
    found = RateCurves((curve(2, [0, 1e9, 7e9, np.nan]), curve(5, [7e9] * 4)), 1)
    first, received, other, _, legend = lines(found)
    assert set(first.split("|")[1]) == {".", ":", "#", "?"} and len(first.split("|")[1]) == 26
    assert set(received.split("|")[1]) == {"."}
    assert other.startswith("rank 5 mlx5_0 sent|") and set(other.split("|")[1]) == {"#"}
    assert "# 7 GB/s" in legend and "* suspect; 1 more captures" in legend


def test_captures_of_other_times_stand_apart_and_the_onset_is_marked() -> None:
    found = RateCurves((curve(2, [7e9] * 2), curve(5, [7e9] * 2, 20)))
    first, _, other, _, onset, _ = lines(found, since=Since(10, "realtime of host", 1))
    assert first.split("|")[1] == "#" * 13 and other.split("|")[1] == " " * 13 + "#" * 13
    assert onset == "|      ^ |stall begins"
    assert len(lines(found, since=Since(10, "monotonic of host", 1))) == 5


def test_without_captures_there_is_nothing() -> None:
    assert not rate_lines.section(NO_CURVES, SLOW, 100).items
    assert "NIC RATES" not in text.render(SLOW)


@pytest.mark.parametrize(("granularity", "shown"), [(Granularity.NIC, True), (Granularity.RANK, False)])
def test_the_first_screen_has_them_where_a_nic_or_a_link_is_named(granularity: Granularity, shown: bool) -> None:
    verdict = replace(HANG, suspects=(replace(DATALOADER, granularity=granularity),))
    found = RateCurves((curve(2, [7e9] * 4),))
    assert ("NIC RATES" in text.render(verdict, curves=found)) == shown
    assert "NIC RATES" in text.render(verdict, verbose=True, curves=found)


def test_a_slow_nic_shows_although_its_neighbours_move_as_much(tmp_path: Path) -> None:
    with open_case([write(tmp_path, captures(Ring(slow={2: 0.5})))]) as connection:
        found = rate_curves(connection, {2})
    slow, *others = found.curves
    assert slow.rank == 2
    assert np.nanmax(slow.sent) < 0.7 * min(float(np.nanmax(each.sent)) for each in others if each.rank not in (0, 4))


def test_each_operator_has_a_bar_of_its_own_on_the_page(tmp_path: Path) -> None:
    with open_case([write(tmp_path, captures(Ring()))]) as connection:
        found = rate_curves(connection, (), supply_of(connection).get(NicOperators))
    assert all(len(curve.operators) > 5 for curve in found.curves)
    for curve in found.curves:
        edges = [moment for span in curve.operators for moment in span]
        assert edges == sorted(edges) and edges[0] >= 0 and edges[-1] <= len(curve) * curve.span_ns
    picture = rates_svg.drawn(found, SLOW)
    assert picture is not None and any("the operators that it sent" in element for element in picture.body)
    bars = [element for element in picture.body if element.startswith("<path")]
    assert [bar.count("M") for bar in bars] == [len(curve.operators) for curve in found.curves]
