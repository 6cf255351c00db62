"""Which flows are read where only a part of each log is looked at, on a recorded scenario."""

from __future__ import annotations

import pytest

from forensics.rules.reductions.network.ended_flows import busiest, show_ended_flows
from tests.recordings.scenarios import recorded

_SHOWN = "SELECT source_id, locator, kind, number, size, rank, other, end_ns FROM ended_flows ORDER BY ALL"


@pytest.mark.parametrize("scenario", ["transfer-slow", "line-shared"])
def test_a_window_shows_the_flows_that_end_in_it_as_the_whole_log_does(scenario: str) -> None:
    """Calls before the window are passed over, those that began before it and ended in it are not."""
    case = recorded(scenario)
    sources = [source for (source,) in case.execute("SELECT DISTINCT source_id FROM flows").fetchall()]
    assert show_ended_flows(case, sources) > 0
    every = case.execute(_SHOWN).fetchall()
    ends = {source: sorted(row[-1] for row in every if row[0] == source) for source in sources}
    windows = {source: (found[len(found) // 2], found[-2]) for source, found in ends.items() if found}
    count = show_ended_flows(case, sources, windows)
    inside = [row for row in every if windows[row[0]][0] <= row[-1] <= windows[row[0]][1]]
    assert case.execute(_SHOWN).fetchall() == inside and 0 < count < len(every)


def test_the_begin_of_the_newest_flows_of_long_logs() -> None:
    case = recorded("line-shared")
    ends: dict[int, list[int]] = {}
    for source, end in case.execute("SELECT source_id, end_ns FROM flows WHERE end_ns IS NOT NULL ORDER BY end_ns").fetchall():
        ends.setdefault(source, []).append(end)
    assert busiest(case, sorted(ends), 10) == {source: found[-10] for source, found in ends.items()}
    assert busiest(case, sorted(ends)) == {}
