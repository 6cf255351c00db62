"""Ranks whose own NIC said that its port failed: what shows the two ends of a dead link apart."""

from __future__ import annotations

from collections.abc import Collection
from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.log_evidence import Logged

Ranks = tuple[int, ...]

FailedPorts = NewType("FailedPorts", dict[int, str])
"""Line of the log by rank, for ranks under which a port of their own host failed."""


@reduction
def failed_ports(heard: Logged) -> FailedPorts:
    """What NCCL logged of its own ports; NCCL writes such a line only in the process that uses the device."""
    return FailedPorts({fault.rank: fault.text for fault in reversed(heard.nic_faults) if fault.rank is not None})


def own_end(ports: FailedPorts, ends: Collection[Ranks]) -> Ranks | None:
    """The one end of a link, of ranks that have a NIC together, of which one's port failed; None when none or both did."""
    found = [ranks for ranks in ends if any(rank in ports for rank in ranks)]
    return found[0] if len(found) == 1 else None
