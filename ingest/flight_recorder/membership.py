"""The rank that a dump implies without stating it: the only one that is a member of every group it communicated in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from forensics.ingest.flight_recorder.calls import Group, parsed_name
from forensics.ingest.flight_recorder.entries import Coded, Entries, combined

_TRANSFERS = ("send", "recv")


def implied_rank(views: Mapping[str, Sequence[object]], entries: Entries, groups: Coded[Group]) -> int | None:
    """The rank that memberships leave, or None where they leave several or contradict each other.

    A process communicates only in groups that it is a member of, and a transfer names its own number in the group first:
    `nccl:send 0->1` is of the group's first member (ProcessGroupNCCL::send, torch 2.13). `views` are columns of
    `group_views`; groups of unknown members say nothing.
    """
    members = {name: found for name, found in zip(views["pg_name"], views["members"], strict=True) if isinstance(found, tuple)}
    known = [members[name] for _, name, _ in groups.values if name in members]
    left = set(known[0]).intersection(*known[1:]) if known else set()
    if len(left) > 1:
        left &= set(_senders(members, entries, groups)) or left
    return left.pop() if len(left) == 1 else None


def _senders(members: Mapping[object, tuple[int, ...]], entries: Entries, groups: Coded[Group]) -> Iterable[int]:
    """The members that transfers name as their own end."""
    for (_, name, _), (_, kind, own, _) in combined(groups, entries.coded("profiling_name", parsed_name)).values:
        ranks = members.get(name, ())
        if kind in _TRANSFERS and own is not None and own < len(ranks):
            yield ranks[own]
