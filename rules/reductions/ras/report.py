"""NCCL RAS over all captures: who launched how many collectives, who did not answer, and what stood still in between.

RAS numbers ranks within a communicator and names processes by address and pid. They become global ranks through the processes
found on the hosts, or through a communicator of all GPUs of the job (torch orders the members of a group by global rank).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ras.steps import trained_on

Process = tuple[str, int, int]
"""Address, pid and device: one rank, whatever the communicator."""


@dataclass(frozen=True, slots=True)
class RasMember:
    """One named rank of a communicator: its process, what it launched by kind in the newest capture, whether that stood still.

    `status` is the word of the newest capture. `still` says that several captures, the newest among them, found the same
    counts, `moved` that they found different ones; both are False for a single capture.
    """

    comm_rank: int
    process: Process | None
    status: str | None
    counts: Mapping[str, int]
    async_error: int
    still: bool
    moved: bool
    source: str


@dataclass(frozen=True, slots=True)
class RasGroup:
    """One communicator: the members that reports name, and by kind the count that most of its members have.

    `unnamed` are kind and count of sets of ranks of which the report shows the size only.
    """

    communicator: str
    size: int | None
    members: tuple[RasMember, ...]
    usual: Mapping[str, int]
    unnamed: frozenset[tuple[str, int]] = frozenset()

    @property
    def unused(self) -> bool:
        """Whether no member launched a collective that RAS counts: it serves point-to-point calls, graphs, or nothing yet."""
        return not any(self.usual.values()) and not any(any(member.counts.values()) for member in self.members)


@dataclass(frozen=True, slots=True)
class Ras:
    """All reports of a case.

    `captures` is the largest number of reports of one host, `gap_s` the time between its first and last one (None when nothing
    tells). `lost` are processes that did not answer, with the word of the newest capture (`dead` or `unresponsive`), how many
    captures missed them, and the place. `complete` says that every communicator is described. `ranks` gives global ranks,
    `method` how they were found: pid, world or None. `trained_on`: steps went on below a report in the text that it stands in.
    """

    captures: int = 0
    gap_s: float | None = None
    groups: tuple[RasGroup, ...] = ()
    lost: Mapping[Process, tuple[str, int, str]] = field(default_factory=dict)
    complete: bool = False
    ranks: Mapping[Process, int] = field(default_factory=dict)
    method: str | None = None
    trained_on: bool = False

    def __bool__(self) -> bool:
        """Whether there is a report."""
        return self.captures > 0


# Every host tells of the whole job: rows that only repeat another host's are folded before they leave the database.
_ROWS = """
WITH captures AS (
    SELECT source_id, dense_rank() OVER (PARTITION BY host ORDER BY snapshot) AS capture
    FROM (SELECT DISTINCT source_id, host, snapshot FROM ras_reports)
)
SELECT r.communicator, r.comm_rank, r.address, r.pid,
       coalesce(r.device, CASE WHEN r.communicator IS NULL THEN -1 ELSE 0 END), r.kind, l.capture, max(r.size), max(r.ranks),
       min(r.launched), max(r.launched), max(r.status), max(coalesce(r.async_error, 0)), min(s.path || '#' || r.locator)
FROM ras_ranks r JOIN captures l USING (source_id) JOIN sources s USING (source_id)
GROUP BY r.communicator, r.comm_rank, r.address, r.pid, r.device, r.kind, l.capture,
         CASE WHEN r.comm_rank IS NULL THEN r.launched END
ORDER BY r.communicator, r.comm_rank, l.capture, r.kind, r.address, r.pid, min(r.launched)
"""

_REPORTS = """
SELECT r.host, r.snapshot, r.taken, s.captured_ns, r.communicators, r.gpus, r.source_id,
       (SELECT count(DISTINCT communicator) FROM ras_ranks k WHERE k.source_id = r.source_id)
FROM ras_reports r JOIN sources s USING (source_id) ORDER BY r.host, r.snapshot, r.taken, r.source_id
"""

_PIDS = """
SELECT host, rank, pid FROM ranks WHERE pid IS NOT NULL AND host IS NOT NULL
UNION
SELECT r.host, r.rank, TRY_CAST(c.value AS BIGINT) FROM ranks r JOIN job_config c USING (rank)
WHERE c.key = 'process.ns_pid' AND TRY_CAST(c.value AS BIGINT) IS NOT NULL AND r.host IS NOT NULL
"""


@dataclass(slots=True)
class _Seen:
    """One named member over all captures; `counts` are the counts that any host reported, by kind and capture."""

    process: Process | None = None
    status: str | None = None
    async_error: int = 0
    source: str = ""
    captures: set[int] = field(default_factory=set)
    counts: dict[str, dict[int, set[int]]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(set)))


@dataclass(slots=True)
class _Group:
    """One communicator over all captures; `folded` are sets of ranks that are not named: members by capture, kind and count."""

    size: int | None = None
    capture: int = 0
    members: dict[int, _Seen] = field(default_factory=lambda: defaultdict(_Seen))
    folded: dict[tuple[int, str, int], int] = field(default_factory=dict)


@reduction
def ras(connection: DuckDBPyConnection, roster: Roster) -> Ras:
    """Read what RAS said."""
    reports = rows_of(connection, "ras_reports", _REPORTS)
    if not reports:
        return Ras()
    groups, lost = _read(connection)
    captures = Counter(host for host, _ in {(host, snapshot) for host, snapshot, *_ in reports})
    found = tuple(_group(label, group) for label, group in sorted(groups.items()))
    gpus = next((row[5] for row in reversed(reports) if row[5]), None)
    ranks, method = _global_ranks(connection, found, lost, roster.world_size or gpus)
    return Ras(
        captures=max(captures.values()),
        gap_s=_gap(reports),
        groups=found,
        lost=lost,
        complete=all(counted is not None and described >= counted for *_, counted, _, _, described in reports),
        ranks=ranks,
        method=method,
        trained_on=trained_on(connection),
    )


def _read(connection: DuckDBPyConnection) -> tuple[dict[str, _Group], dict[Process, tuple[str, int, str]]]:
    groups: dict[str, _Group] = defaultdict(_Group)
    missed: dict[Process, dict[int, tuple[str, str]]] = defaultdict(dict)
    for label, number, address, pid, device, *facts in connection.execute(_ROWS).fetchall():
        kind, capture, size, count, least, most, status, error, source = facts
        process = (address, pid, device) if address is not None and pid is not None else None
        if process and status in ("dead", "unresponsive"):
            missed[process][capture] = (status, source)
        if label is None:
            continue
        group = groups[label]
        group.capture = max(group.capture, capture)
        group.size = size if size is not None else group.size
        launched = {least, most} if kind is not None and least is not None else set()
        if number is None:
            group.folded |= {(capture, kind, value): count for value in launched}
        else:
            _see(group.members[number], process, status, error, capture, source)
            if launched:
                group.members[number].counts[kind][capture] |= launched
    # The text form lists lost processes as such and again as ranks, with and without the device.
    named = {process[:2] for process in missed if process[2] >= 0}
    kept = {process: captures for process, captures in missed.items() if process[2] >= 0 or process[:2] not in named}
    return groups, {
        process: (captures[max(captures)][0], len(captures), captures[max(captures)][1]) for process, captures in kept.items()
    }


def _see(seen: _Seen, process: Process | None, status: str | None, error: int, capture: int, source: str) -> None:
    seen.process = process or seen.process
    seen.status = status or seen.status
    seen.async_error = error or seen.async_error
    seen.captures.add(capture)
    seen.source = source


def _group(label: str, group: _Group) -> RasGroup:
    members = tuple(_member(number, seen, group.capture) for number, seen in sorted(group.members.items()))
    folded = {(kind, value): count for (capture, kind, value), count in group.folded.items() if capture == group.capture}
    # The text form may name the ranks of a set that it has counted: they are the same ranks.
    named = Counter((kind, value) for member in members for kind, value in member.counts.items())
    votes = {key: max(named[key], folded.get(key, 0)) for key in {*named, *folded}}
    usual = dict(sorted(votes, key=lambda key: (votes[key], key[1])))
    unnamed = frozenset(key for key, count in folded.items() if count > named[key])
    return RasGroup(label, group.size, members, usual, unnamed)


def _member(number: int, seen: _Seen, newest: int) -> RasMember:
    """A member as the newest capture has it; a rank that the text form no longer lists is with the majority again."""
    counts = {kind: max(captures[newest]) for kind, captures in sorted(seen.counts.items()) if newest in captures}
    looked = len(seen.captures)
    same = all(len(set().union(*captures.values())) == 1 and len(captures) == looked for captures in seen.counts.values())
    still = looked > 1 and same and newest in seen.captures
    return RasMember(number, seen.process, seen.status, counts, seen.async_error, still, looked > 1 and not same, seen.source)


def _gap(reports: list[tuple[object, ...]]) -> float | None:
    """Seconds between the first and the last report of one host, the longest of all hosts."""
    times: dict[object, list[float]] = defaultdict(list)
    for host, _, taken, captured, *_ in reports:
        moment = captured / 1e9 if isinstance(captured, int) else _seconds(taken)
        if moment is not None:
            times[host].append(moment)
    gaps = [max(found) - min(found) for found in times.values() if len(found) > 1]
    return max(gaps, default=None)


def _seconds(taken: object) -> float | None:
    try:
        return (datetime.fromisoformat(str(taken)) - datetime(1970, 1, 1)).total_seconds() if taken else None
    except (ValueError, TypeError):
        return None


def _global_ranks(
    connection: DuckDBPyConnection, groups: tuple[RasGroup, ...], lost: Mapping[Process, tuple[str, int, str]], gpus: int | None
) -> tuple[dict[Process, int], str | None]:
    """By the processes found on the hosts, completed by the communicator of all GPUs unless the two disagree."""
    processes = {member.process for group in groups for member in group.members if member.process} | set(lost)
    by_pid = _by_pid(connection, processes)
    # The GPUs in the summary of the text form are those of processes that are not considered dead.
    dead = sum(word == "dead" for word, _, _ in lost.values())
    worlds = {gpus, gpus + dead} if gpus else {len(processes)}
    by_world = _missing(groups, lost, worlds) | _by_world(groups, worlds)
    if any(by_world.get(process, rank) != rank for process, rank in by_pid.items()):
        return by_pid, "pid"
    ranks = {**by_world, **by_pid}
    return ranks, None if not ranks else "pid" if len(by_pid) == len(ranks) else "world"


def _by_world(groups: tuple[RasGroup, ...], worlds: set[int]) -> dict[Process, int]:
    """Ranks within the communicators of these sizes, when all of them number the processes alike."""
    whole = [group for group in groups if group.size in worlds]
    numbered = {(member.process, member.comm_rank) for group in whole for member in group.members if member.process}
    found = {process: number for process, number in numbered if process}
    return found if len(found) == len(numbered) else {}


def _missing(groups: tuple[RasGroup, ...], lost: Collection[Process], worlds: set[int]) -> dict[Process, int]:
    """The text form lists lost processes, and missing ranks by number only: with one of each they are the same."""
    whole = [group for group in groups if group.size in worlds]
    numbers = [
        {member.comm_rank for member in group.members if member.process is None and member.status == "unresponsive"}
        for group in whole
    ]
    if len(lost) != 1 or not numbers or len(numbers[0]) != 1 or any(each != numbers[0] for each in numbers):
        return {}
    return {next(iter(lost)): next(iter(numbers[0]))}


def _by_pid(connection: DuckDBPyConnection, processes: set[Process]) -> dict[Process, int]:
    """Join by pid: an address is the one host that shares most pids with it, at least half of them; else it stays unknown."""
    hosts: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for host, rank, pid in connection.execute(_PIDS).fetchall():
        hosts[host][pid].add(rank)
    addresses: dict[str, Counter[int]] = defaultdict(Counter)
    for address, pid, _ in processes:
        addresses[address][pid] += 1
    homes = {address: _home(set(pids), hosts) for address, pids in addresses.items()}
    claimed = Counter(homes.values())
    ranks: dict[Process, int] = {}
    for process in processes:
        home = homes[process[0]]
        owners = hosts[home].get(process[1], set()) if home is not None and claimed[home] == 1 else set()
        # A process with several GPUs is several ranks: its pid does not tell which.
        if len(owners) == 1 and addresses[process[0]][process[1]] == 1:
            ranks[process] = min(owners)
    return ranks


def _home(pids: set[int], hosts: Mapping[str, Mapping[int, object]]) -> str | None:
    shared = sorted(((len(pids & set(known)), host) for host, known in hosts.items()), reverse=True)
    best = shared[0] if shared else (0, "")
    unique = len(shared) == 1 or (shared and shared[0][0] > shared[1][0])
    return best[1] if unique and best[0] > 0 and 2 * best[0] >= len(pids) else None
