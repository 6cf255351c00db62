"""Who belongs to the job and what is known of each rank's process."""

from __future__ import annotations

import signal
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NewType

from duckdb import DuckDBPyConnection

from forensics.case.alignment import configured_world_size
from forensics.case.database import rows_of
from forensics.case.gathered import gathered_world_size
from forensics.model import RankProcess, Since
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.fed import Look, is_fed, least_growth, mean_growth
from forensics.rules.reductions.ranks.hosts_of_ranks import hosts_of_ranks
from forensics.rules.reductions.ranks.main_threads import of_main_threads
from forensics.rules.reductions.ranks.met_later import met_later
from forensics.rules.reductions.ranks.on_cpu import cpu_share, wakes_per_s
from forensics.vocabulary import GUESSED

STOPPED = frozenset("Tt")


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One rank: where it ran, what became of its process, and which kinds of evidence it left.

    `state` is alive, absent, zombie or unknown (None when no collector looked). `thread_states` are the states of the main
    thread, one for each sample; `switches` is the number of its context switches over all samples, `cpu_share` the share of the
    time between first and last sample that it was on a CPU, both None with less than two samples; `wakes_per_s` how often it
    woke from sleeps other than for a lock; `fed`: data comes to it or leaves it; `written_bytes` is what it wrote at
    least from one sample to the next, `mean_written_bytes` on average; `waits_on` are files (`FD -> FILE`) that it waits on in
    all samples.
    `dumped`: a dump of it lies there, with calls or without; `sampled`: a sample of its threads has a time (a table of `ps` has
    none, and may be from before what a log tells). `error` is the line of its log by which it ended, where only that shows that
    it did; `timed_out`: it gave up waiting; `of_the_run`: its log speaks of a communicator that those who gave up speak of.
    `heartbeat_gap_ns` is set when the collector inside the process had stopped beating for that long while others went on.
    """

    rank: int
    host: str | None = None
    pid: int | None = None
    state: str | None = None
    state_source: str | None = None
    rank_method: str | None = None
    exit_signal: int | None = None
    exit_code: int | None = None
    error: str | None = None
    thread_states: tuple[str, ...] = ()
    sampled: bool = False
    wchan: str | None = None
    tracer: int | None = None
    switches: int | None = None
    cpu_share: float | None = None
    wakes_per_s: float | None = None
    fed: bool = False
    written_bytes: int | None = None
    mean_written_bytes: int | None = None
    waits_on: tuple[str, ...] = ()
    process_source: str | None = None
    has_recorder: bool = False
    dumped: bool = False
    has_stack: bool = False
    recorder_damaged: bool = False
    calls_unrecorded: bool = False
    timed_out: bool = False
    of_the_run: bool = False
    heartbeat_gap_ns: int | None = None

    @property
    def dead(self) -> bool:
        """Whether the process is known to be gone."""
        return self.state in ("absent", "zombie") or self.exit_signal is not None

    @property
    def stopped(self) -> bool:
        """Whether every sample found the main thread stopped."""
        return bool(self.thread_states) and set(self.thread_states) <= STOPPED

    @property
    def ended(self) -> bool:
        """Whether its process is gone, and not because it gave up waiting."""
        return self.dead and not self.aborted

    @property
    def unseen(self) -> bool:
        """Whether nothing shows what the rank does: no stack, no complete record, no process known to be gone or stopped.

        A gloo recorder of a job with point-to-point calls is not complete: the rank may wait in a receive.
        """
        return not (self.has_stack or self.dead or self.stopped or self.recorded)

    @property
    def recorded(self) -> bool:
        """Whether all its calls are known, up to those that its buffer let go."""
        return self.has_recorder and not (self.recorder_damaged or self.calls_unrecorded)

    @property
    def aborted(self) -> bool:
        """Whether its own watchdog ended the rank: its dump still shows what it waited in."""
        return self.dead and (self.timed_out or self.exit_signal == signal.SIGABRT)


@dataclass(frozen=True, slots=True)
class Roster:
    """All ranks that are known or expected; `world_size` is None when nothing tells it."""

    ranks: Mapping[int, RankFacts]
    world_size: int | None

    def host_of(self, rank: int) -> str | None:
        """Host of a rank, when known."""
        return self.rank(rank).host

    @property
    def hosts(self) -> dict[int, str | None]:
        """Host of each rank, None where it is not known."""
        return {rank: facts.host for rank, facts in self.ranks.items()}

    def since(self, rank: int, time_ns: int | None, otherwise: str = "realtime of the recording host") -> Since | None:
        """A moment (ns) on the clock of the host of a rank, which is called `otherwise` where the host is not known."""
        host = self.host_of(rank)
        return None if time_ns is None else Since(time_ns, f"{host} realtime" if host else otherwise, 0)

    def rank(self, rank: int) -> RankFacts:
        """Facts of a rank; unknown everywhere for a rank without trace."""
        return self.ranks.get(rank) or RankFacts(rank)

    def guessed(self, ranks: Iterable[int]) -> tuple[RankProcess, ...]:
        """The processes of those ranks whose numbers are a guess."""
        facts = [self.rank(rank) for rank in ranks]
        return tuple(RankProcess(one.rank, one.pid) for one in facts if one.rank_method == GUESSED and one.pid is not None)


CaseRoster = NewType("CaseRoster", Roster)
"""The roster by processes, dumps, stacks and settings; without what only logs tell."""
RecordedRanks = NewType("RecordedRanks", frozenset[int])
"""Ranks with a record of their calls."""
SeenProcesses = NewType("SeenProcesses", frozenset[int])
"""Ranks whose process a collector, or a launcher, looked at."""
UnplacedFiles = NewType("UnplacedFiles", int)
"""How many stacks and dumps are there of which nothing shows the rank."""

_UNPLACED = """
SELECT count(*) FROM sources
WHERE rank IS NULL AND kind IN ('python_stacks', 'flight_recorder') AND status <> 'ignored' AND rows > 0
"""

_UNRECORDED = "FROM operations WHERE backend = 'gloo' AND op_id > sequence AND NOT coalesce(is_p2p, false)"
# Traces list the groups of a rank too, and hold calls of a few steps alone.
_DUMPED_GROUPS = "FROM group_views WHERE source_id NOT IN (SELECT source_id FROM sources WHERE kind = 'kineto')"
_OF_EPOCHS = "FROM queue_pairs WHERE source_id IN (SELECT source_id FROM sources WHERE kind = 'nic_epochs')"


@reduction
def unplaced_files(connection: DuckDBPyConnection) -> UnplacedFiles:
    """Files without a rank of which one may be of a rank that seems to have left nothing."""
    ((count,),) = connection.execute(_UNPLACED).fetchall()
    return UnplacedFiles(count)


@reduction
def recorded_ranks(roster: Roster) -> RecordedRanks:
    """Ranks that left a dump, or a log of their calls in its place."""
    return RecordedRanks(frozenset(rank for rank, facts in roster.ranks.items() if facts.has_recorder))


@reduction
def seen_processes(roster: Roster) -> SeenProcesses:
    """Ranks of which some state of the process is known."""
    return SeenProcesses(frozenset(rank for rank, facts in roster.ranks.items() if facts.state or facts.thread_states))


def read_roster(connection: DuckDBPyConnection, working: Mapping[int, int] | None = None) -> Roster:
    """Read the roster of a case; ranks without any trace are present with every field unknown.

    `working` are the threads that run the job, by rank, where that is not the first one of the process.
    """
    processes = _processes(connection)
    main_threads = _main_threads(connection, working or {})
    recorders = _ranks_of(connection, "operations", "FROM latest_call") | _ranks_of(connection, "group_views", _DUMPED_GROUPS)
    read = "FROM sources WHERE kind = 'flight_recorder' AND status"
    dumped = _ranks_of(connection, "sources", f"{read} IN ('ok', 'partial')")
    damaged = _ranks_of(connection, "sources", f"{read} = 'partial'") if dumped else set()
    timed_out = _ranks_of(connection, "log_events", "FROM log_events WHERE kind = 'watchdog_timeout'")
    unrecorded = _ranks_of(connection, "operations", _UNRECORDED)
    stacks = _ranks_of(connection, "stacks", "FROM stacks WHERE NOT is_child")
    hosts = hosts_of_ranks(connection)
    nics = _ranks_of(connection, "captures", "FROM captures JOIN sources USING (source_id) WHERE nic IS NOT NULL")
    nics |= _ranks_of(connection, "queue_pairs", _OF_EPOCHS)
    known = set(processes) | set(main_threads) | recorders | stacks | nics | _members(connection)
    world_size = _world_size(connection, max(known, default=-1))
    blank = RankFacts(rank=-1)
    facts = {}
    for rank in sorted(known | set(range(world_size or 0))):
        fields = {"host": hosts.get(rank), **processes.get(rank, {})}
        facts[rank] = replace(
            main_threads.get(rank, blank),
            rank=rank,
            has_recorder=rank in recorders,
            dumped=rank in dumped,
            has_stack=rank in stacks,
            recorder_damaged=rank in damaged,
            timed_out=rank in timed_out,
            calls_unrecorded=rank in unrecorded,
            **fields,
        )
    return Roster({rank: _last_seen(known) for rank, known in facts.items()}, world_size)


def _last_seen(facts: RankFacts) -> RankFacts:
    """A process that lived when it was found and was dead in the last sample ended in between."""
    if facts.thread_states[-1:] in (("Z",), ("X",)) and facts.state in (None, "alive", "unknown"):
        return replace(facts, state="zombie", state_source=facts.process_source)
    return facts


def _world_size(connection: DuckDBPyConnection, highest: int) -> int | None:
    """The size that the configuration tells, else the largest group that can hold the `highest` rank, else a gather.

    A short record may have calls of the groups of a tensor or a replica only, and then its largest group is not the job.
    """
    query = "SELECT max(size) FROM communicators WHERE method = 'reported'"
    ((reported,),) = rows_of(connection, "communicators", query) or [(None,)]
    largest = int(reported) if reported and highest < reported else None
    return configured_world_size(connection) or largest or gathered_world_size(connection)


def _processes(connection: DuckDBPyConnection) -> dict[int, dict[str, Any]]:
    rows = rows_of(
        connection,
        "ranks",
        """
        SELECT r.rank, r.host, r.pid, r.state, s.path, r.rank_method, r.exit_signal, r.exit_code
        FROM ranks r LEFT JOIN sources s USING (source_id) ORDER BY r.rank, r.state IS NOT NULL, s.path DESC
        """,
    )
    names = ("host", "pid", "state", "state_source", "rank_method", "exit_signal", "exit_code")
    found = {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}
    absent = {rank for rank, fields in found.items() if fields["state"] == "absent"}
    for rank in absent & met_later(connection) if absent else ():
        found[rank]["state"] = "unknown"
    return {rank: {name: value for name, value in fields.items() if value is not None} for rank, fields in found.items()}


def _main_threads(connection: DuckDBPyConnection, working: Mapping[int, int]) -> dict[int, RankFacts]:
    rows = rows_of(
        connection,
        "processes",
        f"""
        SELECT p.rank, state, wchan, tracer, switches, s.path, cpu_ticks, time_ns, pid, timed, waits_on, kernel_stack,
            written_bytes FROM processes p LEFT JOIN sources s USING (source_id)
        WHERE {of_main_threads(working)} AND NOT p.is_child AND p.rank IS NOT NULL ORDER BY p.rank, p.sample, s.path
        """,
    )
    samples = defaultdict(list)
    for rank, *sample in rows:
        samples[rank].append(sample)
    return {rank: _main_thread(seen) for rank, seen in samples.items()}


def _main_thread(samples: list[list[Any]]) -> RankFacts:
    _, wchan, tracer, _, path, _, _, pid, _, files, _, _ = samples[-1]
    counts = [sample[3] for sample in samples if sample[3] is not None]
    return RankFacts(
        rank=-1,
        pid=pid if len({sample[7] for sample in samples}) == 1 else None,
        thread_states=tuple(sample[0] for sample in samples if sample[0]),
        sampled=any(sample[6] is not None for sample in samples),
        wchan=wchan if wchan not in ("0", "") else None,
        tracer=tracer,
        switches=counts[-1] - counts[0] if len(counts) > 1 else None,
        cpu_share=cpu_share([(sample[5], sample[6]) for sample in samples]),
        wakes_per_s=wakes_per_s([(each[3], each[6], each[1]) for each in samples]),
        waits_on=tuple((files or "").splitlines()) if len({sample[9] for sample in samples}) == 1 else (),
        fed=is_fed([Look(each[1], each[8], each[3], each[10]) for each in samples]),
        written_bytes=least_growth([each[11] for each in samples]),
        mean_written_bytes=mean_growth([each[11] for each in samples]),
        process_source=path,
    )


def _ranks_of(connection: DuckDBPyConnection, table: str, rows_with: str = "") -> set[int]:
    """Ranks in these rows; there are none while `table` is empty."""
    rows = rows_of(connection, table, f"SELECT DISTINCT rank {rows_with or f'FROM {table}'}")
    return {rank for (rank,) in rows if rank is not None}


def _members(connection: DuckDBPyConnection) -> set[int]:
    return _ranks_of(connection, "members", "FROM members JOIN communicators USING (communicator) WHERE method <> 'peers'")
