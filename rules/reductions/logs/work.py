"""What the one rank did, by its log, while all others waited for it: it counted on, or its process was blocked in the kernel.

That a rank wrote something says little: the main process writes in every sound job. It shows where the others are known to wait
in one operation of a group that holds the rank, the rank gave up on nothing itself, and its lines come after the first of them
had given up, or are those of a loop that holds no such operation and is not at its end.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.positions import Communicator, LoggedPositions
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.files_apart import GaveUp, counted_on
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.positions import as_communicator

_WAITS = """
SELECT source_id, rank, kind, subject, text, locator, path FROM logged_event
WHERE kind IN ('watchdog_timeout', 'store_timeout') AND NOT after_cancel ORDER BY path, locator
"""
_ENDS = "SELECT min(locator) FROM log_events WHERE kind IN ('signal_sent', 'process_exit') AND source_id = ? AND locator > ?"
_BLOCKED = """
SELECT text, source FROM logged_event
WHERE kind = 'task_blocked' AND rank = ? AND NOT after_cancel ORDER BY path, locator DESC LIMIT 1
"""
_PROMPT = """
SELECT e.text, e.source, e.rank FROM logged_event e
WHERE e.kind = 'debugger_prompt' AND (e.rank = ? OR e.rank IS NULL) AND e.source_id = ? AND NOT e.after_cancel AND NOT EXISTS (
    SELECT 1 FROM log_progress p
    WHERE p.source_id = e.source_id AND p.locator > e.locator AND (p.rank = e.rank OR p.rank IS NULL OR e.rank IS NULL)
)
ORDER BY e.rank, e.locator DESC LIMIT 1
"""
_GROUPS = """
SELECT count(*) FILTER (communicator <> '0' AND communicator NOT LIKE '%:default_pg'), count(*)
FROM log_positions WHERE origin = 'watchdog'
"""
_POINTS = """
SELECT rank, series, part, total, locator, step, at_s, clock, text FROM log_progress
WHERE source_id = ? AND (rank = ? OR rank IS NULL)
ORDER BY series, part, locator, step
"""
_OTHERS = """
SELECT count(*) FROM log_progress WHERE source_id = ? AND rank IS NOT NULL AND rank <> ? AND locator > ? AND locator < ?
"""
_PEERS = """
SELECT rank, at_s, series FROM log_progress
WHERE source_id = ? AND rank IN (SELECT unnest(?::INTEGER[])) AND clock = 'line' AND at_s IS NOT NULL
ORDER BY rank, at_s, locator
"""
_NUMBER = re.compile(r"(?P<kind>\w*) ?seq=(?P<number>\d*)")
_WITHIN = re.compile(r"\[Rank (\d{1,7})\]")
_LENGTH = re.compile(r"(?:ran for|timeout after) (\d{1,12}) ?m")
_POINT_TO_POINT = frozenset({"send", "recv", "coalesced", "recvanysource"})
_LEAST_BEFORE = 2
_LEAST_SHARE = 0.5

_Series = tuple[int | None, str, int, int | None]
"""Rank, name, part and total of a series of lines that count on."""
_Point = tuple[int, int, float | None, str | None, str]
"""Line, step, time, the clock of that, and the text."""


@dataclass(frozen=True, slots=True)
class PeersWait:
    """All ranks but `rank` gave up on one operation of all: `number` None where no line tells it, 0 before the first one.

    `first` is the line of the first of them in source `source_id`, `length_s` how long it had waited; `sure` says that the
    job's size is known, or follows from at least two of them. `apart` has all of them where each rank has a file of its own.
    """

    rank: int
    waiting: tuple[int, ...]
    kind: str
    number: int | None
    length_s: float | None
    source_id: int
    path: str
    first: int
    sure: bool
    apart: GaveUp = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Work:
    """What it did: its last line, and by what that is known to lie within the wait; `is_own` says that the line names it."""

    wait: PeersWait
    text: str
    source: str
    why: str
    is_own: bool
    is_blocked: bool = False


@dataclass(frozen=True, slots=True)
class WorkInLogs:
    """The work of the one rank that others wait for; None where the logs do not tell."""

    found: Work | None = None

    def __bool__(self) -> bool:
        return self.found is not None


@reduction
def work_in_logs(connection: DuckDBPyConnection, logged: Logged) -> WorkInLogs:
    """Find it, by the one log in which all of them gave up, or by the logs of each."""
    wait = _wait(connection, logged)
    if wait is None:
        return WorkInLogs()
    readers = (_blocked, _debugged, _apart if wait.apart else _counted)
    return WorkInLogs(next((found for reader in readers if (found := reader(connection, wait))), None))


@reduction
def logged_positions(logged: Logged, work: WorkInLogs) -> LoggedPositions:
    """Where each rank stands by the numbers in its log; a rank that is at work belongs to the group that waits for it."""
    groups = [as_communicator(group) for group in logged.groups]
    if work.found is not None:
        rank = work.found.wait.rank
        groups = [_with(group, rank) if known.world else group for group, known in zip(groups, logged.groups, strict=True)]
    return LoggedPositions((*groups, *logged.reports))


def _with(group: Communicator, rank: int) -> Communicator:
    members = tuple(sorted({*group.members, rank}))
    return replace(group, members=members, size=max(group.size or 0, len(members)))


def _wait(connection: DuckDBPyConnection, logged: Logged) -> PeersWait | None:
    rows = rows_of(connection, "log_events", _WAITS, kinds=("watchdog_timeout", "store_timeout"))
    gave_up: dict[int, tuple[int, int, str]] = {}
    operations: set[tuple[str, int | None]] = set()
    for source_id, rank, kind, subject, text, line, _ in rows:
        if rank is None or ((within := _WITHIN.findall(text)) and int(within[-1]) != rank):
            return None
        if rank not in gave_up:
            gave_up[rank] = source_id, line, text
            operations.add(_operation(kind, subject or ""))
    sources = {row[0] for row in rows}
    is_apart = len(sources) == len(gave_up) > 1 and {each[0] for each in gave_up.values()} == sources
    if not (len(sources) == 1 or is_apart) or len(operations) != 1:
        return None
    others, named = connection.execute(_GROUPS).fetchall()[0]
    if others:
        return None
    ((kind, number),) = operations
    size = logged.world_size or max([*logged.ranks, *gave_up]) + 1
    missing = sorted(set(range(size)) - gave_up.keys())
    # A gap in the numbers of a group is a member of it; the last one may be outside.
    if len(missing) != 1 or kind in _POINT_TO_POINT or (missing[0] > max(gave_up) and not named):
        return None
    lengths = [int(said[1]) / 1000 for _, _, text in gave_up.values() if (said := _LENGTH.search(text))]
    return PeersWait(
        rank=missing[0],
        waiting=tuple(sorted(gave_up)),
        kind=kind,
        number=number,
        length_s=min(lengths, default=None),
        source_id=rows[0][0],
        path=rows[0][6],
        first=rows[0][5],
        sure=logged.world_size is not None or len(gave_up) > 1,
        apart=gave_up if is_apart else {},
    )


def _operation(kind: str, subject: str) -> tuple[str, int | None]:
    """Kind and number of what a rank gave up on; a key of the store stands for what comes before the first number."""
    if kind == "store_timeout":
        return f"store {subject.partition(' after ')[0]}", 0
    said = _NUMBER.search(subject)
    return ((said["kind"].lower(), int(said["number"]) if said["number"] else None)) if said else ("", None)


def _blocked(connection: DuckDBPyConnection, wait: PeersWait) -> Work | None:
    found = rows_of(connection, "log_events", _BLOCKED, [wait.rank], kinds=("task_blocked",))
    if not found:
        return None
    text, source = found[0]
    return Work(wait, text.strip(), source, "the kernel reports its process as blocked", is_own=True, is_blocked=True)


def _debugged(connection: DuckDBPyConnection, wait: PeersWait) -> Work | None:
    """The prompt of a debugger below which nothing was counted: whoever asks for a command waits for somebody at a terminal."""
    found = rows_of(connection, "log_events", _PROMPT, [wait.rank, wait.source_id], kinds=("debugger_prompt",))
    if not found or (found[0][2] is None and not wait.sure):
        return None
    ((text, source, rank),) = found
    return Work(wait, text.strip(), source, "a debugger waits for a command", rank is not None, is_blocked=True)


def _apart(connection: DuckDBPyConnection, wait: PeersWait) -> Work | None:
    found = counted_on(connection, wait.rank, wait.apart)
    return Work(wait, *found, is_own=True) if found is not None else None


def _counted(connection: DuckDBPyConnection, wait: PeersWait) -> Work | None:
    end = connection.execute(_ENDS, [wait.source_id, wait.first]).fetchall()[0][0] or 1 << 62
    if connection.execute(_OTHERS, [wait.source_id, wait.rank, wait.first, end]).fetchall()[0][0]:
        return None
    parts: dict[_Series, list[_Point]] = defaultdict(list)
    for rank, series, part, total, *point in connection.execute(_POINTS, [wait.source_id, wait.rank]).fetchall():
        if point[0] < end:
            parts[rank, series, part, total].append(tuple(point))
    found = _latest(wait, parts) or _outlasting(connection, wait, parts)
    if found is None:
        return None
    (rank, _, _, _), points, why = found
    line, _, _, _, text = points[-1]
    is_own = rank is not None
    return Work(wait, text, f"{wait.path}#line={line}", why, is_own) if is_own or wait.sure else None


def _latest(wait: PeersWait, parts: Mapping[_Series, Sequence[_Point]]) -> tuple[_Series, Sequence[_Point], str] | None:
    """The newest series, if it shows that the rank was at it while the others waited."""
    if not parts:
        return None
    key, points = max(parts.items(), key=lambda item: item[1][-1][0])
    before = [point for point in points if point[0] <= wait.first]
    if len(before) >= _LEAST_BEFORE and len(before) < len(points):
        return key, points, "written after the first peer had given up"
    total, (_, step, at_s, clock, _) = key[3], points[-1]
    unfinished = total is not None and step < total
    lasting = clock == "bar" and at_s is not None and wait.length_s is not None and at_s >= _LEAST_SHARE * wait.length_s
    # A loop that went round more often than there were operations holds none of them.
    if unfinished and lasting and wait.number is not None and wait.number < len(points):
        return key, points, f"this loop of {total} holds no such operation, ran for {at_s:.0f} s and is not at its end"
    return None


def _outlasting(
    connection: DuckDBPyConnection, wait: PeersWait, parts: Mapping[_Series, Sequence[_Point]]
) -> tuple[_Series, Sequence[_Point], str] | None:
    """Its newest series, if it went on with that when all peers, which counted on in step until then, had stopped.

    That one is other work than theirs: peers that are behind in one loop may print later.
    """
    peers: dict[int, list[tuple[float, str]]] = defaultdict(list)
    rows = connection.execute(_PEERS, [wait.source_id, list(wait.waiting)]).fetchall()
    for rank, at_s, series in rows:
        peers[rank].append((at_s, series.partition(" ")[2]))
    own = {key: points for key, points in parts.items() if key[0] == wait.rank and points[-1][3] == "line"}
    if peers.keys() != set(wait.waiting) or not own:
        return None
    key, points = max(own.items(), key=lambda item: item[1][-1][0])
    last = max(times[-1][0] for times in peers.values())
    pause = max((after - before for times in peers.values() for (before, _), (after, _) in pairwise(times)), default=None)
    beyond = [at for _, _, at, _, _ in points if at is not None and at > last]
    is_theirs = key[1].partition(" ")[2] in {times[-1][1] for times in peers.values()}
    if pause is None or is_theirs or len(beyond) < _LEAST_BEFORE or beyond[-1] - last <= pause:
        return None
    return key, points, f"it counted on for {beyond[-1] - last:.0f} s after the last line of any peer"
