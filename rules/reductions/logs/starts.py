"""Communicators whose init some members never began or completed, by the `Init START` and `Init COMPLETE` lines of NCCL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.positions import LoggedGroup


@dataclass(frozen=True, slots=True)
class Unstarted:
    """Ranks that hold up an init: they began it (`began`) or did not; `peers` got further.

    `certain` is set when their own logs are here.
    """

    group: LoggedGroup
    ranks: tuple[int, ...]
    peers: tuple[int, ...]
    began: bool
    certain: bool


def unstarted(logged: Logged) -> Iterator[Unstarted]:
    """Inits that a minority holds up, in the order of the groups.

    Where all began and nobody completed, nobody can be distinguished; a process whose rank is unknown may be any that did not
    begin. A log that ends before the init does may be cut: it says so of a job of which something shows that it stopped. Where
    one that began has completed calls in as large a group since, lines of its log are missing.
    """
    stopped = logged.stalled or logged.timed_out or logged.cancels or logged.exits or logged.losses
    worked = {(rank, g.size) for g in logged.groups for rank, row in g.positions.items() if (row.completed or 0) > 0}
    for group in logged.groups:
        if group.origin != "nccl" or any((rank, group.size) in worked for rank in group.positions):
            continue
        began = tuple(rank for rank, row in group.positions.items() if row.init == "started")
        complete = tuple(rank for rank, row in group.positions.items() if row.init not in ("started", None))
        missing = tuple(rank for rank in group.members if rank not in group.positions)
        if stopped and complete and 0 < len(began) < len(complete):
            yield Unstarted(group, began, complete, True, True)
        elif began and not complete and 0 < len(missing) < len(began) and not logged.unplaced:
            yield Unstarted(group, missing, began, False, all(rank in logged.ranks for rank in missing))
