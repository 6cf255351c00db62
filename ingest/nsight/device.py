"""What the devices of an Nsight export did: kernels and copies by process, with the runtime call that launched each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from forensics.ingest._shared.collective_kernels import kind_of_call, kind_of_kernel, moves_data
from forensics.ingest._shared.device_work import DeviceWork, holding, partners
from forensics.ingest._shared.trace_steps import Mark
from forensics.ingest.nsight.tables import Export, Integers

_WORK = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")
_PID, _TID = 24, 0xFFFFFF


class Launched(NamedTuple):
    """Device work in columns: ns since the session began, -1 for what is not known; `name` is a number of StringIds."""

    begin: Integers
    end: Integers
    name: Integers
    stream: Integers
    process: Integers
    launched: Integers
    thread: Integers

    def of(self, chosen: Any) -> Launched:
        """Some of the rows."""
        return Launched(*(column[chosen] for column in self))


def device_work(export: Export) -> Launched:
    """All work of all devices. A correlation id counts within a process."""
    tables = [export.integers(name, "start", "end", "shortName", "streamId", "globalPid", "correlationId") for name in _WORK]
    begin, end, name, stream, owner, correlation = (np.concatenate(parts) for parts in zip(*tables, strict=True))
    called, thread, number = export.integers("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "globalTid", "correlationId")
    process = (owner >> _PID) & _TID
    # Both numbers as one: ids are any 32-bit numbers. A missing one (-1) of either side has no partner.
    wanted = np.where(correlation >= 0, (process << 32) + correlation, -2)
    place = partners(wanted, (((thread >> _PID) & _TID) << 32) + number)
    known = place >= 0
    launched = np.where(known, called[place], -1) if len(called) else np.full(len(begin), -1, dtype=np.int64)
    by = np.where(known, thread[place] & _TID, -1) if len(called) else launched
    return Launched(begin, end, name, stream, process, launched, by).of((begin >= 0) & (end >= begin) & (owner >= 0))


def is_collective(work: Launched, strings: Mapping[Any, Any]) -> Any:
    """Which pieces of work are kernels of a communication library."""
    numbers = [number for number, name in strings.items() if isinstance(name, str) and moves_data(name)]
    return np.isin(work.name, np.array(numbers, dtype=np.int64))


def busy(work: Launched, epoch: int) -> DeviceWork | None:
    """Work of one process of which the launch is known; None when there is none."""
    known = work.of(work.launched >= 0)
    return DeviceWork(known.launched + epoch, known.begin + epoch, known.end + epoch) if len(known.begin) else None


def operations(work: Launched, calls: Sequence[Mark], strings: Mapping[Any, Any], epoch: int) -> dict[str, list[Any]]:
    """Collective kernels of one process, with the call of the library around the launch of each where NCCL marked it."""
    work = work.of(np.argsort(work.begin, kind="stable"))
    around = _enclosing(work, calls, epoch)
    kinds = [
        (kind_of_call(call.name) if call else None) or kind_of_kernel(str(strings[name]))
        for name, call in zip(work.name.tolist(), around, strict=True)
    ]
    return {
        "locator": list(range(len(kinds))),
        "kind": kinds,
        "backend": ["nccl"] * len(kinds),
        "is_p2p": [kind in ("send", "recv") for kind in kinds],
        "stream": work.stream.tolist(),
        "entered_ns": [call.begin if call else None for call in around],
        "returned_ns": [call.end if call else None for call in around],
        "device_start_ns": (work.begin + epoch).tolist(),
        "device_end_ns": (work.end + epoch).tolist(),
        "duration_ns": (work.end - work.begin).tolist(),
        "state": ["done"] * len(kinds),
    }


def _enclosing(work: Launched, calls: Sequence[Mark], epoch: int) -> list[Mark | None]:
    """The call in which each kernel was launched, on the same thread."""
    found: list[Mark | None] = [None] * len(work.begin)
    for thread in {call.thread for call in calls}:
        own = sorted(call for call in calls if call.thread == thread)
        mine = np.flatnonzero(work.thread == int(thread))
        begins, ends = (np.array(column, dtype=np.int64) for column in zip(*((c.begin, c.end) for c in own), strict=True))
        places = holding(work.launched[mine] + epoch, begins, ends)
        for row, place in zip(mine.tolist(), places.tolist(), strict=True):
            found[row] = own[place] if place >= 0 else None
    return found
