"""Errors of hardware that no rule puts to a rank: machine checks, PCIe, NVSwitch by kernel logs, readings that failed."""

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
        SELECT host, kind, device, text, source FROM device_event
        WHERE kind IN ('machine_check', 'pcie_error', 'sxid', 'reading_failed')
            AND (time_ns IS NULL OR time_ns >= coalesce((SELECT min(enqueued_ns) FROM operations), time_ns))
        QUALIFY row_number() OVER (PARTITION BY host, kind, device ORDER BY time_ns DESC NULLS LAST, path, locator DESC) = 1
        ORDER BY ALL
        """,
        kinds=("machine_check", "pcie_error", "sxid", "reading_failed"),
    )
    return HostErrors(tuple(Evidence(_statement(*said), source) for *said, source in rows))


def _statement(host: str | None, kind: str, device: str, text: str) -> str:
    where = host or "a host"
    if kind == "reading_failed":
        return f"nvidia-smi could not read {text} of {device} of {where}: search the kernel log for an Xid of it"
    return f"the kernel of {where} reports: {text}"
