"""From an aligned case to a verdict: reduce, run the rules, arbitrate, and say what limits the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from duckdb import DuckDBPyConnection

from forensics.case.clock_offsets import clock_offsets
from forensics.case.database import read_only, recovering, rows_of
from forensics.model import (
    Anomaly,
    Assessment,
    Confidence,
    Finding,
    FrontierRow,
    Outcome,
    RuleOutcome,
    Since,
    Suspect,
    TreeLine,
    Verdict,
)
from forensics.rules.admission import Progress
from forensics.rules.arbitration import Judgement, arbitrate
from forensics.rules.began import dated
from forensics.rules.comparison import Cleared, Comparison
from forensics.rules.context import coverage, group_rows, last_lines, not_checked, timeline, warnings
from forensics.rules.defect_facts import shown_defects
from forensics.rules.engine import FAILED, Overrides, discover, find, run, supply_of, thresholds
from forensics.rules.explain import Observed, observed_in
from forensics.rules.facts.families import SourceFamilies, families
from forensics.rules.facts.symptoms import Findings, Symptoms, symptoms
from forensics.rules.labels import failures, limits
from forensics.rules.leads.first import begun_in_nccl, first_leads, of_speed, unproven
from forensics.rules.leads.frontier import frontier_leads, waits_least
from forensics.rules.leads.hosts import crowded_leads, host_leads, stopped_leads
from forensics.rules.leads.one_moment import as_leads, is_lead
from forensics.rules.leads.power import power_leads
from forensics.rules.leads.rounds import processor_leads, round_leads
from forensics.rules.leads.withheld import withheld_leads
from forensics.rules.located import located
from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.frontier.rows import frontier_labels, frontier_row
from forensics.rules.reductions.frontier.verdicts import regimes
from forensics.rules.reductions.hardware.cpu import HostCpu
from forensics.rules.reductions.host.outside import OutsideInputs
from forensics.rules.reductions.logs.finished import Finished
from forensics.rules.reductions.logs.log_evidence import Logged, only_logs, shows_the_end
from forensics.rules.reductions.network.went_wrong import JobOnset
from forensics.rules.reductions.pipeline.incomplete_graph import Stopped, incomplete_graph_row, stopped
from forensics.rules.reductions.pipeline.path_rows import critical_path_row
from forensics.rules.reductions.pipeline.rows import layout_row
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.speed import Pace, Speed
from forensics.rules.reductions.progress.standstill import Standing, WaitStates
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.stacks.tree import known_to_wait, stack_tree
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.reductions.text.evidence_text import ranks_text
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.soundness import held_against_each_other, sound, speed_of_sound, unrecorded_ranks
from forensics.rules.supply import Supply
from forensics.rules.unplaced_error import beside_error
from forensics.rules.victims import victims
from forensics.rules.would_change import would_change
from forensics.sharing.statements import without_secrets
from forensics.vocabulary import ONLY_IF

FRONTIER = "FX170"


def diagnose(connection: DuckDBPyConnection, overrides: Overrides | None = None) -> Verdict:
    """Diagnose a case; it gives the same verdict, without secrets, whatever the order its sources were read in."""
    supply = supply_of(connection, overrides)
    with read_only(connection):
        # What fails in one rule must not take the others along.
        findings, outcomes = run(supply, discover(), overrides or {}, partial(recovering, connection))
        return without_secrets(_verdict(connection, supply, findings, outcomes, overrides or {}))


def _verdict(
    connection: DuckDBPyConnection,
    supply: Supply,
    findings: tuple[Finding, ...],
    outcomes: tuple[RuleOutcome, ...],
    overrides: Overrides,
) -> Verdict:
    judged = judge(supply, Findings(findings), families(connection))
    placed = beside_error(connection, supply.call(located, {Judgement: judged}))
    judged = replace(judged, suspects=dated(placed, supply.get(JobOnset)))
    if lead := supply.call(is_lead, {Judgement: judged}):
        judged = replace(judged, suspects=as_leads(judged.suspects))
    suspects = judged.suspects
    roster, graph, motion = supply.get(Roster), supply.get(WaitGraph), supply.get(Liveness)
    cleared = Cleared({each.rule: each.reason for each in outcomes if each.status == "ruled_out"})
    signs, compared = held_against_each_other(connection, supply, findings, cleared)
    pace = speed_of_sound(supply.get(Speed), supply.get(StepTimes), compared, cleared)
    end = supply.get(Finished)
    healthy = sound(motion, pace, judged.symptoms, supply.call(unrecorded_ranks), signs, compared, end)
    heard, still = supply.get(Logged), _stands_still(graph, supply.get(WaitStates), roster)
    reported = "a report in the logs names ranks that did not come" if heard.overdue else still
    reason = "somebody gave up waiting" if heard.stalled else reported
    ended = shows_the_end(roster, heard)
    outcome = _outcome(roster, suspects, healthy, motion, pace, still=reason is not None, ended=ended, lead=lead)
    windows = frontier_rows(supply.get(FrontierWindows), overrides)
    groups = supply.call(group_rows)
    latest = {rank: found.latest for rank, found in supply.get(StacksByRank).items() if found.latest is not None}
    tree = stack_tree(known_to_wait(latest, graph.waits_for))
    nobody = not suspects and outcome is not Outcome.HEALTHY
    leads = _where_to_begin(supply, (stack_tree(latest), tree), judged, _steady(pace, signs, compared)) if nobody else ()
    return Verdict(
        outcome=outcome,
        summary=_summary(
            outcome, suspects, healthy, motion, pace, compared, graph, len(roster.ranks), reason, end, heard.how_it_ended
        ),
        since=_since(suspects),
        suspects=suspects,
        victims=victims(graph, suspects, findings) if suspects else (),
        labels=(*supply.call(limits, {Judgement: judged, Outcome: outcome}), *failures(outcomes), *frontier_labels(windows)),
        world_size=roster.world_size,
        tree=tree,
        groups=groups,
        timeline=supply.call(timeline),
        coverage=supply.call(coverage),
        not_checked=supply.call(not_checked),
        ruled_out=_ruled_out(outcomes, suspects),
        warnings=warnings(connection),
        leads=leads,
        would_change=(*leads, *would_change(roster, motion, pace, suspects, outcome)),
        bundle_sha256=_digest(connection),
        frontier=windows,
        symptoms=judged.symptoms,
        assessments=(*judged.assessments, healthy),
        last_lines=last_lines(connection, suspects),
        layout=supply.call(layout_row),
        clocks=clock_offsets(connection),
        critical_path=supply.call(critical_path_row) if outcome is Outcome.SLOWDOWN else None,
        incomplete_graph=supply.call(incomplete_graph_row, {Stopped: stopped(suspects)}),
        known_defects=() if outcome in (Outcome.HEALTHY, Outcome.SLOWDOWN) else shown_defects(connection, groups, suspects),
    )


def _stands_still(graph: WaitGraph, states: WaitStates, roster: Roster) -> str | None:
    """Why the job hangs whoever is to blame: a wait stands still, and nobody who was seen is elsewhere.

    Work of a rank that the others wait for ends by itself; where nobody is elsewhere nothing does. Of whom nothing is left, at
    most half of the job, nothing says that they are elsewhere: what the others show is that they do not go on.
    """
    for wait, state in zip(graph.waits, states, strict=True):
        unseen = set(wait.missing) <= set(wait.unheard) and all(roster.rank(rank).unseen for rank in wait.missing)
        if state.standing is Standing.STILL and (not wait.missing or (unseen and len(wait.waiting) > len(wait.missing))):
            left = f"; {ranks_text(wait.missing)} left neither dump nor stack" if wait.missing else ""
            return f"{state.reason}{left}"
    return None


def _steady(pace: Speed, signs: Sequence[str], compared: Comparison) -> Comparison | None:
    """What compared the ranks of a job at a steady speed; None where its speed is another one, or not known."""
    return compared if pace.pace is Pace.STEADY and not signs else None


def _where_to_begin(
    supply: Supply, trees: Sequence[tuple[TreeLine, ...]], judged: Judgement, steady: Comparison | None
) -> tuple[str, ...]:
    """What to look at first where nobody can be named; `trees` are stacks as seen, and with those who are known to wait.

    A job that moves has only what may make it slow, such as a rank that the others wait for again and again. At a `steady`
    speed none of it is a fault, but for one that works while the others wait where nothing compared the ranks.
    """
    if supply.get(Liveness).shown:
        if steady is not None:
            return () if steady.by else (*supply.call(power_leads), *round_leads(supply.get(StacksByRank)))
        stages = (*dict.fromkeys(supply.call(frontier_leads)), *supply.call(waits_least), *supply.call(power_leads))
        hardware = (*supply.call(of_speed), *supply.call(host_leads))
        of_ranks = (*round_leads(supply.get(StacksByRank)), *supply.call(processor_leads))
        first = (*stopped_leads(supply.get(Roster)), *crowded_leads(supply.get(HostCpu)))
        return (*first, *of_ranks, *stages, *hardware)
    heard = supply.get(Logged)
    awaited = () if heard.stalled else tuple(each.lead for each in supply.get(OutsideInputs).values())
    awaited = awaited or tuple(withheld_leads(judged.assessments, supply.get(Liveness)))
    in_rounds = () if awaited else tuple(round_leads(supply.get(StacksByRank)))
    apart = () if awaited or in_rounds else unproven(supply.get(Roster), trees, {*heard.ranks, *supply.call(begun_in_nccl)})
    return (*awaited, *in_rounds, *supply.call(first_leads), *supply.call(waits_least), *apart)


def judge(supply: Supply, findings: Findings, known: SourceFamilies) -> Judgement:
    """Explain what was observed by the findings."""
    seen = supply.call(symptoms, {Findings: findings})
    observed = supply.call(observed_in, {Symptoms: seen, SourceFamilies: known})
    return supply.call(arbitrate, {Findings: findings, Observed: observed, Progress: supply.call(Progress)})


def frontier_rows(windows: FrontierWindows, overrides: Overrides) -> tuple[FrontierRow, ...]:
    """Each window of recorded stages, by the gates in force."""
    rule = find(FRONTIER)
    gates = Gates.of(thresholds(rule, overrides)) if rule else Gates()
    return tuple(frontier_row(judged) for window in windows for judged in regimes(window, gates))


def _digest(connection: DuckDBPyConnection) -> str | None:
    query = "SELECT max(value) FROM job_config WHERE key = 'bundle.sha256'"
    rows = rows_of(connection, "job_config", query, kinds=("bundle.sha256",))
    return str(rows[0][0]) if rows and rows[0][0] else None


def _outcome(
    roster: Roster,
    suspects: tuple[Suspect, ...],
    healthy: Assessment,
    motion: Liveness,
    pace: Speed,
    *,
    still: bool,
    ended: bool,
    lead: bool,
) -> Outcome:
    facts = [f for f in roster.ranks.values() if f.state or f.sampled or f.stopped]
    if facts and all(f.dead for f in facts) and suspects:
        return Outcome.FAILSTOP
    if lead:
        return Outcome.INCONCLUSIVE
    if suspects:
        slow = all(suspect.anomaly is Anomaly.FAIL_SLOW for suspect in suspects)
        return Outcome.SLOWDOWN if slow else Outcome.HANG
    if healthy.withheld is None:
        return Outcome.HEALTHY
    if motion.shown:
        return Outcome.SLOWDOWN if pace.pace is Pace.SLOWER else Outcome.INCONCLUSIVE
    if still:
        return Outcome.HANG
    if ended:
        return Outcome.FAILSTOP
    return Outcome.SLOWDOWN if pace.in_log and only_logs(roster) else Outcome.INCONCLUSIVE


def _summary(
    outcome: Outcome,
    suspects: tuple[Suspect, ...],
    healthy: Assessment,
    motion: Liveness,
    pace: Speed,
    compared: Comparison,
    graph: WaitGraph,
    world: int,
    still: str | None,
    end: Finished,
    ended: str,
) -> str:
    if not suspects:
        if outcome is Outcome.HANG:
            return f"{outcome}: {still}, and nobody can be named"
        if outcome is Outcome.FAILSTOP:
            return f"{outcome}: {ended}"
        if outcome is Outcome.SLOWDOWN and pace.in_log:
            return f"{outcome}: {pace.reason}; nobody can be named"
        if outcome is Outcome.HEALTHY and end.text is not None:
            return f"{outcome}: the job finished, says {end.source}{f'; {pace.reason}' if pace.reason else ''}"
        progress = f"; {motion.progress}" if motion.progress else ""
        if outcome is Outcome.HEALTHY:
            known = f"{motion.progress or motion.reason}; {pace.reason}; {compared.by}"
            return f"{outcome}: {known}; what was before these steps, or slows all ranks alike, would not show"
        return f"{outcome}: {healthy.withheld if motion.shown and healthy.withheld else motion.reason + progress}"
    first = suspects[0]
    which = "one of " if first.members == "one_of" else ""
    waiting = {rank for suspect in first.ranks for rank in graph.waiters(suspect)} - set(first.ranks)
    tail = f"; {len(waiting)} of {world} ranks wait for it" if waiting else ""
    whom = f"{which}{ranks_text(first.ranks)}" if first.ranks else "the whole job"
    whom = f"{ONLY_IF[first.anomaly]}{whom}" if outcome is Outcome.INCONCLUSIVE else whom
    return f"{outcome}: {whom}, stage {first.stage.name}, {first.cause} ({first.confidence}){tail}"


def _since(suspects: tuple[Suspect, ...]) -> Since | None:
    stopped = [suspect for suspect in suspects if suspect.anomaly is Anomaly.FAIL_STOP]
    dated = [suspect.since for suspect in stopped or suspects if suspect.since]
    return min(dated, key=lambda since: (since.time_ns, since.clock)) if dated else None


def _ruled_out(outcomes: tuple[RuleOutcome, ...], suspects: tuple[Suspect, ...]) -> tuple[RuleOutcome, ...]:
    """Causes that were checked and found in order, then rules that lacked their evidence."""
    fired = {code for suspect in suspects for code in suspect.rules}
    kept = [outcome for outcome in outcomes if outcome.rule not in fired and outcome.status != "fired"]
    return tuple(sorted(kept, key=lambda o: (("ruled_out", FAILED, "silent", "not_applicable").index(o.status), o.rule)))


def culprit_named(suspects: tuple[Suspect, ...]) -> bool:
    """Whether the best suspect is more than a suspicion."""
    return bool(suspects) and suspects[0].confidence is not Confidence.SUSPECT
