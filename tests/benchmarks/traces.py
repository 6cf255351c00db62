"""Makes traces in the layout of kineto (one event on three to eight lines, as torch writes them since 2022), of any size.

A step is what a trace of data-parallel training on a GPU holds: operators, runtime calls, kernels, flow arrows, gradients,
and a few annotations and collectives, in the proportions of public traces of such jobs.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {
      "id": 0, "name": "Some GPU", "totalGlobalMem": 85899345920,
      "computeMajor": 9, "computeMinor": 0, "numSms": 132
    }
  ],
  "record_shapes": 1,
  "distributedInfo": %s,
  "host_name": "host-%d",
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
"""
OPERATORS, STEP_US = 700, 200_000.0
ARGUMENTS = '"External id": %d,"Record function id": 0, "Concrete Inputs": ["", "1"], "Input type": ["float", "Scalar"], "Input Dims": [[64, 1024], []], "Ev Idx": %d'  # noqa: E501


def write_trace(path: Path, rank: int, world: int, size: int) -> Path:
    """Write a trace of at least `size` bytes; every rank has the same names and times of its own."""
    dice = random.Random(rank)
    with path.open("w") as file:
        written = file.write(_head(rank, world))
        step = 0
        while written < size:
            text = ",\n".join(_step(step, dice))
            written += file.write((",\n" if step else "") + text)
            step += 1
        file.write('\n  ],\n  "traceName": "trace.json"\n}\n')
    return path


def copy_trace(first: Path, path: Path, rank: int, world: int) -> None:
    """The events of another rank's trace under a head of its own."""
    with first.open("rb") as source, path.open("wb") as target:
        source.seek(len(_head(0, world)))
        target.write(_head(rank, world).encode())
        shutil.copyfileobj(source, target, 1 << 24)


def _head(rank: int, world: int) -> str:
    return HEAD % (json.dumps({"backend": "nccl", "rank": rank, "world_size": world}), rank // 8)


def _event(category: str, name: str, track: str, at: float, length: float, args: str) -> str:
    return (
        f'  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", {track},\n'
        f'    "ts": {at:.3f}, "dur": {length:.3f},\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _step(step: int, dice: random.Random) -> Iterator[str]:
    begin, number = 1_000_000.0 + step * STEP_US, step * 4 * OPERATORS
    host, device = '"pid": 4711, "tid": 4711', '"pid": 0, "tid": 7'
    yield _event("user_annotation", f"ProfilerStep#{step}", host, begin, STEP_US - 1, f'"External id": {number}')
    for stage, share in (("data", 0.0), ("forward", 0.1), ("backward", 0.4), ("optimizer", 0.9)):
        yield _event(
            "user_annotation", f"## {stage} ##", host, begin + share * STEP_US, STEP_US * 0.09, f'"External id": {number}'
        )
    for place in range(OPERATORS):
        at, number = begin + place * STEP_US / OPERATORS, number + 4
        name = "autograd::engine::evaluate_function: MmBackward0" if place % 20 == 0 else "aten::addmm"
        yield _event("cpu_op", name, host, at, 90 * dice.random(), ARGUMENTS % (number, place))
        yield _event("cpu_op", "aten::as_strided", host, at + 1, 3.0, ARGUMENTS % (number + 1, place))
        yield _event(
            "cuda_runtime",
            "cudaLaunchKernel",
            host,
            at + 2,
            6.5,
            f'"External id": {number}, "cbid": 211, "correlation": {number}',
        )
        grid = (
            '"registers per thread": 90, "shared memory": 49152, "blocks per SM": 1.5, "grid": [64, 3, 1], "block": [128, 1, 1]'
        )
        ids = f'"External id": {number}, "device": 0, "context": 1, "stream": 7, "correlation": {number}'
        kernel = (
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)"
            if place % 50 == 0
            else f"sm90_gemm_{place % 40}_kernel"
        )
        yield _event("kernel", kernel, device, at + 20 * dice.random(), 80 * dice.random(), f"{ids}, {grid}")
        for phase in ("s", "f"):
            place_of = f'"id": {number}, "pid": 0, "tid": 7, "ts": {at:.3f}'
            yield f'  {{\n    "ph": "{phase}", {place_of},\n    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }}'
