"""A rank waits for a lock, a queue or a condition of its own process, or for a file lock, while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from forensics.model import Belief, Cause, Confidence, Evidence, Finding, StageName, WaitKind
from forensics.rules.interface import Maturity, Need, Rule
from forensics.rules.reductions.host.background import HelpedStalls, thread_statement
from forensics.rules.reductions.host.stalls import Stall, StallFindings
from forensics.rules.reductions.host.work import LOCKS, HostSigns, HostWork
from forensics.rules.reductions.ranks.file_locks import FileLocks
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.other_threads import may_hold
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank, activity_of, same_place
from forensics.rules.reductions.text.evidence_text import EvidenceText, child, ranks_text
from forensics.rules.reductions.text.seen import Seen

_MOST_THREADS = 3


def _evaluate(
    roster: Roster,
    stacks: StacksByRank,
    helped_stalls: HelpedStalls,
    stalled: StallFindings,
    signs: HostSigns,
    locks: FileLocks,
    text: EvidenceText,
) -> Iterator[Finding]:
    for owner, waiting in locks.items():
        yield _held(owner, waiting, stacks, text)
    for helped in helped_stalls:
        if signs.work(helped.stall) is HostWork.LOCK:
            yield _finding(roster, stacks, stalled, helped.stall)


def _held(owner: int, waiting: Mapping[int, str], stacks: StacksByRank, text: EvidenceText) -> Finding:
    """The rank whose process holds the lock that others wait for, whatever it does meanwhile."""
    ranks, files = ranks_text(waiting), ", ".join(sorted({*waiting.values()}))
    verb = "waits" if len(waiting) == 1 else "wait"
    found, source = activity_of(stacks, owner), text.roster.rank(min(waiting)).process_source
    return Finding(
        ranks=(owner,),
        cause=Cause.HOST_STALL,
        stage=text.stage_ref(owner, found.stage if found else StageName.UNKNOWN, found),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY,
        evidence=(
            Evidence(f"a process of rank {owner} holds the lock of {files}, for which {ranks} {verb}", source),
            *(each for rank in (owner, *sorted(waiting)[:_MOST_THREADS]) for each in text.stack(rank)),
        ),
        next_steps=(f"see where rank {owner} takes the lock of {files}, and why it keeps it",),
    )


def _finding(roster: Roster, stacks: StacksByRank, stalled: StallFindings, stall: Stall) -> Finding:
    holders = _others(stacks, stall)
    children = () if holders or _of_a_file(stall) else _busy_children(stacks[stall.rank])
    found = stalled.finding(stall, Cause.HOST_STALL, _next_steps(roster, stall, holders, children))
    shown = (*_holders(holders, stall), *(child(each, stall.rank) for each in children))
    evidence = (_waits(roster, stacks, stall), *shown, *found.evidence)
    return replace(found, evidence=evidence)


def _waits(roster: Roster, stacks: StacksByRank, stall: Stall) -> Evidence:
    activity, samples = stall.activity, stacks[stall.rank].main
    where = activity.describe() if activity else "no Python frames"
    what = _primitive(roster, stall)
    return Evidence(f"rank {stall.rank} waits for {what} in every stack sample, at {where}", samples[-1].source)


def _of_a_file(stall: Stall) -> bool:
    return stall.activity is not None and stall.activity.wait is WaitKind.FILE_LOCK


def _primitive(roster: Roster, stall: Stall) -> str:
    """Name what is waited for, as far as the frames and the kernel tell."""
    if _of_a_file(stall):
        wchan = roster.rank(stall.rank).wchan
        return f"a file lock (its main thread sleeps in {wchan})" if wchan else "a file lock"
    frame = stall.activity.call_frame if stall.activity else None
    if frame is None:
        return "a lock (its main thread sleeps on a futex)"
    if frame.module.endswith(("queue.py", "queues.py")):
        return "a queue"
    if "concurrent/futures" in frame.module:
        return "the result of a task in an executor"
    if frame.function in ("join", "_wait_for_tstate_lock"):
        return "another thread to end"
    return "a condition or event" if frame.function in ("wait", "wait_for") else "a lock"


def _others(stacks: StacksByRank, stall: Stall) -> tuple[Sample, ...]:
    """Threads at work in the job's own code: one of them may hold the lock; that of a file another process holds."""
    if _of_a_file(stall):
        return ()
    own = [thread for thread in stacks[stall.rank].latest_threads() if may_hold(thread)]
    # A thread that waits for a lock itself comes first: two that wait for each other never end.
    return tuple(sorted(own, key=lambda thread: thread.activity.wait is not WaitKind.LOCK))[:_MOST_THREADS]


def _busy_children(found: Stacks) -> tuple[Sample, ...]:
    """Child processes that stay in the job's own code: a pool has no result to hand out before they have."""
    own = [each for each in found.latest_children() if may_hold(each)]
    stays = (each for each in own if same_place([sample for sample in found.children if sample.pid == each.pid]))
    return tuple(stays)[:_MOST_THREADS]


def _holders(holders: tuple[Sample, ...], stall: Stall) -> Iterator[Evidence]:
    for thread in holders:
        seen = thread_statement(thread, stall.rank)
        also = "; it waits for a lock as well: the two may wait for each other" if thread.activity.wait is WaitKind.LOCK else ""
        yield replace(seen, statement=f"{seen.statement}{also}")


def _next_steps(roster: Roster, stall: Stall, holders: tuple[Sample, ...], children: tuple[Sample, ...]) -> tuple[str, ...]:
    where = stall.activity.application if stall.activity else None
    place = f" taken at {where}" if where else ""
    if _of_a_file(stall):
        host = roster.rank(stall.rank).host or "the host"
        return (
            f"find who holds the file lock{place}: lslocks on {host}, or the clients of the file server",
            "a process that died on another host may have left a lock on NFS or Lustre",
        )
    if children:
        pids, at = ", ".join(str(each.pid) for each in children), f" at {where}" if where else ""
        return (f"see what child process {pids} does: rank {stall.rank} may wait for its result{at}",)
    if not holders:
        return (f"find who should release what rank {stall.rank} waits for{place}; no other thread of the process is at work",)
    names = ", ".join(thread.name or str(thread.thread) for thread in holders)
    return (
        f"find which thread holds the lock{place}: {names} of pid {roster.rank(stall.rank).pid or holders[0].pid} is at work",
    )


def _clears(seen: Seen, helped_stalls: HelpedStalls) -> str | None:
    locked = [helped for helped in helped_stalls if helped.stall.activity and helped.stall.activity.wait in LOCKS]
    if locked or not seen.all_in(seen.sampled):
        return None
    return f"none of {len(seen.ranks)} ranks, each sampled more than once, holds the others up while it waits for a lock"


RULE = Rule(
    code="FX117",
    name="host-lock",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "only stacks and wait channels show a lock"),),
    concludes="A rank that every chain of waits ends in, in a lock, file lock, queue or condition, and its holder.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
