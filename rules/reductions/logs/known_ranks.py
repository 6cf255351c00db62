"""The roster of the job, with what only logs tell of its ranks."""

from __future__ import annotations

from dataclasses import replace

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.killed import with_killed
from forensics.rules.reductions.logs.log_evidence import Logged, heard_in_logs
from forensics.rules.reductions.logs.work import WorkInLogs
from forensics.rules.reductions.ranks.roster import CaseRoster, RankFacts, Roster, read_roster
from forensics.rules.reductions.ranks.shim_logs import LEAST_HEARTBEAT_GAP_NS, ShimLogs, heartbeat_gaps
from forensics.rules.reductions.stacks.samples import StacksByRank, working_threads


@reduction
def case_roster(calls: Calls, shim: ShimLogs, stacks: StacksByRank) -> CaseRoster:
    """Note which processes showed no life any more when their log was taken, and whose calls are not all known."""
    known = read_roster(calls.connection, working_threads(stacks))
    gaps = {rank: gap for rank, gap in heartbeat_gaps(shim.values()).items() if gap >= LEAST_HEARTBEAT_GAP_NS}
    noted = {
        rank: replace(
            facts, heartbeat_gap_ns=gaps.get(rank), calls_unrecorded=facts.calls_unrecorded or rank in calls.undetermined
        )
        for rank, facts in known.ranks.items()
        if rank in gaps or rank in calls.undetermined
    }
    return CaseRoster(replace(known, ranks={**known.ranks, **noted}))


@reduction
def known_ranks(known: CaseRoster, heard: Logged, work: WorkInLogs, calls: Calls) -> Roster:
    """All ranks of the job; one that the others wait for is one of them, whether a line names it or not."""
    roster = with_killed(calls, heard_in_logs(known, heard), heard)
    if work.found is None or work.found.wait.rank in roster.ranks:
        return roster
    return replace(roster, ranks=dict(sorted({**roster.ranks, work.found.wait.rank: RankFacts(work.found.wait.rank)}.items())))
