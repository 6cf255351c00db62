"""How far each rank got in each communicator, as logs tell it: the numbers of watchdogs, and the calls and inits of NCCL.

The numbers of a watchdog are the collective sequence; NCCL's opCount counts launches of one communicator, so it compares
members with each other and with nothing else. Lines without a rank get one from the process that wrote them: in the
communicator of all ranks the number within the group is the global rank.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.case.gathered import LARGEST_WORLD as LARGEST
from forensics.model import Family
from forensics.rules.reductions.calls.positions import Communicator, Operation, Position


@dataclass(frozen=True, slots=True)
class LogPosition:
    """One row of `log_positions` with its rank and `path#line=N`."""

    rank: int | None
    process: tuple[str, int] | None
    group_rank: int | None
    size: int | None
    origin: str
    communicator: str
    init: str | None
    enqueued: int | None
    completed: int | None
    timed_out: int | None
    kind: str | None
    count: int | None
    is_p2p: bool
    time_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class LoggedGroup:
    """One communicator as logs show it, with one position for each rank that was heard.

    `size` is the number of members, at least, and `exact` says whether that is all of them. `world` is set when its members are
    the ranks of the job. `others` are members that something else than their logs tells of.
    """

    label: str
    origin: str
    positions: Mapping[int, LogPosition]
    size: int
    exact: bool
    world: bool
    others: frozenset[int] = frozenset()

    @property
    def members(self) -> tuple[int, ...]:
        """Global ranks of the members that are known."""
        return tuple(range(self.size)) if self.world and self.exact else tuple(sorted(self.others.union(self.positions)))


_LEAST_EVEN = 3
"""Members of a group that lie in even steps: any two do."""
_LEAST_HEARD = 7
"""Ranks that write for each one of a file that does not."""
# torchrun keeps the logs of each start of a job in a folder attempt_N; a new start counts from one again.
ATTEMPT = "try_cast(regexp_extract(path, '(?:^|/)attempt_([0-9]{1,6})/', 1) AS INTEGER)"
LATEST_ATTEMPT = f"source_id NOT IN (SELECT source_id FROM sources WHERE {ATTEMPT} < (SELECT max({ATTEMPT}) FROM sources))"
_ROWS = f"""
SELECT p.rank, p.host, p.pid, p.group_rank, p.size, p.origin, p.communicator, p.init, p.enqueued, p.completed, p.timed_out,
       p.kind, p.count, coalesce(p.is_p2p, false), p.time_ns, s.path || '#line=' || p.locator
FROM log_positions p JOIN sources s USING (source_id)
WHERE p.origin IN ('watchdog', 'nccl') AND p.communicator IS NOT NULL
    AND p.init IS DISTINCT FROM 'destroyed' AND coalesce(p.size, 2) > 1
    AND s.{LATEST_ATTEMPT}
ORDER BY p.origin, p.communicator, p.rank, s.path, p.locator
"""
_PROCESSES = "SELECT host, pid, min(rank) FROM ranks WHERE pid IS NOT NULL GROUP BY host, pid HAVING count(DISTINCT rank) = 1"


def logged_groups(
    connection: DuckDBPyConnection, world_size: int | None, seen: frozenset[int] = frozenset()
) -> tuple[LoggedGroup, ...]:
    """Read all groups that logs speak of, in order of origin and name; `world_size` is None when nothing tells it.

    `seen` are ranks that left something else than numbers.
    """
    rows = log_positions(connection, world_size)
    world = world_size or _world(rows)
    groups: dict[tuple[str, str], list[LogPosition]] = defaultdict(list)
    for row in rows:
        groups[row.origin, row.communicator].append(row)
    gave_up = frozenset(row.rank for row in rows if row.rank is not None and row.timed_out is not None)
    found = [_group(key, members, world, (seen, gave_up)) for key, members in sorted(groups.items())]
    return tuple(group for group in found if group is not None)


def log_positions(connection: DuckDBPyConnection, world_size: int | None) -> list[LogPosition]:
    """All rows of watchdogs and NCCL, with the ranks of the processes that wrote them, where that is known."""
    rows = _of_known_groups([_position(row) for row in rows_of(connection, "log_positions", _ROWS)])
    return _with_ranks(rows, {(host, pid): rank for host, pid, rank in rows_of(connection, "ranks", _PROCESSES)}, world_size)


def _position(row: Sequence[object]) -> LogPosition:
    rank, host, pid, *rest = row
    process = (str(host), int(str(pid))) if host is not None and pid is not None else None
    return LogPosition(rank, process, *rest)  # type: ignore[arg-type]


def _of_known_groups(rows: Sequence[LogPosition]) -> Sequence[LogPosition]:
    """Rows without those of watchdogs that name no group, where others tell of several: which of them is meant is not known.

    A log may be cut between the line that states the call and the one that states its group.
    """
    named = {row.communicator for row in rows if row.origin == "watchdog" and row.group_rank is not None}
    is_open = any(name != "0" and not name.endswith(":default_pg") for name in named)
    return [row for row in rows if not (is_open and row.origin == "watchdog" and row.group_rank is None)]


def _with_ranks(
    rows: Sequence[LogPosition], processes: Mapping[tuple[str, int], int], world_size: int | None
) -> list[LogPosition]:
    known = dict(processes)
    known.update({row.process: row.rank for row in rows if row.process and row.rank is not None})
    numbered = _numbered_by_world(rows, known, world_size)
    return [
        row
        if row.rank is not None or row.process is None
        else replace(row, rank=known.get(row.process, numbered.get(row.process)))
        for row in rows
    ]


def _numbered_by_world(
    rows: Sequence[LogPosition], known: Mapping[tuple[str, int], int], world_size: int | None
) -> dict[tuple[str, int], int]:
    """Rank of each process by its number in the communicator of all ranks; none when the numbers contradict each other."""
    size = world_size or max((row.size or 0 for row in rows), default=0)
    whole = {(row.process, row.group_rank) for row in rows if row.size == size and row.process and row.group_rank is not None}
    numbered = {process: rank for process, rank in whole if process is not None and rank is not None}
    contradicted = len(numbered) < len(whole) or len(set(numbered.values())) < len(numbered)
    if contradicted or any(known.get(process, rank) != rank for process, rank in numbered.items()):
        return {}
    return numbered


def _world(rows: Iterable[LogPosition]) -> int | None:
    """Size of the job by its largest communicator, when the numbers in it are the global ranks and every rank fits."""
    sizes = [row.size for row in rows if row.size]
    if not sizes:
        return None
    whole = [row for row in rows if row.size == max(sizes)]
    names = {row.communicator for row in whole}
    fits = all(row.rank == row.group_rank for row in whole) and max((row.rank or 0 for row in rows), default=0) < max(sizes)
    return max(sizes) if fits and len(names) == 1 else None


def _group(
    key: tuple[str, str], rows: Sequence[LogPosition], world: int | None, known: tuple[frozenset[int], frozenset[int]]
) -> LoggedGroup | None:
    """One group, or None when its members cannot be compared; `known` are ranks that left something else, and that gave up.

    That is: point-to-point work, a name that two groups share, or a member whose rank nothing tells (it would look absent).
    """
    origin, name = key
    ranked = [row for row in rows if row.rank is not None and row.rank < LARGEST]
    numbers = {(row.rank, row.group_rank) for row in ranked if row.group_rank is not None}
    shared = max(Counter(number for _, number in numbers).values(), default=1) > 1
    moved = max(Counter(rank for rank, _ in numbers).values(), default=1) > 1
    if len(ranked) < len(rows) or shared or moved or any(row.is_p2p for row in rows):
        return None
    positions = furthest(ranked)
    stated = max((row.size or 0 for row in rows), default=0)
    least = max((number for _, number in numbers if number is not None), default=-1) + 1
    # As many members as the job has ranks, and each counts as the job does: they are all.
    counts_all = least == world and all(rank == number for rank, number in numbers)
    is_world = stated == world if stated else counts_all or name.endswith(":default_pg") or name == "0"
    seen, gave_up = known
    others = (seen | _gaps(ranked)) - positions.keys() if is_world and not stated else frozenset()
    even = None if is_world or stated else _even(numbers)
    if even is not None:
        start, step, places = even
        # It waits elsewhere: of one that gave up nowhere nothing shows why it is not here.
        others = (frozenset(start + step * place for place in places) - positions.keys()) & gave_up
    size = stated or (world if is_world and world else None) or max(least, len(positions) + len(others))
    # A further member would be beyond the ranks of the job.
    ends_job = even is not None and world is not None and start + step * len(places) >= world
    is_exact = bool(stated or (is_world and world) or (ends_job and len(positions) + len(others) == len(places)))
    return LoggedGroup(name, origin, dict(sorted(positions.items())), size, is_exact, is_world, others)


def _even(numbers: Iterable[tuple[int | None, int | None]]) -> tuple[int, int, range] | None:
    """First rank, step and places of a group whose heard members lie in even steps, as those of parallel groups do."""
    heard = {place: rank for rank, place in numbers if rank is not None and place is not None}
    if len(heard) < _LEAST_EVEN:
        return None
    low, high = min(heard), max(heard)
    step, rest = divmod(heard[high] - heard[low], high - low)
    first = heard[low] - step * low
    if rest or step < 1 or first < 0 or any(first + step * place != rank for place, rank in heard.items()):
        return None
    return first, step, range(high + 1)


def _gaps(rows: Sequence[LogPosition]) -> frozenset[int]:
    """Ranks between those of one file, where nearly all of its ranks are heard: the file holds theirs too, had they written."""
    by_file: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        by_file[row.source.partition("#")[0]].add(row.rank or 0)
    missing = {file: set(range(min(ranks), max(ranks))) - ranks for file, ranks in by_file.items()}
    return frozenset[int]().union(*(gap for file, gap in missing.items() if _LEAST_HEARD * len(gap) <= len(by_file[file])))


def furthest(rows: Iterable[LogPosition]) -> dict[int, LogPosition]:
    """The row of each rank that goes furthest, the first of equals; all have a rank."""
    found: dict[int, LogPosition] = {}
    for row in rows:
        held = found.get(row.rank or 0)
        if held is None or _reach(row) > _reach(held):
            found[row.rank or 0] = row
    return found


def _reach(row: LogPosition) -> tuple[int, int, int]:
    """Two logs of one rank: the one that goes further was not cut."""
    return (row.completed or 0, -1 if row.enqueued is None else row.enqueued, row.init == "complete")


def as_communicator(group: LoggedGroup) -> Communicator:
    """The group as one relation of positions; `unit` is `work` (a watchdog's number) or `opCount` (calls that NCCL logged)."""
    called = [row.enqueued for row in group.positions.values() if row.enqueued is not None]
    is_watchdog = group.origin == "watchdog"
    found: dict[int, Position] = {}
    for rank, row in group.positions.items():
        place = _watchdog_position(rank, row) if is_watchdog else _nccl_position(rank, row, min(called, default=0))
        if place is not None:
            found[rank] = replace(place, family=Family.LOG, source=row.source, time_ns=row.time_ns if is_watchdog else None)
    # Ranks without numbers of calls are neither behind nor ahead in a communicator that others speak of by calls.
    members = group.members if is_watchdog else tuple(found)
    unit, name = ("work", f"pg:{group.label.removesuffix(':undefined')}") if is_watchdog else ("opCount", _hash(group.label))
    names = frozenset({name} if name else ())
    confidence = "read" if group.exact else "inferred"
    return Communicator(group.label, members, confidence, found, "nccl", size=group.size, unit=unit, names=names)


def _hash(label: str) -> str | None:
    """The hash of NCCL's communicator, by which shim logs, RAS and Inspector know it; a split has no commId of its own."""
    return f"nccl:{int(label, 16):016x}" if re.fullmatch(r"0x[0-9a-f]{1,16}", label) else None


def _watchdog_position(rank: int, row: LogPosition) -> Position | None:
    """The work that the watchdog gave up on may be behind others that ended with it: the first that is not complete counts."""
    if row.enqueued is None or row.completed is None:
        return None
    entered, done = max(row.enqueued, 0), max(row.completed, 0)
    first = done + 1 if entered > done else None
    pending = row.timed_out if row.timed_out and done < row.timed_out <= entered else first
    return Position(rank, entered, done, pending, _operation(row) if pending is not None else None)


def _nccl_position(rank: int, row: LogPosition, least: int) -> Position | None:
    """Calls only: whoever called more than the least waits in its last call, for all hosts make the same calls."""
    if row.enqueued is None:
        return None
    entered = row.enqueued + 1
    if row.enqueued == least:
        return Position(rank, entered, 0, None, None)
    return Position(rank, entered, 0, entered, replace(_operation(row), enqueued_ns=row.time_ns))


def _operation(row: LogPosition) -> Operation:
    return Operation((row.kind or "operation").lower().lstrip("_"), "", None, None, row.source)
