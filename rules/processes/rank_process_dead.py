"""A rank's process is gone while its peers wait for it."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator

from forensics.model import (
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Role,
    StageName,
    StageRef,
)
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.logs.aborts import device_error, heap_error
from forensics.rules.reductions.logs.events import LogEvent, LogEvents
from forensics.rules.reductions.logs.failures import may_be_the_program
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.logs.process_exit import Exit
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, mismatch_of_sizes
from forensics.rules.reductions.mismatch.refused_sizes import RefusedSizes, raised_at
from forensics.rules.reductions.ranks.roster import RankFacts, Roster, SeenProcesses
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.text.ends import end_text
from forensics.rules.reductions.text.evidence_text import EvidenceText, ranks_text
from forensics.rules.reductions.text.seen import Seen
from forensics.rules.reductions.waits.graph import WaitGraph

_ENDED_BY_LAUNCHER = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
_DEVICE_MEMORY = re.compile(r"(?:CUDA|HIP|NPU|XPU).{0,40}out of memory|OutOfMemoryError|OOM when allocating|ResourceExhausted")


def _evaluate(
    roster: Roster,
    graph: WaitGraph,
    blocking: BlockingMismatches,
    logs: LogEvents,
    logged: Logged,
    text: EvidenceText,
    refused: RefusedSizes,
    errors: GpuErrors,
) -> Iterator[Finding]:
    gone = [facts for _, facts in sorted(roster.ranks.items()) if facts.dead]
    nodes = _lost_nodes(logged, gone)
    yield from (_lost_node(graph, text, node, ranks) for node, ranks in nodes.items())
    for facts in gone:
        if any(facts.rank in ranks for ranks in nodes.values()):
            continue
        if facts.exit_code != 0 or graph.waiters(facts.rank):
            lost = _lost_its_peer(logs, facts) and (len(gone) > 1 or _seen_by_launcher(logged, facts) is not None)
            follows = (
                lost
                or _met_odd_sizes(blocking, logs, facts)
                or _gave_up_waiting(graph, facts)
                or _ended_after_first(logged, facts)
            )
            found = errors.refined_end(_finding(roster, graph, logs, logged, text, facts, follows), facts.error)
            unknown = found.cause is Cause.SHAPE_MISMATCH and mismatch_of_sizes(blocking) is None
            yield refused.weighed(found) if unknown else found
    if gone:
        survivors = [roster.rank(rank) for rank in logs.by_rank if _lost(logs, rank) and not roster.rank(rank).dead]
        yield from (_finding(roster, graph, logs, logged, text, facts, cascade=True) for facts in survivors)


def _gave_up_waiting(graph: WaitGraph, facts: RankFacts) -> bool:
    """Whether the rank was ended by its watchdog inside a call: it waited, whoever kept it waiting is somebody else."""
    whom = graph.waits_for.get(facts.rank)
    return facts.aborted and whom is not None and (bool(whom) or facts.timed_out)


def _seen_by_launcher(logged: Logged, facts: RankFacts) -> Exit | None:
    """How the launcher's log says the rank ended, where nothing but the log says that it did."""
    return next((end for end in logged.exits if end.rank == facts.rank and end.source == facts.state_source), None)


def _ended_after_first(logged: Logged, facts: RankFacts) -> bool:
    """Whether the launcher ended the rank because another one had failed: it marks the one that it saw fail first."""
    first = {end.rank for end in logged.exits if end.first}
    return bool(first) and facts.rank not in first and facts.exit_signal in _ENDED_BY_LAUNCHER


def _met_odd_sizes(blocking: BlockingMismatches, logs: LogEvents, facts: RankFacts) -> bool:
    """Whether the rank ended because another one brought sizes that do not fit: whoever meets them first aborts."""
    own = _own_exception(logs, facts.rank)
    mismatch = mismatch_of_sizes(blocking) if own is not None and own.kind == "size_mismatch" else None
    return mismatch is not None and facts.rank not in mismatch.odd


def _finding(
    roster: Roster, graph: WaitGraph, logs: LogEvents, logged: Logged, text: EvidenceText, facts: RankFacts, cascade: bool
) -> Finding:
    own = _own_exception(logs, facts.rank)
    failure = logged.failures.own.get(facts.rank)
    of_gpu = failure.of_gpu if failure is not None else device_error(logged, facts) is not None
    cause = Cause.GPU_FAULT if of_gpu else _cause(facts, own)
    waits = graph.waiting_for(facts.rank)
    place = raised_at(logs.by_rank.get(facts.rank, ())) if own and own.kind == "exception" else None
    return Finding(
        ranks=(facts.rank,),
        role=Role.VICTIM if cascade else Role.ROOT,
        cause=cause,
        stage=text.stage_ref(facts.rank, place.stage if place else StageName.UNKNOWN, place, Component.HOST),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.LIKELY if cause is Cause.SHAPE_MISMATCH else _confidence(graph, logged, facts),
        rivals=tuple(_rivals(facts, own)),
        evidence=tuple(_evidence(logs, logged, text, facts, own, place)),
        since=text.since(waits),
        next_steps=_next_steps(facts, own, _shortage(logs, facts)),
    )


def _lost_nodes(logged: Logged, gone: Iterable[RankFacts]) -> dict[Exit, tuple[int, ...]]:
    """Ranks of each node that was lost as a whole, by one of their ends."""
    sources = {facts.rank: facts.state_source for facts in gone}
    lost = [end for end in logged.exits if end.node and sources.get(end.rank) == end.source]
    first = {end.node: end for end in reversed(lost)}
    return {end: tuple(other.rank for other in lost if other.node == node) for node, end in first.items()}


def _lost_node(graph: WaitGraph, text: EvidenceText, end: Exit, ranks: tuple[int, ...]) -> Finding:
    return Finding(
        ranks=ranks,
        cause=Cause.PROCESS_DEAD,
        stage=StageRef(name=StageName.UNKNOWN, component=Component.HOST),
        belief=Belief.DIRECT_RECORD,
        confidence=Confidence.LIKELY,
        evidence=(Evidence(f"node {end.node} was lost, with {ranks_text(ranks)} on it", end.source),),
        granularity=Granularity.HOST,
        since=text.since(graph.waiting_for(end.rank)),
        next_steps=(f"check {end.node}: its kernel log, its console, memory and network when it was lost",),
    )


def _cause(facts: RankFacts, own: LogEvent | None) -> Cause:
    if own is not None and own.kind == "size_mismatch":
        return Cause.SHAPE_MISMATCH
    if facts.exit_signal is None and (own is not None or _is_known(facts)):
        return Cause.PYTHON_EXCEPTION
    if facts.exit_signal is None and facts.exit_code == 0:
        return Cause.EXTRA_OR_MISSING_COLLECTIVE
    return Cause.PROCESS_DEAD


def _is_known(facts: RankFacts) -> bool:
    """Whether others tell of the exception that it raised."""
    return facts.error is not None and "CheckpointException" in facts.error


def _confidence(graph: WaitGraph, logged: Logged, facts: RankFacts) -> Confidence:
    by_device, seen = device_error(logged, facts), _seen_by_launcher(logged, facts)
    corrupted = heap_error(logged, facts)
    is_abort = facts.aborted and not (by_device or corrupted)
    unexplained = facts.rank not in logged.failures.own and (facts.exit_signal is None or is_abort)
    if unexplained and seen:
        return Confidence.SUSPECT  # of watchdogs that all give up one is the first to abort
    if facts.exit_signal is None and seen and not (seen.first or seen.time or seen.pid):
        return Confidence.LIKELY  # what stands alone was not seen to be the first: others may raise the same
    if facts.exit_signal == signal.SIGKILL and seen and seen.by_mpi and not (seen.first or seen.time or seen.is_out_of_memory):
        return Confidence.LIKELY  # of a launcher that does not say who was first: it kills those that are left in the same way
    if corrupted or (by_device and may_be_the_program(by_device)):
        return Confidence.LIKELY
    tables = {end.table for end in logged.exits if end.first and end.rank != facts.rank}
    if (seen and seen.table in tables) or any(end.rank == facts.rank and end.is_local for end in logged.exits):
        return Confidence.LIKELY  # another one was seen to fail first, or its number is that on its host
    # Of a job that stood still before, somebody may have ended one that had entered all that its peers wait in.
    is_behind = any(facts.rank not in wait.lost for wait in graph.waiting_for(facts.rank))
    is_known = facts.exit_signal is not None or facts.exit_code is not None or is_behind
    return Confidence.CONFIRMED if is_known else Confidence.LIKELY


def _rivals(facts: RankFacts, own: LogEvent | None) -> Iterator[str]:
    """A signal that launchers send, or an exit that nothing explains, may be the end of a rank that another one took along."""
    if facts.exit_signal in _ENDED_BY_LAUNCHER:
        yield "a launcher ends all ranks with this signal when one has failed"
    elif facts.exit_signal is None and own is None and not _is_known(facts):
        yield "exit reason unknown: it may have ended because another one did"


def _evidence(
    logs: LogEvents, logged: Logged, text: EvidenceText, facts: RankFacts, own: LogEvent | None, place: Activity | None
) -> Iterator[Evidence]:
    ended = Evidence(end_text(facts, _seen_by_launcher(logged, facts)), facts.state_source)
    where = f", raised at {place.describe()}" if place else ""
    raised = (Evidence(f"its log ends with {own.text}{where}", own.source),) if own else ()
    # What it raised shows more than the code that it then ended with.
    yield from (*raised, ended) if facts.exit_code else (ended, *raised)
    if by_device := device_error(logged, facts):
        yield by_device
        if may_be_the_program(by_device):
            yield Evidence("a kernel of the program itself causes this error as well", None, supports=False)
    if corrupted := heap_error(logged, facts):
        yield corrupted
    first = next((end for end in logged.exits if end.rank == facts.rank and end.first), None)
    if first:
        yield Evidence(f"its launcher saw rank {facts.rank} fail first of its node", first.source)
    yield from text.waiters(facts.rank)
    yield from text.kernel.get(facts.rank, ())
    if facts.exit_signal == signal.SIGKILL and (short := text.memory.get(facts.host)):
        yield short
    for rank, events in logs.by_rank.items():
        lost = next((event for event in events if event.kind == "peer_closed"), None)
        if lost and rank != facts.rank:
            yield Evidence(f"rank {rank} saw a connection closed by a peer: {lost.text}", lost.source)
    for event in (*logs.of_hosts, *logs.by_rank.get(facts.rank, ())):
        if event.kind == "oom_kill" and event.subject == str(facts.pid):
            yield Evidence(f"the kernel's OOM killer ended pid {facts.pid}: {event.text}", event.source)


def _own_exception(logs: LogEvents, rank: int) -> LogEvent | None:
    """What ended the rank by its own log: sizes that did not fit, else its last exception unless that reports a lost peer."""
    events = logs.by_rank.get(rank, ())
    sizes = [event for event in events if event.kind == "size_mismatch"]
    found = [event for event in events if event.kind == "exception"]
    if sizes:
        return sizes[-1]
    return found[-1] if found and not _lost(logs, rank) else None


def _lost(logs: LogEvents, rank: int) -> bool:
    return any(event.kind == "peer_closed" for event in logs.by_rank.get(rank, ()))


def _lost_its_peer(logs: LogEvents, facts: RankFacts) -> bool:
    """Whether the rank died because another went first: its log says so and no signal ended it."""
    ended_outside = facts.exit_signal is not None and facts.exit_signal not in (signal.SIGABRT, *_ENDED_BY_LAUNCHER)
    return _lost(logs, facts.rank) and not ended_outside


def _shortage(logs: LogEvents, facts: RankFacts) -> str | None:
    """The line by which the kernel, or the scheduler for it, says that the process was killed for memory."""
    if facts.exit_signal != signal.SIGKILL:
        return None
    said = [event for event in (*logs.by_rank.get(facts.rank, ()), *logs.of_hosts) if event.kind == "oom_kill"]
    own = (
        event for event in said if event.subject == str(facts.pid) or (facts.pid is None and "StepId" in (event.subject or ""))
    )
    return next((event.text for event in own), None)


def _next_steps(facts: RankFacts, own: LogEvent | None, shortage: str | None) -> tuple[str, ...]:
    """What to look at, by what is known of the end."""
    where = f" on {facts.host}" if facts.host else ""
    if shortage is not None:
        return (
            f"see what held the memory{where}: the kernel's report lists all processes, and the limit of the step or the pod",
            f"compare the resident memory of rank {facts.rank}, with its data loader workers, with that of its peers",
        )
    if own is not None and _DEVICE_MEMORY.search(own.text):
        return (
            f"compare the memory of rank {facts.rank}'s GPU with its peers' (nvidia-smi): other processes, a longer batch",
            "alike on all ranks, the settings leave too little for the largest batch: the node is not to blame",
        )
    return (
        f"read the end of rank {facts.rank}'s log and the kernel log{where} for the reason of the exit",
        "check for an OOM kill, a scheduler kill or a core file before the node is blamed",
    )


def _clears(seen: Seen, roster: Roster) -> str | None:
    alive = [rank for rank, facts in roster.ranks.items() if facts.state == "alive"]
    return f"{len(alive)} of {len(seen.ranks)} rank processes are alive" if seen.all_in(alive) else None


RULE = Rule(
    code="FX101",
    name="rank-process-dead",
    seed="Flight Recorder practice",
    needs=(Need(SeenProcesses, "processes", "only an inspection of the host shows that a process is gone"),),
    concludes="The rank whose process ended first; peers that died of the lost connection are victims.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
