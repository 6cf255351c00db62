"""What is usual on the other hosts, against a median of each host's others."""

from __future__ import annotations

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from forensics.rules.reductions.hardware.apart import usual_beside


@given(st.lists(st.integers(0, 5).map(float), max_size=9))
def test_the_median_of_all_others(values: list[float]) -> None:
    hosts = {f"n{number}": value for number, value in enumerate(values)}
    others = {host: [value for other, value in hosts.items() if other != host] for host in hosts}
    assert usual_beside(hosts) == {host: median(found) for host, found in others.items() if len(found) > 1}
