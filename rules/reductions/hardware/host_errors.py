"""Errors of hardware that kernel logs report of a host, and that no rule can put to a rank: machine checks, PCIe, NVSwitch."""

from __future__ import annotations

from typing import NewType

from forensics.case.database import rows_of
from forensics.model import Evidence
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction

HostErrors = NewType("HostErrors", tuple[Evidence, ...])
"""The newest line of each kind and device."""


@reduction
def host_errors(calls: Calls) -> HostErrors:
    """Read those from the beginning of the job on, and those that nothing dates."""
    rows = rows_of(
        calls.connection,
        "device_events",
        """
        SELECT coalesce(e.host, s.host), e.text, s.path || coalesce('#line=' || e.locator, '')
        FROM device_events e JOIN sources s USING (source_id)
        WHERE e.kind IN ('machine_check', 'pcie_error', 'sxid') AND (e.time_ns IS NULL
            OR e.time_ns >= coalesce((SELECT min(enqueued_ns) FROM operations), e.time_ns))
        QUALIFY row_number() OVER (PARTITION BY coalesce(e.host, s.host), e.kind, e.device
            ORDER BY e.time_ns DESC NULLS LAST, s.path, e.locator DESC) = 1
        ORDER BY ALL
        """,
    )
    return HostErrors(
        tuple(Evidence(f"the kernel of {host or 'a host'} reports: {text}", source) for host, text, source in rows)
    )
