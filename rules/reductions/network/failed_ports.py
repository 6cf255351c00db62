"""Ranks whose own NIC said that its port failed: what tells the two ends of a dead link apart."""

from __future__ import annotations

from collections.abc import Collection
from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.log_evidence import Logged

FailedPorts = NewType("FailedPorts", dict[int, str])
"""Line of the log by rank, for ranks under which a port of their own host failed."""


@reduction
def failed_ports(heard: Logged) -> FailedPorts:
    """What NCCL logged of its own ports; NCCL writes such a line only in the process that uses the device."""
    return FailedPorts({fault.rank: fault.text for fault in reversed(heard.nic_faults) if fault.rank is not None})


def own_end(ports: FailedPorts, ends: Collection[int]) -> int | None:
    """The one end of a link whose own port failed; None when none or both did."""
    found = [rank for rank in ends if rank in ports]
    return found[0] if len(found) == 1 else None
