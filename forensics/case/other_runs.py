"""Leave out what is of another run of a job, or of another job: a former incident beside the present one.

Two collections are of different runs where most of the ranks that both tell of are other processes in each. Bundles say when
they were made, and the newest is meant; of folders, the one whose content is newer by more than any job is silent. Where no
time tells, or each may hold ranks that are counted on its host, both are left out: together they look like one job. Of two logs
of launchers, the one whose ranks ended earlier as other processes is left out; so is one whose ranks had ended before the first
step that another log dates, where that one is of no other host and tells of no failure: clocks of one job may be hours apart;
or most of a day before the first call that was recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from forensics.case.admission import SLACK_NS
from forensics.case.call_store import calls_table
from forensics.case.database import Connection, schema_columns

_LEAST_RANKS = 2
_ROOTS = """
SELECT path FROM sources WHERE parser = 'bundle_manifest' AND (path = 'bundle.json' OR path LIKE '%/bundle.json') ORDER BY path
"""
_PROCESSES = """
SELECT DISTINCT s.path, r.rank, r.pid FROM ranks r JOIN sources s USING (source_id) WHERE r.pid IS NOT NULL
UNION SELECT DISTINCT s.path, k.rank, k.pid FROM stacks k JOIN sources s USING (source_id)
WHERE k.rank IS NOT NULL AND k.pid IS NOT NULL AND k.is_main AND k.is_child IS DISTINCT FROM true ORDER BY ALL
"""
_TIMES = """
SELECT s.source_id, s.path, s.host, greatest(s.captured_ns, k.newest, o.newest) FROM sources s
LEFT JOIN (SELECT source_id, max(time_ns) AS newest FROM stacks GROUP BY source_id) k USING (source_id)
LEFT JOIN (SELECT source_id, max(enqueued_ns) AS newest FROM operations GROUP BY source_id) o USING (source_id)
"""
# How launchers saw processes of known ranks end, and when the last one of a log did. In containers numbers come again: what
# ended at another time is another process.
_ENDED = r"""
SELECT source_id, path, rank, hash(pid, ended), max(epoch(ended)) OVER (PARTITION BY source_id) FROM (
    SELECT s.source_id, s.path, l.rank, TRY_CAST(regexp_extract(l.subject, ' pid=([0-9]{1,9})\b', 1) AS BIGINT) AS pid,
           TRY_CAST(replace(regexp_extract(l.subject, ' time=([0-9_:-]{19})', 1), '_', ' ') AS TIMESTAMP) AS ended
    FROM log_events l JOIN sources s USING (source_id) WHERE l.kind = 'process_exit' AND l.rank IS NOT NULL
) WHERE pid IS NOT NULL ORDER BY ALL
"""
OF_NO_FAILURE = "kind IN ('job_finished', 'nccl_warning', 'several_nodes', 'bare_error')"
"""Condition on events of logs that a job without a failure writes too."""
# Logs whose steps are dated, of which none tells of an error, of somebody who gave up or of an end; and recordings of calls,
# with as many seconds less as the clock of a host may lie behind UTC.
_WORKED = f"""
SELECT s.path, s.host, min(p.at_s) FROM log_progress p JOIN sources s USING (source_id)
WHERE p.clock = 'line' AND NOT EXISTS (
    SELECT 1 FROM log_events e WHERE e.source_id = p.source_id AND NOT e.{OF_NO_FAILURE}
) GROUP BY ALL HAVING count(*) >= $least
UNION ALL SELECT s.path, s.host, min(o.enqueued_ns) / 1e9 - $zones FROM operations o JOIN sources s USING (source_id)
WHERE o.enqueued_ns IS NOT NULL GROUP BY ALL HAVING count(*) >= $least ORDER BY ALL
"""
_BEGUN = {"least": 3, "zones": 15 * 3600}
# Other logs in the folder of one, or that log alone where the newer one lies there too.
_HOST = "SELECT host FROM sources WHERE source_id = ? AND host IS NOT NULL"
_BESIDE = "SELECT source_id FROM sources WHERE kind = 'training_log' AND starts_with(path, ?) ORDER BY ALL"
_SECOND_NS = 1_000_000_000
_ONE_END_NS = 60 * _SECOND_NS
"""Within this time launchers of one job on several nodes see their processes end."""
_REJECTED = """
UPDATE sources SET status = 'rejected', rows = 0, reason = ? WHERE source_id IN (SELECT unnest(?::BIGINT[]))
"""
_OPEN = ": of two runs, or of ranks that are numbered on each host, and nothing tells which is meant; hand in one"


@dataclass(slots=True)
class _Collection:
    """What lies below one folder: its sources, the processes of each rank, hosts, and the newest time of its content (ns).

    `is_meant` turns false where it was left out.
    """

    folder: str
    sources: list[int] = field(default_factory=list)
    processes: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    hosts: set[str] = field(default_factory=set)
    newest_ns: int | None = None
    is_meant: bool = True

    def common(self, other: _Collection) -> set[int]:
        """Ranks of which both tell the process."""
        return self.processes.keys() & other.processes.keys()

    def is_another_run(self, other: _Collection) -> bool:
        """Whether most ranks that both tell of are other processes here than there."""
        common = self.common(other)
        return 2 * sum(self.processes[rank].isdisjoint(other.processes[rank]) for rank in common) > len(common)


def leave_out_other_runs(connection: Connection) -> None:
    """Take the rows of all runs but the newest out of the case, or those of all where nothing shows which is the newest."""
    _leave_out_older_logs(connection)
    rows = connection.execute(_PROCESSES).fetchall()
    roots = [path.removesuffix("bundle.json") for (path,) in connection.execute(_ROOTS).fetchall()]
    are_bundles = len(roots) > 1
    found = _collections(connection, roots if are_bundles else _folders(rows), rows)
    kept: list[_Collection] = []
    for each in found:
        other = next((other for other in kept if each.is_another_run(other)), None)
        if other is None:
            kept.append(each)
            continue
        why = f"{len(each.common(other))} ranks are other processes in {other.folder}"
        is_older = are_bundles or _is_older(each, other)
        reject(connection, each.folder, each.sources, f"{why}, which is newer: another run" if is_older else f"{why}{_OPEN}")
        if not is_older and other.is_meant:
            other.is_meant = False
            reject(
                connection,
                other.folder,
                other.sources,
                f"{len(each.common(other))} ranks are other processes in {each.folder}{_OPEN}",
            )


def _leave_out_older_logs(connection: Connection) -> None:
    """Take out logs of launchers whose ranks ended as other processes before those of a newer one did."""
    logs: dict[int, _Collection] = {}
    for source_id, path, rank, process, ended_s in connection.execute(_ENDED).fetchall():
        # Not in the store: a date that is no sign of anything, of the year 9999, has more ns than it holds.
        ended_ns = None if ended_s is None else round(ended_s * _SECOND_NS)
        log = logs.setdefault(source_id, _Collection(path, [source_id], newest_ns=ended_ns))
        log.processes[rank].add(process)
    kept: list[_Collection] = []
    for log in sorted(logs.values(), key=lambda each: (-(each.newest_ns or 0), each.folder)):
        other = next((other for other in kept if _ended_before(log, other)), None)
        if other is None:
            kept.append(log)
            continue
        ranks = len(log.common(other))
        reject(
            connection, log.folder, log.sources, f"{ranks} ranks ended as other processes in {other.folder}, later: another run"
        )
    _leave_out_ended(connection, kept)


def _leave_out_ended(connection: Connection, logs: Iterable[_Collection]) -> None:
    """Take out logs whose ranks had ended when the steps of a sound one began, with the logs that lie beside them."""
    worked = connection.execute(_WORKED, _BEGUN).fetchall() if logs else []
    for log in logs:
        ended_ns, hosts = log.newest_ns, {host for (host,) in connection.execute(_HOST, log.sources).fetchall()}
        dated = [(path, first_s * _SECOND_NS) for path, host, first_s in worked if host is None or hosts <= {host}]
        later = (path for path, first_ns in dated if ended_ns is not None and first_ns - ended_ns > _ONE_END_NS)
        if (path := next(later, None)) is not None:
            home = log.folder[: log.folder.rfind("/") + 1]
            beside = connection.execute(_BESIDE, [home]).fetchall() if home and not path.startswith(home) else []
            log.sources = sorted({*log.sources, *(source_id for (source_id,) in beside)})
            reject(connection, log.folder, log.sources, f"its ranks had ended before the first step of {path}: another run")


def _ended_before(log: _Collection, other: _Collection) -> bool:
    if log.newest_ns is None or other.newest_ns is None or other.newest_ns - log.newest_ns <= _ONE_END_NS:
        return False
    return len(log.common(other)) >= _LEAST_RANKS and log.is_another_run(other)


def _folders(rows: Iterable[tuple[str, int, int]]) -> list[str]:
    """Sibling folders that hold the same ranks as other processes; none where fewer than two ranks do."""
    by_rank: dict[int, dict[int, str]] = defaultdict(dict)
    for path, rank, pid in rows:
        by_rank[rank].setdefault(pid, path)
    found: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    contested = {rank: [*paths.values()] for rank, paths in by_rank.items() if len(paths) > 1}
    for rank, (first, *others) in contested.items():
        for other in others:
            for parent, name in _apart(first, other):
                found[parent][name].add(rank)
    for parent, names in found.items():
        if len(names) > 1 and all(len(ranks) >= _LEAST_RANKS and 2 * len(ranks) > len(contested) for ranks in names.values()):
            return [f"{parent}{name}/" for name in sorted(names)]
    return []


def _apart(one: str, two: str) -> Iterator[tuple[str, str]]:
    """The folders in which two paths part, each with the folder that holds both; nothing where one parts in its file name."""
    first, second = one.split("/"), two.split("/")
    place = next(i for i, (left, right) in enumerate(zip(first, second, strict=False)) if left != right) if one != two else 0
    if place < min(len(first), len(second)) - 1:
        parent = "".join(f"{part}/" for part in first[:place])
        yield from ((parent, first[place]), (parent, second[place]))


def _collections(connection: Connection, folders: Iterable[str], rows: Iterable[tuple[str, int, int]]) -> list[_Collection]:
    """What lies below each folder, the newest first; of folders in each other, a file is of the innermost."""
    found = {folder: _Collection(folder) for folder in sorted(folders, key=len, reverse=True)}
    if not found:
        return []
    for path, rank, pid in rows:
        if (home := _home(path, found)) is not None:
            home.processes[rank].add(pid)
    for source_id, path, host, newest_ns in connection.execute(_TIMES).fetchall():
        if (home := _home(path, found)) is not None:
            home.sources.append(source_id)
            home.hosts |= {host} - {None}
            home.newest_ns = max(home.newest_ns or 0, newest_ns or 0) or None
    return sorted(found.values(), key=lambda each: (-(each.newest_ns or 0), each.folder))


def _home(path: str, found: Mapping[str, _Collection]) -> _Collection | None:
    return next((each for folder, each in found.items() if path.startswith(folder)), None)


def _is_older(one: _Collection, two: _Collection) -> bool:
    """Whether the content proves that one is from long before the other; folders of hosts may number ranks by themselves."""
    if one.newest_ns is None or two.newest_ns is None or (one.hosts and two.hosts and one.hosts != two.hosts):
        return False
    return two.newest_ns - one.newest_ns > SLACK_NS


def reject(connection: Connection, path: str, sources: Sequence[int], reason: str) -> None:
    """Remove all rows of these sources, and say so of the folder or the file that they are."""
    names = {name for name, columns in schema_columns().items() if "source_id" in columns} - {"sources", "operations"}
    for table in (calls_table(connection), *sorted(names)):
        connection.execute(f"DELETE FROM {table} WHERE source_id IN (SELECT unnest(?::BIGINT[]))", [sources])
    connection.execute(_REJECTED, [reason, sources])
    connection.execute("INSERT INTO ingest_warnings (path, message) VALUES (?, ?)", [path, f"left out: {reason}"])
