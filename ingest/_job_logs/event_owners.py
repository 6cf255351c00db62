"""Which rank an event is of in whose line none stands, once the whole file was read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forensics.ingest._job_logs import device_tables
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.identities import Identities
from forensics.ingest._job_logs.nccl_lines import NcclLines

LAUNCHER = "launcher"
"""Label of what a launcher says: it is of none of the ranks of the file."""
_OF_NODES = ("node_failed", "node_suspected", "launch_failed", "node_expelled", "task_killed", "pod_killed")
"""What is said of a node, or of a number on it, is of none of the processes that may have written it down."""


@dataclass(frozen=True, slots=True)
class EventOwners:
    """What a file tells of its processes: `ranks` by label, `own` of the file itself, `world` where it is of one node."""

    ranks: Mapping[str, int]
    own: int | None
    identities: Identities
    devices: device_tables.DeviceTables
    nccl: NcclLines
    events: Events
    world: int | None

    def rank(self, label: str | None, kind: str, subject: str | None, host: str | None) -> int | None:
        """The rank; the kernel speaks of any process of the host."""
        if kind in _OF_NODES:
            return None
        if label is not None and label in self.ranks:
            return self.ranks[label]
        if kind == "xid":
            return self._of_device(subject or "", host)
        if kind == "oom_kill":
            return self.identities.ended(f"pid={subject}")
        ended = self.identities.ended(subject) if kind in ("process_exit", "task_blocked") else None
        return self.own if ended is None and label != LAUNCHER and kind != "task_blocked" else ended

    def _of_device(self, subject: str, host: str | None) -> int | None:
        """The rank of the process that uses a device, as NCCL says or a table of the devices of the node."""
        address = device_tables.bus_address(subject)
        rank = self.identities.faulted(subject, self.nccl.device(address, host))
        place = self.devices.number(address)
        if rank is not None or place is None:
            return rank
        if len(self.events.hosts_of("xid")) > 1:
            return None
        return self.identities.by_device(subject, *place, self.world, self.events.stated_ranks)
