"""The one rank that did not give up, or gave up elsewhere: all others raised in one call of the program that their own wait had
lasted too long.

gloo says neither which group nor which call it was; the tracebacks do. A rank that came late to such a call finds its
connections closed and raises that, and one that waits elsewhere gives up there, or loses those that did before it: only the
rank that waits for nobody is silent, and has to be ended by its launcher. So it is with a key of the store that one rank has to
set. Upstream:
`UnboundBuffer::waitRecv` of gloo/transport/tcp/unbound_buffer.cc, `TCPStore::wait` of torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position
from forensics.rules.reductions.logs.process_exit import ENDED_BY_LAUNCHER, Exit
from forensics.rules.reductions.logs.reports import GAVE_UP

_LEAST = 2
"""Ranks that gave up, where one is missing: of two ranks each lacks the other."""
_RAISED = """
SELECT e.rank, e.text, e.source, t.text FROM logged_event e
LEFT JOIN log_events t ON t.kind = 'traceback' AND (t.source_id, t.locator, t.rank) = (e.source_id, e.locator, e.rank)
WHERE e.kind = 'exception' AND e.rank IS NOT NULL AND NOT e.after_cancel ORDER BY e.path, e.locator
"""
# What ends a wait by its own clock; that a connection was closed tells of a peer.
_OWN_CLOCK = re.compile(
    r"Timed out waiting \d{1,12}ms for \w+ operation|Application timeout caused pair closure|"
    r"wait timeout after \d{4,12}ms, keys: "
)
# One that waited as well, and lost a peer which gave up first.
_LOST_PEER = re.compile(r"Connection (?:closed|reset) by peer")
_FRAME = re.compile(r'File "(?P<path>[^"\n]+)", line (?P<line>\d{1,9}), in (?P<function>[^\n]+)')
_OF_TORCH = "/torch/distributed/distributed_c10d.py"
_INSTALLED = ("/site-packages/", "/dist-packages/", "/lib/python")
_BETWEEN_TWO = re.compile(r"(?:batch_)?i?(?:send|recv)\w*")


_BESIDE = """
SELECT DISTINCT rank FROM (SELECT rank, source_id FROM log_events UNION ALL SELECT rank, source_id FROM log_progress)
WHERE rank IS NOT NULL AND source_id IN (SELECT source_id FROM log_events WHERE kind IN ('transfer_timeout', 'store_timeout'))
"""


@dataclass(frozen=True, slots=True)
class _Raised:
    rank: int
    text: str
    source: str
    frames: str | None


def gave_up(
    connection: DuckDBPyConnection,
    ranks: Collection[int],
    ends: Sequence[Exit],
    of_the_run: frozenset[int],
    world_size: int | None,
) -> Iterator[Communicator]:
    """The call as one operation that one rank is missing in, and where that rank gave up too the one that it alone came to.

    None where any rank raised something else, or two of them elsewhere. `ranks` are those that the logs speak of, `ends` how
    launchers saw them end, `of_the_run` those without a timeout whose own log is of the same run.
    """
    raised: dict[int, _Raised] = {}
    for row in rows_of(connection, "log_events", _RAISED, kinds=("exception",)):
        raised.setdefault(row[0], _Raised(*row))
    missing = {*range(world_size or 0), *ranks, *range(max(raised, default=-1))} - raised.keys()
    heard = of_the_run.union((end.rank for end in ends), _beside(connection))
    heard -= {end.rank for end in ends if end.code not in ENDED_BY_LAUNCHER}
    if not missing:
        yield from _elsewhere(raised)
    elif len(missing) == 1 and missing <= heard:
        yield from _silent(min(missing), raised)


def _silent(rank: int, raised: Mapping[int, _Raised]) -> Iterator[Communicator]:
    """What all ranks but one, which said nothing, gave up waiting in."""
    places = {_place(each.frames) for each in raised.values()}
    place = next(iter(places)) if len(places) == 1 else None
    if place is not None and len(raised) >= _LEAST and all(_OWN_CLOCK.search(each.text) for each in raised.values()):
        yield _operation((rank,), raised, *place)


def _elsewhere(raised: Mapping[int, _Raised]) -> Iterator[Communicator]:
    """Both calls, where one rank gave up in another one than all others: each waits for who is in the other."""
    waited = all(_OWN_CLOCK.search(each.text) or _LOST_PEER.search(each.text) for each in raised.values())
    places = {rank: _place(each.frames) for rank, each in raised.items()}
    camps = Counter(places.values())
    if not waited or None in camps or sorted(camps.values())[:-1] != [1] or len(raised) <= _LEAST:
        return
    if any(_OWN_CLOCK.search(each.text) for each in raised.values()):
        for place in filter(None, camps):
            inside = {rank: raised[rank] for rank in raised if places[rank] == place}
            yield _operation(raised.keys() - inside.keys(), inside, *place)


def places_of_errors(connection: DuckDBPyConnection) -> dict[int, str]:
    """Where the program of each rank was when it raised first, by its traceback: `train.py:44`."""
    found: dict[int, str] = {}
    for rank, _, _, frames in rows_of(connection, "log_events", _RAISED, kinds=("exception",)):
        if rank not in found and (place := _place(frames)):
            found[rank] = place[1]
    return found


def _beside(connection: DuckDBPyConnection) -> frozenset[int]:
    """Ranks that speak in a log in which others gave up."""
    return frozenset(rank for (rank,) in rows_of(connection, "log_events", _BESIDE))


def _place(frames: str | None) -> tuple[str, str] | None:
    """What was called, and where the program did; nothing of a message between two ranks, which tells of no third one."""
    found = list(_FRAME.finditer(frames or ""))
    of_program = [frame for frame in found if not any(folder in frame["path"] for folder in _INSTALLED)]
    called = [frame["function"] for frame in found if _OF_TORCH in frame["path"]]
    if not of_program or any(_BETWEEN_TWO.fullmatch(function) for function in called):
        return None
    innermost = of_program[-1]
    return called[-1] if called else "communication", f"{innermost['path'].rpartition('/')[2]}:{innermost['line']}"


def _operation(missing: Collection[int], raised: Mapping[int, _Raised], kind: str, place: str) -> Communicator:
    found = {rank: Position(rank, 0, 0, None, None, Family.LOG) for rank in missing}
    for rank, each in raised.items():
        found[rank] = Position(rank, 1, 0, 1, Operation(kind, "", None, None, each.source), Family.LOG, each.source)
    members = tuple(sorted(found))
    return Communicator(place, members, "read", found, "gloo", size=len(members), unit=GAVE_UP, overdue=True)
