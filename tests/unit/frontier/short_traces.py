"""Kineto traces of a few steps as `torch.profiler` writes them for ranks on one host, one of them slow, whole or cut."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RANKS = 4
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
USUAL_MS = {"data": 10.0, "forward": 60.0, "backward": 90.0, "optimizer": 8.0}
Event = dict[str, Any]


def write(
    folder: Path,
    slow: str | None = "data",
    *,
    steps: int = 3,
    delay_ms: float = 50.0,
    when: Callable[[int], bool] = lambda _: True,
    kernel: str = NCCL,
    marks: bool = True,
    annotated: bool = True,
    grouped: bool = True,
    numbered: bool = False,
    cut: float | None = None,
    form: str = "json.gz",
    seed: int = 0,
    noise: float = 0.03,
) -> None:
    """Rank 2 takes `delay_ms` longer in the stage `slow`; `marks` of steps and `annotated` stages, else operators alone.

    `grouped`: the process group annotates its calls; `cut` is the part of the file that is left.
    `numbered`: calls have arguments, and rank 1 makes another one before, which its peers did not record.
    """
    chance = np.random.default_rng(seed)
    events: list[list[Event]] = [[] for _ in range(RANKS)]
    now = np.full(RANKS, 1e6)
    for step in range(steps):
        took = {stage: ms * 1e3 * (1 + noise * chance.standard_normal(RANKS)) for stage, ms in USUAL_MS.items()}
        if slow and when(step):
            took[slow][2] += delay_ms * 1e3
        arrived = now + took["data"] + took["forward"] + took["backward"]
        met = float(arrived.max()) + 2e3
        for rank in range(RANKS):
            parts = {stage: float(times[rank]) for stage, times in took.items()}
            ended = _step(events[rank], float(now[rank]), parts, met, kernel, step * 100, annotated, grouped)
            if numbered:
                _number(events[rank], rank, step, float(arrived[rank]))
            if marks:
                events[rank].append(_event("user_annotation", f"ProfilerStep#{step + 5}", float(now[rank]), ended))
            now[rank] = ended + 300
    for rank in range(RANKS):
        _save(folder / f"rank{rank}.pt.trace.{form}", events[rank], rank, cut)


def _event(category: str, name: str, begin: float, end: float, thread: int = 100, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": thread, "ts": begin, "dur": end - begin, "args": args}


def _step(
    events: list[Event], at: float, took: dict[str, float], met: float, kernel: str, number: int, annotated: bool, grouped: bool
) -> float:
    loaded, ahead = at + took["data"], at + took["data"] + took["forward"]
    arrived, ended = ahead + took["backward"], met + took["optimizer"]
    if annotated:
        events.append(_event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, loaded))
        events.append(_event("user_annotation", "DistributedDataParallel.forward", loaded, ahead))
        events.append(_event("user_annotation", "Optimizer.step#AdamW.step", met, ended))
    for place, begin in enumerate(np.linspace(loaded, ahead - 5e3, 4).tolist()):
        events.append(_event("cuda_runtime", "cudaLaunchKernel", begin, begin + 4, correlation=number + place))
        events.append(_event("kernel", "ampere_bf16_s16816gemm", begin + 20, begin + 4e3, 7, correlation=number + place))
    gradient = "autograd::engine::evaluate_function: MmBackward0"
    events.append(_event("cpu_op", gradient, ahead, ahead + took["backward"] / 2, 101))
    events.append(_event("cpu_op", gradient, ahead + took["backward"] / 2, arrived - 100, 101))
    if grouped:
        events.append(_event("user_annotation", "nccl:all_reduce", arrived - 30, arrived - 5, 101))
    events.append(_event("cuda_runtime", "cudaLaunchKernelExC", arrived - 20, arrived - 10, 101, correlation=number + 50))
    events.append(_event("kernel", kernel, arrived, met, 13, correlation=number + 50))
    events.append(_event("cpu_op", "aten::_fused_adamw_", met + 50, ended - 50))
    return ended


def _number(events: list[Event], rank: int, step: int, at: float) -> None:
    names = {"Collective name": "allreduce", "Process Group Name": "0", "dtype": "Float"}
    events[-2]["args"].update(names, Seq=2 * step + 1)
    if rank == 1:
        events.append(_event("kernel", NCCL, at - 900, at - 800, 13, **names, Seq=2 * step))


def _save(path: Path, events: list[Event], rank: int, cut: float | None) -> None:
    info = {"backend": "nccl", "rank": rank, "world_size": RANKS}
    head = f'{{\n  "schemaVersion": 1,\n  "distributedInfo": {json.dumps(info)},\n  "host_name": "node-1",\n'
    body = ",\n".join("  " + json.dumps(event, indent=2).replace("\n", "\n  ") for event in events)
    text = f'{head}  "baseTimeNanoseconds": 1790857026000000000,\n  "traceEvents": [\n{body}\n  ],\n  "traceName": "t"\n}}\n'
    content = gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode()
    path.write_bytes(content if cut is None else content[: int(len(content) * cut)])
