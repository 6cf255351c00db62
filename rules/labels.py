"""Labels of a verdict: what limits it, what contradicts itself, and what accuses nobody although it is bad news."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Label, Outcome, RankProcess, RuleOutcome, Suspect
from forensics.rules.arbitration import Judgement
from forensics.rules.engine import FAILED
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.epochs.gaps import gap_ns, hides
from forensics.rules.reductions.epochs.links import LinkRates
from forensics.rules.reductions.epochs.unplaced import UnplacedNics
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.hardware.host_errors import HostErrors
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.step_shape import StepShape
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.speed import Speed
from forensics.rules.reductions.ranks.roster import RecordedRanks, Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.evidence_text import counted, ranks_text
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.vocabulary import GUESSED, StageName

_MOST_ERRORS = 4
_MOST_PROCESSES = 8


# Ports whose traffic was counted at two times, and the time between two reads (ns; the shortest of any port).
_COUNTED = """
WITH reads AS (
    SELECT coalesce(c.host, s.host) AS host, c.device, count(DISTINCT c.time_ns) AS times,
           (max(c.time_ns) - min(c.time_ns)) / (count(DISTINCT c.time_ns) - 1) AS apart
    FROM counters c JOIN sources s USING (source_id) WHERE c.counter = 'port_xmit_data' AND c.time_ns IS NOT NULL
    GROUP BY ALL HAVING times > 1
)
SELECT count(*), min(apart) FROM reads HAVING count(*) > 0
"""


def limits(
    connection: DuckDBPyConnection,
    judged: Judgement,
    outcome: Outcome,
    roster: Roster,
    recorded: RecordedRanks,
    stacks: StacksByRank,
    windows: FrontierWindows,
    calls: Calls,
    placed: Positions,
    layout: Layout,
    shape: StepShape,
    motion: Liveness,
    pace: Speed,
    errors: GpuErrors,
    of_hosts: HostErrors,
    rates: LinkRates,
    nics: UnplacedNics,
) -> Iterator[Label]:
    """What the verdict would need, what contradicts itself, and what it could not use."""
    blind = [r for r, facts in roster.ranks.items() if not (facts.has_recorder or facts.has_stack or facts.dead)]
    if blind and len(blind) < len(roster.ranks):
        yield Label("telemetry_limited", "ranks", f"neither dump nor stack of {ranks_text(blind)}")
    if calls.from_shim:
        why = "no Flight Recorder dump: calls are read from shim logs, which show completion between hosts only"
        yield Label("telemetry_limited", "recorder", why)
    elif calls.logged_only:
        yield Label("telemetry_limited", "recorder", f"calls of {ranks_text(calls.logged_only)} are read from shim logs alone")
    elif not recorded and not windows:
        others = "logs, processes and captures of NICs" if rates.captures else "logs and processes"
        source = "stacks" if stacks else others
        yield Label("telemetry_limited", "recorder", f"no Flight Recorder dump: waits are read from {source} only")
    if not stacks and not windows:
        known = judged.suspects and all(suspect.stage.name is not StageName.UNKNOWN for suspect in judged.suspects)
        what = "what the other ranks do is not seen" if known else "the training stage cannot be read"
        yield Label("telemetry_limited", "stacks", f"no stacks: {what}")
    if outcome is not Outcome.SLOWDOWN:
        yield from _motion_labels(motion, pace, judged.suspects)
    for found in placed.contradictions:
        said = "; ".join(f"{statement} ({source})" for statement, source in found.statements)
        yield Label("contradiction", "positions", f"{said}: these cannot both be of one moment, and the recorder decides")
    belied = (*layout.contradictions, *shape.contradictions)
    yield from (Label("contradiction", "layout", said) for said in belied[:_MOST_ERRORS])
    yield from _error_labels(errors, judged.suspects)
    yield from _epoch_labels(rates)
    yield from _nic_labels(connection, rates, nics, is_alone=not (recorded or stacks))
    for line in of_hosts[:_MOST_ERRORS]:
        yield Label("telemetry_limited", "host", f"{line.statement} ({line.source}); its effect on the job is unknown")
    guessed = roster.guessed(roster.ranks)
    if guessed:
        why = f"{_numbered(guessed)} are numbered in the order of their hosts and ids, which is a guess"
        yield Label("telemetry_limited", "ranks", f"no file names the ranks: {why}")
    elif by_node := [rank for rank, facts in roster.ranks.items() if facts.rank_method == GUESSED]:
        why = f"the numbers of processes on their node are taken for {ranks_text(by_node)}, which they are in a job of one node"
        yield Label("telemetry_limited", "ranks", f"no file names the ranks: {why}")
    if roster.world_size is None:
        yield Label("telemetry_limited", "membership", "the world size is not known: absent ranks cannot be counted")


def _numbered(processes: Sequence[RankProcess]) -> str:
    shown = ", ".join(str(one.pid) for one in processes[:_MOST_PROCESSES])
    return f"processes {shown}" + (f" and {len(processes) - _MOST_PROCESSES} more" if len(processes) > _MOST_PROCESSES else "")


def _error_labels(errors: GpuErrors, suspects: tuple[Suspect, ...]) -> Iterator[Label]:
    """Errors of GPUs that accuse nobody: their rank is not known, or nobody is known to wait for it."""
    shown = {line.source for suspect in suspects for line in suspect.evidence}
    for error in [error for error in errors.unplaced if error.source not in shown][:_MOST_ERRORS]:
        where = f"GPU {error.address}" + (f" of {error.host}" if error.host else "")
        said = f"{error.teller} reports of {where}: {error.meaning} ({error.source}); which rank uses it is unknown"
        yield Label("telemetry_limited", "gpu", said)
    accused = {rank for suspect in suspects for rank in suspect.ranks}
    for rank in [rank for rank in errors.by_rank if rank not in accused][:_MOST_ERRORS]:
        found = errors.statement(rank)
        yield Label("telemetry_limited", "gpu", f"{found.statement} ({found.source}); it does not explain what was observed")


def _epoch_labels(rates: LinkRates) -> Iterator[Label]:
    """Epochs that are longer than the gaps which a NIC of half the rate leaves on the others (Pulse 6.1)."""
    fastest = max((link.rate for link in rates.links), default=0.0)
    if fastest and hides(rates.epoch_ns, fastest, 2.0):
        gap = f"gaps of {gap_ns(fastest, 2.0) / 1e3:.0f} us that a NIC of half the rate leaves on the others"
        yield Label("telemetry_limited", "epochs", f"NIC epochs of {rates.epoch_ns / 1e3:.0f} us do not show {gap}")


def _nic_labels(connection: DuckDBPyConnection, rates: LinkRates, nics: UnplacedNics, *, is_alone: bool) -> Iterator[Label]:
    """Captures that tell no rank; and what counters of ports cannot show, where there is little beside them."""
    if nics:
        whose = "a map of queue pairs beside them (CSV: host,nic,queue_pair,rank) lets rules judge them"
        yield Label("telemetry_limited", "ranks", f"captures of {counted(len(nics.names), 'NIC')} tell no rank: {whose}")
    is_seen = bool(rates.captures or nics) or not is_alone
    for ports, apart in () if is_seen else rows_of(connection, "counters", _COUNTED):
        unseen = f"between whom data moved, nor gaps of less than {apart / 1e9:.3g} s: captures of NICs in epochs do"
        yield Label("telemetry_limited", "epochs", f"counters of {counted(ports, 'port')} do not show {unseen}")


def _motion_labels(motion: Liveness, pace: Speed, suspects: tuple[Suspect, ...]) -> Iterator[Label]:
    if motion.motion is Motion.UNSEEN and not motion.shown:
        yield Label("telemetry_limited", "liveness", f"{motion.reason}: a progressing job can look like this")
    if motion.motion is Motion.TOO_EARLY and not motion.shown:
        yield Label("telemetry_limited", "liveness", f"too early to call it a hang: {motion.reason}")
    if motion.shown and not suspects and not pace.was_measured:
        yield Label(
            "telemetry_limited",
            "speed",
            f"job is progressing; slowdowns cannot be detected without step timings ({pace.reason})",
        )


def failures(outcomes: Iterable[RuleOutcome]) -> Iterator[Label]:
    """Rules that say nothing because of a mistake of their own."""
    return (Label("rule_failed", outcome.rule, outcome.reason) for outcome in outcomes if outcome.status == FAILED)
