"""Kineto traces of a made-up 1F1B pipeline whose every pass takes what a test says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STAGES, REPLICAS, MICROBATCHES = 4, 2, 6
FORWARD, BACKWARD, END = "forward", "backward", "end"
MS = 1_000_000
_BASE = 1_790_857_026_000_000_000
_MESSAGE, _REDUCTION, _CALL = MS // 10, MS, 50_000


@dataclass(frozen=True, slots=True)
class Work:
    """What a rank does before a call: a pass of a microbatch, or what comes between the passes (`END`, microbatch 0)."""

    rank: int
    step: int
    kind: str
    microbatch: int

    @property
    def stage(self) -> int:
        """The stage of the pipeline that the rank is in."""
        return self.rank % STAGES


Took = Callable[[Work], tuple[int, int]]
"""ns that the device works, and ns that the host is late with its next call."""


def usual(work: Work) -> tuple[int, int]:
    """Forward 20 ms, backward 40 ms, nothing between, some jitter."""
    jitter = (work.rank * 7 + work.step * 5 + work.microbatch * 3) % 5 * MS // 10
    return {FORWARD: 20 * MS, BACKWARD: 40 * MS, END: MS}[work.kind] + jitter, 0


@dataclass(slots=True)
class _Call:
    kind: str
    group: str
    number: int
    made: int
    begin: int
    end: int
    ranks: tuple[int, int] | None = None


@dataclass(slots=True)
class _Rank:
    now: int = 0
    host: int = 0
    calls: list[_Call] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)

    def call(self, kind: str, group: str, number: int, ranks: tuple[int, int] | None = None) -> _Call:
        """Make a call: the device comes to it after its work, and never before the host."""
        self.host += _CALL
        self.now = max(self.now, self.host)
        self.calls.append(_Call(kind, group, number, self.host, self.now, self.now, ranks))
        return self.calls[-1]


def write(folder: Path, took: Took, steps: int, *, first: int = 10, forms: tuple[str, ...] = ()) -> None:
    """One trace of each rank of so many steps; ranks are replica x STAGES + stage.

    `forms`: calls may be `unnumbered`, messages `grouped` in group calls, and each step `annotated` as one forward and one
    backward pass, or what comes before its first call as `loading` data.
    """
    ranks = [_Rank() for _ in range(STAGES * REPLICAS)]
    for step in range(steps):
        begins = [rank.now for rank in ranks]
        for rank in ranks:
            rank.host = rank.now
        for replica in range(REPLICAS):
            _pipeline(ranks, replica, step, took)
        _reductions(ranks, step, took)
        for rank, begin in zip(ranks, begins, strict=True):
            rank.steps.append((begin, rank.now))
    for number, rank in enumerate(ranks):
        content = {"schemaVersion": 1, "distributedInfo": _info(number), "host_name": f"node{number}"}
        content |= {"baseTimeNanoseconds": _BASE, "traceEvents": list(_events(rank, first, forms))}
        (folder / f"rank{number}.pt.trace.json").write_text(json.dumps(content, indent=1))


def _order(stage: int) -> list[tuple[str, int]]:
    """Passes of a stage in 1F1B."""
    warm = STAGES - stage - 1
    forward, backward = ([(kind, number) for number in range(MICROBATCHES)] for kind in (FORWARD, BACKWARD))
    turns = [each for pair in zip(forward[warm:], backward, strict=False) for each in pair]
    return [*forward[:warm], *turns, *backward[MICROBATCHES - warm :]]


def _pipeline(ranks: list[_Rank], replica: int, step: int, took: Took) -> None:
    """Let each stage go on as far as its messages have been sent, until all are through."""
    left = {stage: _order(stage) for stage in range(STAGES)}
    sent: dict[tuple[str, int, int], _Call] = {}
    while any(left.values()):
        for stage, passes in left.items():
            while passes and _run(ranks, replica * STAGES + stage, step, passes[0], sent, took):
                passes.pop(0)


def _run(
    ranks: list[_Rank], number: int, step: int, turn: tuple[str, int], sent: dict[tuple[str, int, int], _Call], took: Took
) -> bool:
    """One pass: receive, work, send; false where the message has not been sent."""
    kind, microbatch = turn
    rank, stage, way = ranks[number], number % STAGES, 1 if kind == FORWARD else -1
    group = f"pp{number // STAGES}"
    if 0 <= stage - way < STAGES:
        message = sent.get((kind, stage, microbatch))
        if message is None:
            return False
        received = rank.call("recv", group, len(rank.calls), (stage - way, stage))
        received.end = max(received.begin, message.begin) + _MESSAGE
        message.end = received.end
        rank.now = received.end
    device, host = took(Work(number, step, kind, microbatch))
    rank.now += device
    rank.host += host
    if 0 <= stage + way < STAGES:
        sent[kind, stage + way, microbatch] = rank.call("send", group, len(rank.calls), (stage, stage + way))
    return True


def _reductions(ranks: list[_Rank], step: int, took: Took) -> None:
    for number, rank in enumerate(ranks):
        device, host = took(Work(number, step, END, 0))
        rank.now += device
        rank.host += host
    for stage in range(STAGES):
        _meet([ranks[stage + replica * STAGES] for replica in range(REPLICAS)], f"dp{stage}", step)
    _meet(ranks, "0", step)


def _meet(members: list[_Rank], group: str, step: int) -> None:
    calls = [rank.call("allreduce", group, step) for rank in members]
    end = max(call.begin for call in calls) + _REDUCTION
    for rank, call in zip(members, calls, strict=True):
        call.end = rank.now = end


def _groups(number: int) -> dict[str, list[int]]:
    stage, replica = number % STAGES, number // STAGES
    return {
        "0": list(range(STAGES * REPLICAS)),
        f"pp{replica}": [replica * STAGES + each for each in range(STAGES)],
        f"dp{stage}": [each * STAGES + stage for each in range(REPLICAS)],
    }


def _info(number: int) -> dict[str, Any]:
    described = [{"pg_name": name, "pg_desc": "", "pg_size": len(has), "ranks": has} for name, has in _groups(number).items()]
    return {"backend": "nccl", "rank": number, "world_size": STAGES * REPLICAS, "pg_config": described}


def _events(rank: _Rank, first: int, forms: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for place, (begin, end) in enumerate(rank.steps):
        yield _event("user_annotation", f"ProfilerStep#{first + place}", 1, begin, end, {})
        if "annotated" in forms:
            half = (begin + end) // 2
            yield _event("user_annotation", "forward", 1, begin, half, {})
            yield _event("user_annotation", "backward", 1, half, end, {})
        if "loading" in forms:
            made = min(call.made for call in rank.calls if call.made > begin)
            yield _event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, begin, made, {})
    for place, call in enumerate(rank.calls):
        described: dict[str, Any] = {"Collective name": call.kind, "Process Group Name": call.group}
        described |= {} if "unnumbered" in forms else {"Seq": call.number}
        if call.ranks is not None and "grouped" in forms:
            described["Collective name"] = "coalesced"
        elif call.ranks is not None:
            described |= {"Src Rank": call.ranks[0], "Dst Rank": call.ranks[1]}
        launched = {"External id": place, "correlation": place}
        kernel = "ncclDevKernel_SendRecv" if call.ranks else "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        yield _event("user_annotation", f"nccl:{call.kind}", 1, call.made, call.made + 30_000, {"External id": place})
        yield _event("cuda_runtime", "cudaLaunchKernelExC", 1, call.made + 10_000, call.made + 20_000, launched)
        device = {**launched, **described, "stream": 16, "In msg nelems": 1024}
        yield _event("kernel", kernel, 16, call.begin, call.end, device)


def _event(category: str, name: str, thread: int, begin: int, end: int, args: dict[str, Any]) -> dict[str, Any]:
    times = {"ts": begin / 1000, "dur": (end - begin) / 1000}
    return {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": thread, **times, "args": args}
