"""A rank compiles code or collects garbage while its peers wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Confidence, Evidence, Finding
from forensics.rules.interface import Maturity, Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.host.background import HelpedStalls
from forensics.rules.reductions.host.stalls import Stall, StallFindings
from forensics.rules.reductions.host.work import IDLE_SHARE, HostSigns, HostWork, collecting_frame, compiling_frame
from forensics.rules.reductions.ranks.children import ChildProcess
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.text.seen import Seen


def _evaluate(
    roster: Roster,
    stacks: StacksByRank,
    helped_stalls: HelpedStalls,
    stalled: StallFindings,
    signs: HostSigns,
    thresholds: Thresholds,
) -> Iterator[Finding]:
    for helped in helped_stalls:
        work = signs.work(helped.stall)
        if work in (HostWork.COMPILE, HostWork.COLLECT):
            yield _finding(
                stacks, stalled, signs, helped.stall, work, _is_working(roster, signs, helped.stall, thresholds["idle_share"])
            )


def _finding(
    stacks: StacksByRank, stalled: StallFindings, signs: HostSigns, stall: Stall, work: HostWork, working: bool
) -> Finding:
    """Build the finding; what uses the CPU will probably end, so it is a suspicion only."""
    found = stalled.finding(stall, Cause.HOST_STALL, _next_steps(signs, stall, work, working))
    evidence = (*_evidence(stacks, signs, stall, work), *found.evidence)
    confidence = Confidence.SUSPECT if working else found.confidence
    # An interpreter lock that is held meanwhile is a side effect of a collection.
    return replace(found, evidence=evidence, confidence=confidence)


def _is_working(roster: Roster, signs: HostSigns, stall: Stall, idle_share: float) -> bool:
    """Whether the compiler, or else the main thread itself, gets on."""
    child = signs.compiler(stall)
    share = child.cpu_share if child else roster.rank(stall.rank).cpu_share
    own = roster.rank(stall.rank).cpu_share
    return signs.moved(stall.rank) or (share or 0.0) >= idle_share or (own or 0.0) >= idle_share


def _evidence(stacks: StacksByRank, signs: HostSigns, stall: Stall, work: HostWork) -> Iterator[Evidence]:
    path = stall.activity.path if stall.activity else ()
    frame = compiling_frame(path) if work is HostWork.COMPILE else collecting_frame(path, signs.on_cpu(stall.rank))
    verb = "compiles code" if work is HostWork.COMPILE else "collects garbage"
    if frame is not None:
        yield Evidence(f"rank {stall.rank} {verb}: its main thread is in {frame}", stacks[stall.rank].main[-1].source)
    child = signs.compiler(stall) if work is HostWork.COMPILE else None
    if child is not None:
        yield Evidence(
            f"rank {stall.rank} waits for the compiler {child.name} (pid {child.pid}), {_doing(child)}", child.source
        )


def _doing(child: ChildProcess) -> str:
    state = f"in state {child.state}" + (f" in {child.wchan}" if child.wchan else "")
    return state if child.cpu_share is None else f"{state}, which used {child.cpu_share:.0%} of a CPU"


def _next_steps(signs: HostSigns, stall: Stall, work: HostWork, working: bool) -> tuple[str, ...]:
    child = signs.compiler(stall) if work is HostWork.COMPILE else None
    if working:
        first = f"it uses the CPU, so it is more likely slow than hung: wait, and check rank {stall.rank} again"
    elif child is not None:
        first = f"see what the compiler (pid {child.pid}) waits for: its open files, a lock of a shared cache, a mount"
    else:
        first = f"see what rank {stall.rank} waits for: the lock of a shared compiler cache, a pool of compiler processes"
    if work is HostWork.COLLECT:
        return (first, "let every rank collect at the same step (gc.disable(), gc.collect() every so many steps)")
    return (first, "warm the compiler cache before the run, or compile the same shapes on every rank")


def _clears(seen: Seen, helped_stalls: HelpedStalls, signs: HostSigns) -> str | None:
    work = {signs.work(helped.stall) for helped in helped_stalls}
    if not seen.all_in(seen.sampled) or work & {HostWork.COMPILE, HostWork.COLLECT}:
        return None
    looked = f"none of {len(seen.ranks)} ranks, each sampled more than once"
    return f"{looked}, holds the others up in a compiler or in the collector"


RULE = Rule(
    code="FX119",
    name="compile-or-collect",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need(StacksByRank, "stacks", "they show the compiler's frames, or the call that waits for one"),),
    thresholds=(
        Threshold(
            "idle_share", IDLE_SHARE, "a compiler at work uses a CPU; one that uses less than a tenth waits for something"
        ),
    ),
    concludes="A rank that every chain of waits ends in, compiling (itself or in a child process) or collecting garbage.",
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
