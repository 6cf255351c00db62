"""A rank keeps a CPU busy in one function of its own code and does not come to the operation its peers wait in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from forensics.model import Cause, Evidence, Finding
from forensics.rules.interface import Maturity, Need, Rule, Threshold, Thresholds
from forensics.rules.reductions.host.background import helped_stalls
from forensics.rules.reductions.host.stalls import Stall, stall_finding
from forensics.rules.reductions.host.work import BUSY_SHARE, HostWork, busy, host_work, looping_frame
from forensics.rules.reductions.job import Job
from forensics.rules.reductions.stacks.call_paths import Frame


def _evaluate(job: Job, thresholds: Thresholds) -> Iterator[Finding]:
    for helped in helped_stalls(job):
        if host_work(job, helped.stall, thresholds["busy_share"]) is HostWork.BUSY:
            yield _finding(job, helped.stall)


def _finding(job: Job, stall: Stall) -> Finding:
    found = stall_finding(job, stall, RULE.code, Cause.HOST_STALL, _next_steps(job, stall))
    return replace(found, evidence=(_loops(job, stall), *found.evidence), strength=found.strength + 0.03)


def _loops(job: Job, stall: Stall) -> Evidence:
    facts, samples = job.rank(stall.rank), job.stacks[stall.rank].main
    where = looping_frame(job.stacks[stall.rank])
    name = f"{where.name} ({where.module.rsplit('/', 1)[-1]})" if where else "one function"
    frames = [entry for sample in samples for entry in sample.activity.path if where and _same(entry, where)]
    lines = {str(entry.line) for entry in frames if entry.line}
    at = f", lines {', '.join(sorted(lines, key=int))}" if len(lines) > 1 else ""
    share = "the sampler saw it on a CPU" if facts.cpu_share is None else f"it used {facts.cpu_share:.0%} of a CPU"
    text = f"rank {stall.rank} was in {name}{at} in all {len(samples)} stack samples while {share}"
    return Evidence(text, facts.process_source or samples[-1].source)


def _same(one: Frame, two: Frame) -> bool:
    return one.plain[:2] == two.plain[:2]


def _next_steps(job: Job, stall: Stall) -> tuple[str, ...]:
    where = looping_frame(job.stacks[stall.rank])
    return (
        f"read the loop at {where} of rank {stall.rank}: for its input the way out may never be reached",
        "long work looks the same as an endless loop: a second collection some minutes later tells them apart",
    )


def _clears(job: Job) -> str | None:
    seen = [rank for rank, found in job.stacks.items() if len(found.main) > 1 and job.rank(rank).cpu_share is not None]
    looping = [rank for rank in seen if busy(job, rank, BUSY_SHARE)]
    return f"the main thread of none of {len(seen)} ranks kept a CPU busy in one function" if seen and not looping else None


RULE = Rule(
    code="FX118",
    name="host-busy",
    seed="Mycroft section 6.2 (py-spy)",
    needs=(Need("stacks", "the same function in several samples shows the loop"),),
    thresholds=(
        Threshold("busy_share", BUSY_SHARE, "a thread that polls with pauses uses far less than half a CPU, a loop all of one"),
    ),
    concludes="A rank that every chain of waits ends in, busy on a CPU in one function over all samples.",
    confusions=(
        "long work that will end",
        "a native call that keeps the interpreter lock: see FX116",
        "compilation and garbage collection: see FX119",
    ),
    evaluate=_evaluate,
    clears=_clears,
    maturity=Maturity.STABLE,
)
