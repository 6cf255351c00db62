"""Links of NICs that kernel logs report as down, and not as up again, since the job began."""

from __future__ import annotations

from typing import NewType

from forensics.case.database import rows_of
from forensics.model import Evidence
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction

LostLinks = NewType("LostLinks", tuple[Evidence, ...])
"""One line of the kernel log for each link."""


def links_down(condition: str) -> str:
    """Query for host, device and source of each link whose last report, of those that meet a condition, is that it is down."""
    return f"""
        SELECT host, device, source FROM device_event WHERE kind IN ('link_down', 'link_up') AND {condition}
        QUALIFY row_number() OVER (PARTITION BY host, device ORDER BY time_ns DESC, locator DESC) = 1 AND kind = 'link_down'
        ORDER BY ALL
    """


@reduction
def lost_links(calls: Calls) -> LostLinks:
    """Read the last report of each link; one that nothing dates is of no known time, and left out."""
    rows = rows_of(
        calls.connection,
        "device_events",
        links_down("time_ns >= (SELECT min(enqueued_ns) FROM operations)"),
        kinds=("link_down",),
    )
    return LostLinks(tuple(Evidence(f"the kernel of {host or 'a host'} lost the link of {nic}", at) for host, nic, at in rows))
