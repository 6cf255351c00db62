"""What a rank that holds the others up does on its host: waits for a lock, loops, compiles or collects garbage."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from forensics.model import WaitKind
from forensics.rules.reductions.host.interpreter_lock import LockHolders
from forensics.rules.reductions.host.stalls import Stall, is_leaving
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.children import ChildProcess, ChildProcesses
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks import stage_patterns as patterns
from forensics.rules.reductions.stacks.activity import words_of
from forensics.rules.reductions.stacks.call_paths import CallPath, Frame
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank

# Half a CPU: a thread that polls with pauses stays far below, a loop is at one.
BUSY_SHARE = 0.5
# Below a tenth somebody waits for something else than the CPU.
IDLE_SHARE = 0.1
LOCKS = frozenset({WaitKind.LOCK, WaitKind.FILE_LOCK})
# The module and the function it calls.
ENTRY_FRAMES = 2


class HostWork(StrEnum):
    """The kinds that have a rule of their own."""

    LOCK = "lock"
    BUSY = "busy"
    COMPILE = "compile"
    COLLECT = "collect"
    OTHER = "other"


@reduction
@dataclass(frozen=True, slots=True)
class HostSigns:
    """What shows of the host of a rank beside the place of its main thread."""

    roster: Roster
    stacks: StacksByRank
    children: ChildProcesses
    holders: LockHolders

    def work(self, stall: Stall, busy_share: float = BUSY_SHARE) -> HostWork:
        """Tell what the stalled rank does; `OTHER` also where a rule on its stage says more."""
        activity = stall.activity
        if activity is None or stall.explained or is_leaving(stall):
            return HostWork.OTHER
        if compiling_frame(activity.path) or self.compiler(stall):
            return HostWork.COMPILE
        if collecting_frame(activity.path, self.on_cpu(stall.rank)):
            return HostWork.COLLECT
        if self.busy(stall.rank, busy_share):
            return HostWork.BUSY
        locked = activity.wait in LOCKS and stall.rank not in self.holders
        return HostWork.LOCK if locked and not self.moved(stall.rank) else HostWork.OTHER

    def compiler(self, stall: Stall) -> ChildProcess | None:
        """The compiler that the main thread of the rank waits for; the innermost of a chain of them."""
        if stall.activity is None or stall.activity.wait not in (WaitKind.CHILD, WaitKind.COMPILE):
            return None
        running = [child for child in self.children.get(stall.rank, ()) if child.running and child.compiles]
        return running[-1] if running else None

    def busy(self, rank: int, least_share: float) -> bool:
        """Whether the main thread keeps a CPU busy, in one function of the job over all of at least two samples."""
        found = self.stacks.get(rank)
        if found is None or looping_frame(found) is None or any(sample.activity.communicating for sample in found.main):
            return False
        facts = self.roster.rank(rank)
        if facts.cpu_share is None:
            return all(sample.active for sample in found.main)
        # On a crowded host a loop gets less than half a CPU, but it is runnable whenever it is looked at.
        runnable = len(facts.thread_states) > 1 and set(facts.thread_states) == {"R"}
        return facts.cpu_share >= (IDLE_SHARE if runnable else least_share)

    def on_cpu(self, rank: int) -> bool:
        """Whether the main thread used a CPU between the samples, as a collection of garbage does."""
        facts, found = self.roster.rank(rank), self.stacks.get(rank)
        if facts.cpu_share is None:
            return found is not None and bool(found.main) and all(sample.active for sample in found.main)
        return facts.cpu_share >= BUSY_SHARE

    def moved(self, rank: int) -> bool:
        """Whether the job's own code of the rank was at different places in its samples."""
        found = self.stacks.get(rank)
        return found is not None and found.moved


def compiling_frame(path: CallPath) -> Frame | None:
    """The innermost frame of a compiler of torch, Triton or an extension: frames that only run while code is compiled."""
    return next((entry for entry in path if entry.origin != "app" and _matches(patterns.COMPILING, entry)), None)


def at_prompt(path: CallPath) -> bool:
    """Whether a debugger or a console waits for a command, called by the job's own code."""
    return _called(path, patterns.PROMPTS) is not None


def serving_frame(path: CallPath) -> Frame | None:
    """The loop of a server that waits for a request, called by the job's own code: no handler of the job runs in it."""
    return _called(path, patterns.SERVERS)


def _called(path: CallPath, table: tuple[patterns.Pattern[str], ...]) -> Frame | None:
    """The innermost frame of a table below the innermost one of the job's own code."""
    below = takewhile(lambda entry: entry.origin != "app", path)
    return next((entry for entry in below if _matches(table, entry)), None)


def collecting_frame(path: CallPath, works: bool) -> Frame | None:
    """The frame that shows a garbage collection: native frames of the collector, or what a finalizer or the CPU bears out.

    The job's own word for it shows nothing of a thread that sleeps there: `works` says that it does not.
    """
    finalizes = False
    for entry in path:
        if entry.origin != "app" and _matches(patterns.COLLECTING, entry):
            return entry
        # What a finalizer does happens inside the collection that called it.
        finalizes = finalizes or entry.function == "__del__"
        if entry.origin == "app" and entry.function != "__del__":
            return entry if words_of(entry.name) & patterns.COLLECTING_WORDS and (works or finalizes) else None
    return None


def _matches(table: tuple[patterns.Pattern[str], ...], entry: Frame) -> bool:
    return any(row.module.match(entry.module) and row.function.match(entry.function) for row in table)


def looping_frame(found: Stacks) -> Frame | None:
    """The innermost function of the job's own code that all of at least two samples are in, in the newest one.

    What is next to the program's entry is in every sample of a job that moves, too: it is not a loop of its own.
    """
    paths = [tuple(entry for entry in sample.activity.path if entry.origin == "app") for sample in found.main]
    if len(paths) < 2:
        return None
    common = set.intersection(*({entry.plain[:2] for entry in path} for path in paths))
    newest = paths[-1][:-ENTRY_FRAMES]
    return next((entry for entry in newest if entry.plain[:2] in common), None)
