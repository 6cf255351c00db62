"""A training job on paper: who issued which call and when, and the Flight Recorder dump that each rank would have written.

The job knows nothing of faults: a test lets some ranks issue a call and others not, and dumps what that leaves behind.
"""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

START_NS = 1_790_000_000_000_000_000
MILLISECOND = 1_000_000
SECOND = 1_000_000_000

Frame = tuple[str, str, int]
"""Function, file and line."""
Shapes = tuple[tuple[int, ...], ...]

GRADIENTS: Shapes = ((4096,),)
MAIN_THREAD = "python 139992571607936"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as the job names it."""

    name: str
    description: str
    members: tuple[int, ...]
    backend: str


@dataclass(frozen=True, slots=True)
class Call:
    """One call of one rank; `sequence` counts collectives or point-to-point calls of the group, `operation` counts both."""

    group: Group
    kind: str
    sequence: int
    operation: int
    record: int
    time_ns: int
    done_ns: int | None
    shapes: Shapes = GRADIENTS
    dtype: str = "Float"
    frames: tuple[Frame, ...] = ()
    started_ns: int | None = None
    thread: str = MAIN_THREAD

    @property
    def is_p2p(self) -> bool:
        return self.kind.startswith(("send", "recv"))

    @property
    def is_recorded(self) -> bool:
        """gloo counts its sends and receives and records none."""
        return not (self.is_p2p and self.group.backend == "gloo")


@dataclass(slots=True)
class Job:
    """Ranks with a clock each; a call advances the clocks of those that issue it, a finished collective levels them."""

    world: int
    backend: str = "gloo"
    pace_ns: int = 10 * MILLISECOND
    groups: list[Group] = field(default_factory=list)
    calls: dict[int, list[Call]] = field(default_factory=lambda: defaultdict(list))
    clocks: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clocks = [START_NS + rank * 37_000 for rank in range(self.world)]
        self.group(range(self.world), "default_pg")

    @property
    def everyone(self) -> Group:
        return self.groups[0]

    @property
    def now_ns(self) -> int:
        return max(self.clocks)

    def group(
        self, members: Iterable[int], description: str = "undefined", name: str | None = None, backend: str | None = None
    ) -> Group:
        found = Group(str(len(self.groups)) if name is None else name, description, tuple(members), backend or self.backend)
        self.groups.append(found)
        return found

    def call(
        self,
        group: Group,
        kind: str = "all_reduce",
        ranks: Collection[int] | None = None,
        *,
        done: bool = True,
        shapes: Shapes = GRADIENTS,
        dtype: str = "Float",
        frames: tuple[Frame, ...] = (),
        started: bool = False,
        thread: str = MAIN_THREAD,
    ) -> None:
        """Let `ranks` (default: all members) issue the next call of the group; `done` says whether it finished for them."""
        issuing = group.members if ranks is None else tuple(ranks)
        for rank in issuing:
            self.clocks[rank] += self.pace_ns + (rank * 7919) % 1000
        last = max((self.clocks[rank] for rank in issuing), default=0)
        for rank in issuing:
            own = [call for call in self.calls[rank] if call.group == group]
            is_p2p = kind.startswith(("send", "recv"))
            self.calls[rank].append(
                Call(
                    group=group,
                    kind=kind,
                    sequence=1 + sum(call.is_p2p == is_p2p for call in own),
                    operation=1 + len(own),
                    record=sum(call.is_recorded for call in self.calls[rank]),
                    time_ns=self.clocks[rank],
                    done_ns=last + MILLISECOND if done else None,
                    shapes=shapes,
                    dtype=dtype,
                    frames=frames,
                    started_ns=last if started else None,
                    thread=thread,
                )
            )
            if done:
                self.clocks[rank] = last + MILLISECOND

    def steps(self, count: int, group: Group | None = None) -> None:
        """Let everybody finish `count` gradient reductions."""
        for _ in range(count):
            self.call(group or self.everyone)

    def hang(self, absent: Collection[int], group: Group | None = None, kind: str = "all_reduce") -> None:
        """Let all members but `absent` issue a call that cannot finish."""
        chosen = group or self.everyone
        self.call(chosen, kind, [rank for rank in chosen.members if rank not in absent], done=False)

    def pause(self, ns: int) -> None:
        """Let time pass on all ranks."""
        self.clocks = [clock + ns for clock in self.clocks]

    def dump(
        self, rank: int, *, ring: int = 2000, only_active: bool = False, skew_ns: int = 0, status: bool = True
    ) -> dict[str, Any]:
        """The dump of one rank as the pickle holds it; `ring` is the size of its buffer, `skew_ns` the error of its clock."""
        mine = [group for group in self.groups if rank in group.members]
        recorded = [call for call in self.calls[rank] if call.is_recorded]
        kept = [call for call in recorded if not only_active or call.done_ns is None][-ring:]
        is_gloo = all(group.backend == "gloo" for group in mine)
        dump: dict[str, Any] = {
            "version": "2.10",
            "pg_config": _broken_config(mine) if is_gloo else _config(mine),
            "comm_lib_version": "" if is_gloo else "2.27.3",
            "pg_status": {str(i): self._status(rank, group) for i, group in enumerate(mine)} if status else {},
            "entries": [_entry(call, mine.index(call.group), skew_ns) for call in kept],
        }
        return dump

    def _status(self, rank: int, group: Group) -> dict[str, int]:
        own = [call for call in self.calls[rank] if call.group == group]
        counted = [call.operation if group.backend == "gloo" else call.sequence for call in own]
        done = [number for number, call in zip(counted, own, strict=True) if call.done_ns is not None]
        return {
            "last_enqueued_collective": max(counted, default=-1),
            "last_started_collective": -1,
            "last_completed_collective": max(done, default=-1),
        }


def _config(groups: Iterable[Group]) -> dict[str, dict[str, str]]:
    return {g.name: {"name": g.name, "desc": g.description, "ranks": str(list(g.members))} for g in groups}


def _broken_config(groups: Iterable[Group]) -> dict[str, dict[str, str]]:
    """What gloo reports: one nameless group, whose members are those of the first one."""
    return {"": {"name": "", "desc": "", "ranks": str(list(next(iter(groups)).members))}}


def _entry(call: Call, pg_id: int, skew_ns: int) -> dict[str, Any]:
    is_gloo = call.group.backend == "gloo"
    is_done = call.done_ns is not None
    state = "scheduled" if is_gloo or not (is_done or call.started_ns) else "completed" if is_done else "started"
    return {
        "frames": [{"name": name, "filename": file, "line": line} for name, file, line in call.frames],
        "record_id": call.record,
        "pg_id": pg_id,
        "process_group": (call.group.name, call.group.description),
        "thread_name": call.thread.split()[0],
        "thread_id": call.thread.split()[1],
        "collective_seq_id": 0 if call.is_p2p else call.sequence,
        "p2p_seq_id": call.sequence if call.is_p2p else 0,
        "op_id": call.operation,
        "profiling_name": f"{call.group.backend}:{call.kind}",
        "time_created_ns": call.time_ns + skew_ns,
        "input_sizes": [list(shape) for shape in call.shapes],
        "input_dtypes": [call.dtype] * len(call.shapes),
        "output_sizes": [list(shape) for shape in call.shapes],
        "output_dtypes": [call.dtype] * len(call.shapes),
        "state": state,
        "time_discovered_started_ns": None if is_gloo or call.started_ns is None else call.started_ns + skew_ns,
        "time_discovered_completed_ns": None if is_gloo or call.done_ns is None else call.done_ns + skew_ns,
        "retired": is_done,
        "timeout_ms": 1_800_000,
        "is_p2p": call.is_p2p,
    }


def as_pickle(dump: Mapping[str, Any]) -> bytes:
    """The dump as torch writes it to a file: protocol 2, nothing but plain data."""
    return pickle.dumps(dict(dump), protocol=2)


def as_json(dump: Mapping[str, Any]) -> bytes:
    """The dump as the worker server answers: no frames, counters as strings, times of 0, no `entries` when there are none."""
    entries = [_json_entry(entry) for entry in dump["entries"]]
    status = {key: {name: str(value) for name, value in row.items()} for key, row in dump["pg_status"].items()}
    document = {**dump, "pg_status": status, "nccl_comm_state": {}, "entries": entries}
    if not entries:
        del document["entries"]
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _json_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    times = {key: entry[key] or 0 for key in ("time_discovered_started_ns", "time_discovered_completed_ns")}
    kept = {key: value for key, value in entry.items() if key != "frames"}
    return {**kept, **times, "process_group": list(entry["process_group"])}
