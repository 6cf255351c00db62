"""Numbers the stacks of each process by moment: one sample a moment, in the richest form that was handed in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection, has_rows, insert_rows
from forensics.case.moments import grouped, rounds, taken
from forensics.case.named_times import clock, rounds_of
from forensics.case.stack_forms import StackCapture, forms

Artefacts = Mapping[int, Artefact]
"""The artefact of each source."""

_OTHER_PROCESS = "of another process than that of the rank"
_CAPTURES = """
SELECT k.rank, coalesce(k.is_child, false), k.pid, k.source_id, coalesce(k.sample, 0), s.path, coalesce(s.sha256, ''),
       any_value(k.time_ns), any_value(k.clock_s), any_value(k.timer_s)
FROM stacks k JOIN sources s USING (source_id) WHERE k.rank IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
_PIDS = """
SELECT rank, pid FROM ranks WHERE pid IS NOT NULL
UNION SELECT rank, TRY_CAST(value AS BIGINT) FROM job_config WHERE key = 'process.ns_pid' AND rank IS NOT NULL ORDER BY ALL
"""
_OF_CAPTURE = """
stacks.source_id = c.source_id AND coalesce(stacks.sample, 0) = c.dump AND coalesce(stacks.is_child, false) = c.is_child
    AND coalesce(stacks.pid, -1) = c.pid
"""
_DROP = f"DELETE FROM stacks USING dropped c WHERE {_OF_CAPTURE}"
_NUMBER = f"UPDATE stacks SET sample = c.number FROM numbered c WHERE {_OF_CAPTURE}"
_TIME = f"UPDATE stacks SET clock_s = c.time FROM timed c WHERE {_OF_CAPTURE}"
_DROPPED_SOURCES = """
UPDATE sources SET status = 'ignored', rows = 0, reason = d.reason FROM
    (SELECT source_id, min(reason) AS reason FROM dropped GROUP BY source_id) d
WHERE sources.source_id = d.source_id AND sources.source_id NOT IN (SELECT source_id FROM stacks)
"""


@dataclass(frozen=True, slots=True)
class _Moment:
    """One moment of a process: the capture that stands for it, and those that only repeat it or cannot be placed in time."""

    kept: StackCapture
    others: tuple[StackCapture, ...]
    time_ns: int | None = None
    number: int | None = None
    is_named: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether more than the date of a file shows when it was."""
        return self.time_ns is not None or self.number is not None

    @property
    def is_agreed(self) -> bool:
        """Whether no other capture of the moment shows the process at another place."""
        return all(other.place is None or other.place == self.kept.place for other in self.others)


def number_stacks(connection: Connection, artefacts: Artefacts) -> None:
    """Leave one sample for each moment of a process, numbered in time order, and say in `moments` what it rests on."""
    if not has_rows(connection, "stacks"):
        return
    captures = _captures(connection, artefacts)
    known = _known_processes(connection)
    drops: list[tuple[StackCapture, str]] = []
    numbers: list[tuple[StackCapture, int]] = []
    records: list[tuple[object, ...]] = []
    for process in _processes(captures):
        ours, strangers = _of_the_rank(process, known.get(process[0].rank, frozenset()), captures)
        drops += [(item, _OTHER_PROCESS) for item in strangers]
        moments = _moments(ours)
        for moment, number in zip(moments, _numbers(moments), strict=True):
            numbers.append((moment.kept, number))
            drops += [(other, _reason(moment, other)) for other in moment.others]
            records.append(_record(moment, number, len(moments)))
    named = [(item, item.clock_s) for item in captures if item.taken.is_named and item.clock_s is not None]
    _apply(connection, (_TIME,), "timed", "time", named)
    _apply(connection, (_DROP, _DROPPED_SOURCES), "dropped", "reason", drops)
    _apply(connection, (_NUMBER,), "numbered", "number", [each for each in numbers if each[1] != each[0].dump])
    insert_rows(connection, "moments", "rank pid is_child sample time_ns captures proof agreed", records)


def _captures(connection: Connection, artefacts: Artefacts) -> list[StackCapture]:
    """All captures, with their content where a process has several."""
    dates = rounds(artefact.modified_ns for artefact in artefacts.values())
    rows = connection.execute(_CAPTURES).fetchall()
    found = [
        StackCapture(
            rank, (child, pid), source, dump, path, sha, taken(artefacts[source], dates, time), (), (), clock_s, timer_s
        )
        for rank, child, pid, source, dump, path, sha, time, clock_s, timer_s in rows
    ]
    found = _with_timers(_with_named_times(found))
    contested = _contested(found)
    content = forms(connection, contested) if contested else {}
    return [
        replace(item, threads=threads, detail=detail)
        for item in found
        for threads, detail in [content.get((item.source_id, item.dump, *item.process), ((), ()))]
    ]


def _with_named_times(captures: list[StackCapture]) -> list[StackCapture]:
    """Captures in the order of the times of day above them, or in the names of their files, where nothing else dates any."""
    if any(item.taken.is_proven for item in captures):
        return captures
    clocks = [clock(item.path, item.process[1]) if item.clock_s is None else item.clock_s for item in captures]
    rounds = rounds_of((time, (item.rank, *item.process)) for time, item in zip(clocks, captures, strict=True))
    return [
        replace(item, taken=replace(item.taken, number=number, is_named=True), clock_s=time)
        for item, number, time in zip(captures, rounds, clocks, strict=False)
    ] or captures


def _with_timers(captures: list[StackCapture]) -> list[StackCapture]:
    """Dumps of one process by a timer, all in one file, numbered: the timer ran anew between them."""
    by_process: dict[tuple[int, bool], list[StackCapture]] = defaultdict(list)
    for item in captures:
        by_process[item.rank, item.process[0]].append(item)
    timed = {
        process
        for process, items in by_process.items()
        if len({(item.source_id, item.process[1]) for item in items}) == 1
        and all(item.timer_s and not item.taken.is_proven for item in items)
    }
    return [
        replace(item, taken=replace(item.taken, number=item.dump)) if (item.rank, item.process[0]) in timed else item
        for item in captures
    ]


def _contested(captures: Sequence[StackCapture]) -> set[int]:
    """Ranks with more captures than proven numbers, the only ones whose contents are compared; for two processes, with all."""
    by_process: dict[tuple[int, bool], list[StackCapture]] = defaultdict(list)
    for item in captures:
        by_process[item.rank, item.process[0]].append(item)
    contested = {rank for (rank, _), items in by_process.items() if _is_contested(items)}
    if any(len(_pids(items)) > 1 for (_, is_child), items in by_process.items() if not is_child):
        return {item.rank for item in captures}
    return contested


def _is_contested(captures: Sequence[StackCapture]) -> bool:
    numbers = {(item.process, item.taken.number) for item in captures}
    return len(numbers) < len(captures) or (len(captures) > 1 and any(item.taken.number is None for item in captures))


def _pids(captures: Sequence[StackCapture]) -> list[int]:
    return sorted({item.process[1] for item in captures if item.process[1] is not None})


def _known_processes(connection: Connection) -> Mapping[int, frozenset[int]]:
    """Process numbers of each rank that something besides its stacks tells: on the host, and inside its container."""
    found: dict[int, set[int]] = defaultdict(set)
    for rank, pid in connection.execute(_PIDS).fetchall():
        found[rank].add(pid)
    return {rank: frozenset(pids) for rank, pids in found.items()}


def _processes(captures: Sequence[StackCapture]) -> list[list[StackCapture]]:
    """Captures by process: each child of a rank, and all that is no child, for not every form shows the number."""
    found: dict[tuple[int, bool, int], list[StackCapture]] = defaultdict(list)
    for item in captures:
        is_child, pid = item.process
        found[item.rank, is_child, pid or 0 if is_child else 0].append(item)
    return [items for _, items in sorted(found.items())]


def _of_the_rank(
    captures: Sequence[StackCapture], known: frozenset[int], peers: Sequence[StackCapture]
) -> tuple[list[StackCapture], list[StackCapture]]:
    """Captures of the rank's own process, and those of another one under its name.

    Its number is known, or else its code is: it is the process that runs what the other ranks run.
    """
    pids = _pids(captures)
    if captures[0].process[0] or len(pids) < 2:
        return list(captures), []
    own = known.intersection(pids) or _alike(captures, pids, peers) or frozenset(pids)
    strangers = [item for item in captures if item.process[1] is not None and item.process[1] not in own]
    return [item for item in captures if item not in strangers], strangers


def _alike(captures: Sequence[StackCapture], pids: Sequence[int], peers: Sequence[StackCapture]) -> frozenset[int]:
    """Processes that share functions with most of the other ranks, where one of them does and another does not."""
    others = [item.functions for item in peers if item.rank != captures[0].rank and not item.process[0] and item.functions]
    shares: dict[int, float] = {}
    for pid in pids:
        own = frozenset().union(*(item.functions for item in captures if item.process[1] == pid))
        shares[pid] = sum(bool(own & other) for other in others) / max(1, len(others))
    return frozenset(pid for pid, share in shares.items() if share > 1 / 2)


def _moments(captures: Sequence[StackCapture]) -> list[_Moment]:
    """The moments of one process in time order; what nothing dates corroborates one of them, or is left out."""
    ordered = sorted(
        captures, key=lambda item: (not item.taken.is_proven, item.taken.time_ns or 0, item.taken.number or 0, item.richness)
    )
    groups = grouped(ordered, _are_apart)
    return [_moment(group) for group in sorted(groups, key=_time)]


def _are_apart(one: StackCapture, two: StackCapture) -> bool:
    if one.taken.is_apart(two.taken):
        return True
    return one.taken.in_other_round(two.taken) and not one.agrees(two)


def _time(group: Sequence[StackCapture]) -> tuple[int, int, int]:
    """What orders moments: the time of capture, the number, the round of the files' dates."""
    first = group[0].taken
    return first.time_ns or 0, first.number or 0, first.round or 0


def _moment(group: Sequence[StackCapture]) -> _Moment:
    """The richest capture that shows what the best proven one shows stands for the moment."""
    lead = group[0] if group[0].taken.is_proven else min(group, key=lambda item: item.richness)
    kept = min((item for item in group if item.place == lead.place), key=lambda item: item.richness)
    first = group[0].taken
    return _Moment(kept, tuple(item for item in group if item is not kept), first.time_ns, first.number, first.is_named)


def _numbers(moments: Sequence[_Moment]) -> list[int]:
    """The numbers that were given with a proof when they differ, else the order in time; a single one keeps what it has."""
    given = [moment.number for moment in moments]
    if None not in given and len(set(given)) == len(given):
        return [number for number in given if number is not None]
    return [moments[0].kept.dump] if len(moments) == 1 else list(range(len(moments)))


def _reason(moment: _Moment, other: StackCapture) -> str:
    if other.place is None or other.place == moment.kept.place:
        return f"shows the same moment as {moment.kept.path}, which holds more"
    return f"nothing proves that it is of another moment than {moment.kept.path}, which stands for both"


def _record(moment: _Moment, number: int, count: int) -> tuple[object, ...]:
    """A row of `moments`."""
    is_child, pid = moment.kept.process
    proof = "names" if moment.is_named else "given" if moment.is_proven else "dates" if count > 1 else None
    return moment.kept.rank, pid, is_child, number, moment.time_ns, 1 + len(moment.others), proof, moment.is_agreed


def _apply(
    connection: Connection, statements: Sequence[str], table: str, name: str, chosen: Sequence[tuple[StackCapture, object]]
) -> None:
    """Do with captures what a value says of each: one statement for all of them is a hundred times faster than one for each."""
    if not chosen:
        return
    kind = {"reason": "VARCHAR", "number": "INTEGER", "time": "INTEGER"}[name]
    columns = f"source_id BIGINT, dump INTEGER, is_child BOOLEAN, pid BIGINT, {name} {kind}"
    connection.execute(f"CREATE TEMP TABLE {table} ({columns})")
    rows: list[tuple[object, ...]] = [
        (item.source_id, item.dump, item.process[0], -1 if item.process[1] is None else item.process[1], value)
        for item, value in chosen
    ]
    insert_rows(connection, table, f"source_id dump is_child pid {name}", rows)
    for statement in (*statements, f"DROP TABLE {table}"):
        connection.execute(statement)
