# ruff: noqa: D102
"""The reduced job, for those who still ask for all of it: every field is a reduction of the supply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.frontier.reading import FrontierWindows
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.events import LogEvent, LogEvents, Logs
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.progress.liveness import Liveness
from forensics.rules.reductions.progress.standstill import WaitStates
from forensics.rules.reductions.ranks.roster import RankFacts, RecordedRanks, Roster, SeenProcesses
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLogs, WorkRequestLogs
from forensics.rules.reductions.ras.report import Ras
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.samples import StacksByRank, activity_of
from forensics.rules.reductions.waits.combined_positions import Positions
from forensics.rules.reductions.waits.graph import WaitGraph
from forensics.rules.supply import Supply

_KINDS = {
    "recorder": RecordedRanks,
    "stacks": StacksByRank,
    "processes": SeenProcesses,
    "logs": Logs,
    "ras": Ras,
    "shim": ShimLogs,
    "chunks": ChunkLogs,
    "work_requests": WorkRequestLogs,
    "stages": FrontierWindows,
}


@dataclass(frozen=True, slots=True)
class Job:
    """All reductions of one case by name; a rule asks for their types instead."""

    supply: Supply

    @property
    def roster(self) -> Roster:
        return self.supply.get(Roster)

    @property
    def groups(self) -> Communicators:
        return self.supply.get(Communicators)

    @property
    def stacks(self) -> StacksByRank:
        return self.supply.get(StacksByRank)

    @property
    def placed(self) -> Positions:
        return self.supply.get(Positions)

    @property
    def graph(self) -> WaitGraph:
        return self.supply.get(WaitGraph)

    @property
    def wait_states(self) -> WaitStates:
        return self.supply.get(WaitStates)

    @property
    def liveness(self) -> Liveness:
        return self.supply.get(Liveness)

    @property
    def ras(self) -> Ras:
        return self.supply.get(Ras)

    @property
    def logged(self) -> Logged:
        return self.supply.get(Logged)

    @property
    def shim(self) -> ShimLogs:
        return self.supply.get(ShimLogs)

    @property
    def frontier(self) -> FrontierWindows:
        return self.supply.get(FrontierWindows)

    @property
    def logs(self) -> Mapping[int, tuple[LogEvent, ...]]:
        return self.supply.get(LogEvents).by_rank

    @property
    def calls_from_shim(self) -> bool:
        return self.supply.get(Calls).from_shim

    @property
    def logged_only(self) -> frozenset[int]:
        """Ranks whose calls are those of a shim log: they left no dump."""
        calls = self.supply.get(Calls)
        return calls.logged - calls.dumped

    @property
    def available(self) -> frozenset[str]:
        return frozenset(word for word, evidence in _KINDS.items() if self.supply.get(evidence))

    def rank(self, rank: int) -> RankFacts:
        """Return the facts of a rank; unknown everywhere for a rank without trace."""
        return self.roster.rank(rank)

    def activity(self, rank: int) -> Activity | None:
        """Newest activity of the rank's main thread."""
        return activity_of(self.stacks, rank)

    def waiters(self, rank: int) -> tuple[int, ...]:
        """Ranks that wait for `rank`, directly or through others."""
        return self.graph.waiters(rank)


@reduction
def reduced_job(supply: Supply) -> Job:
    """The supply by another name."""
    return Job(supply)
