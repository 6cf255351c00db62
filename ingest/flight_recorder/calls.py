"""What tells of each entry of a dump whose call it is, and whether it is over: by all entries, whatever is kept of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from forensics.ingest.flight_recorder.batches import batches, ends_of_messages, states_of_batches
from forensics.ingest.flight_recorder.entries import Coded, Codes, Entries, Flags, Numbers, combined

Group = tuple[int | None, str | None, str | None]
"""Number in the process, name and description of an entry's process group."""
Name = tuple[str | None, str, int | None, int | None]
"""Backend, kind, own number in the group and the peer's."""

_NAME = re.compile(r"(?:(?P<backend>\w+):)?(?P<kind>\S+)(?:\s+(?P<own>\d{1,9})(?:->|<-)(?P<peer>\d{1,9}))?")
_POINT_TO_POINT = frozenset({"send", "recv", "recvAnySource", "recv_any_source", "isend", "irecv"})
# Of the entries of a dump, what must be left out at least: less saves nothing, and a history that is whole shows more.
_LEAST_UNREAD = 0.5


@dataclass(frozen=True, slots=True)
class Calls:
    """Columns of the entries: process group, parsed name, times (ns), numbers, and the state.

    Entries of one value of `batch` are of one group call where `in_batch` says that the entry shares it.
    """

    groups: Coded[Group]
    names: Coded[Name]
    created: Numbers
    started: Numbers
    ended: Numbers
    is_p2p: Numbers
    sequence: Numbers
    batch: Codes
    in_batch: Flags
    states: Coded[str]

    def since(self, place: int) -> Calls:
        """Those of the entries from a place on."""
        return Calls(
            self.groups.since(place),
            self.names.since(place),
            self.created.since(place),
            self.started.since(place),
            self.ended.since(place),
            self.is_p2p.since(place),
            self.sequence.since(place),
            self.batch[place:],
            self.in_batch[place:],
            self.states.since(place),
        )

    def begin(self, newest_ns: int) -> int:
        """The first place of the entries of so many ns before the newest one, 0 where that leaves out too little of them.

        From there on are all calls that are not over, the last one of each group, and group calls whole.
        """
        count = len(self.states.codes)
        if not count or not self.created.known.all():
            return 0
        late = self.created.data >= int(self.created.data.max()) - newest_ns
        done = np.array([state == "done" for state in self.states.values], dtype=np.bool_)[self.states.codes]
        _, from_end = np.unique(self.groups.codes[::-1], return_index=True)
        place = min(int(late.argmax()), int(np.append(done, False).argmin()), count - 1 - int(from_end.max()))
        if self.in_batch[place]:
            place = int((self.batch == self.batch[place]).argmax())
        return place if place >= _LEAST_UNREAD * count else 0


def calls_of(entries: Entries) -> Calls:
    """The calls that the entries are of."""
    names = entries.coded("profiling_name", parsed_name)
    kinds, groups = names.mapped(lambda name: name[1]), process_groups(entries)
    started, ended = _times(entries, "time_discovered_started_ns"), _times(entries, "time_discovered_completed_ns")
    is_p2p = _is_point_to_point(entries, kinds, groups.codes)
    sequence = _sequence(entries, is_p2p)
    batch, in_batch = batches(kinds, groups.mapped(lambda group: group[0]), is_p2p, sequence)
    states = states_of_batches(_states(entries, names.mapped(lambda name: name[0]), started, ended), kinds, batch, in_batch)
    return Calls(groups, names, _created(entries), started, ended, is_p2p, sequence, batch, in_batch, states)


def process_groups(entries: Entries) -> Coded[Group]:
    """The process group of each entry; its name is in every schema, with the description in a tuple or a list."""
    pairs = combined(entries.integers("pg_id").coded(), entries.coded("process_group", _group_name))
    return pairs.mapped(lambda pair: (pair[0], *pair[1]))


def _group_name(pair: Any) -> tuple[str | None, str | None]:
    if isinstance(pair, (tuple, list)) and len(pair) == 2 and type(pair[0]) is str and type(pair[1]) is str:
        return pair[0], pair[1]
    return None, None


def _times(entries: Entries, key: str) -> Numbers:
    """Times where 0 and None both mean that the event was not seen."""
    times = entries.integers(key)
    return times.where(times.data > 0)


def _created(entries: Entries) -> Numbers:
    """Creation times; the earliest schemas wrote microseconds."""
    if entries.has("time_created_ns"):
        return _times(entries, "time_created_ns")
    micros = _times(entries, "time_created_us")
    micros = micros.where(micros.data < (1 << 63) // 1000)
    return Numbers(np.where(micros.known, micros.data, 0) * 1000, micros.known)


def parsed_name(name: str) -> tuple[str | None, str, int | None, int | None]:
    """Backend, kind, own number in the group and the peer's, from `<backend>:<op>[ own->peer | own<-peer]`."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None, name, None, None
    own, peer = (int(match[end]) if match[end] else None for end in ("own", "peer"))
    return match["backend"], match["kind"], own, peer


def _is_point_to_point(entries: Entries, kinds: Coded[str], groups: Codes) -> Numbers:
    """What the entry says, else what its kind says; the end of a batch of messages is one of them, whatever it says."""
    flags = entries.flags("is_p2p")
    by_kind = np.array([kind in _POINT_TO_POINT for kind in kinds.values], dtype=np.bool_)[kinds.codes]
    data = np.where(flags.known, flags.data.astype(np.bool_), by_kind)
    ends = ~data & np.array([kind == "coalesced" for kind in kinds.values], dtype=np.bool_)[kinds.codes]
    if ends.any():
        data = data | ends_of_messages(entries, groups, data, ends)
    return Numbers(data, np.ones(entries.count, dtype=np.bool_))


def _sequence(entries: Entries, is_p2p: Numbers) -> Numbers:
    """The sequence number that counts for the operation: that of its kind, collective or point to point."""
    collective = entries.integers("collective_seq_id", "seq_id")
    if not is_p2p.data.any():
        return collective
    own = entries.integers("p2p_seq_id", "seq_id")
    data = np.where(is_p2p.data, own.data, collective.data)
    return Numbers(data, np.where(is_p2p.data, own.known, collective.known))


def _state(value: Any) -> str | None:
    return value if type(value) is str else None


def _states(entries: Entries, backends: Coded[str | None], started: Numbers, ended: Numbers) -> Coded[str]:
    """pending, started or done.

    A backend without any event in the whole dump, as gloo, never leaves `scheduled`: its `retired` says done (or failed).
    """
    retired = entries.flags("retired")
    seen = combined(
        backends,
        entries.coded("state", _state),
        Coded(started.known.astype(np.int64), (False, True)),
        Coded(ended.known.astype(np.int64), (False, True)),
        Coded((retired.data.astype(np.bool_) & retired.known).astype(np.int64), (False, True)),
    )
    events = ("started", "completed")
    with_events = {backend for backend, state, start, end, _ in seen.values if start or end or state in events}
    states = []
    for backend, state, _, end, is_retired in seen.values:
        is_done = state == "completed" or end or (is_retired and backend not in with_events)
        states.append("done" if is_done else "started" if state == "started" else "pending")
    return Coded(seen.codes, states)
