"""Logs of a job of many ranks: progress of all of them interleaved, and at the end a watchdog that gives up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

NEEDLE = "Watchdog caught"
_START = 1_774_058_400


def write_log(path: Path, ranks: int, size: int) -> Path:
    """One file of at least `size` bytes, a line of each rank in each step."""
    with path.open("w") as stream:
        step = 0
        while stream.tell() < size:
            step += 1
            stream.writelines(progress(rank, step) for rank in range(ranks))
        stream.writelines(map(timeout, range(1, ranks)))
    return path


def write_folder(folder: Path, ranks: int, size: int) -> Path:
    """A file of about `size` bytes for each rank."""
    folder.mkdir()
    for rank in range(ranks):
        steps = 1 + size // 130
        text = "".join(progress(rank, step) for step in range(steps)) + (timeout(rank) if rank else "")
        (folder / f"rank-{rank}.log").write_text(text)
    return folder


def progress(rank: int, step: int) -> str:
    """A line of one of several trainers; some are warnings that speak of peers and retries."""
    noise = random.Random(rank * 1_000_003 + step)
    time = f"2026-03-21 {step // 3600 % 24:02}:{step // 60 % 60:02}:{step % 60:02},{noise.randrange(1000):03}"
    return next(_form(rank, step, time, noise))


def _form(rank: int, step: int, time: str, noise: random.Random) -> Iterator[str]:
    front = f"[rank{rank}]:"
    if rank % 6 < 3:
        yield f"{front} {time} - trainer - INFO - step: {step:6}  loss: {noise.random():.4f}  memory: 71.20GiB  mfu: 41.2%\n"
    if rank % 6 == 3:
        yield (
            f"{front} [{time}] iteration {step:8}/ 100000 | consumed samples: {step * 1024:12} | elapsed time per "
            f"iteration (ms): {noise.random() * 2000:.1f} | learning rate: 1.500E-04 | lm loss: {noise.random():.6E} |\n"
        )
    if step % 20 == 1:
        own = f"node{rank // 8}:{10000 + rank}:{20000 + rank} [{rank % 8}]"
        yield f"{own} NCCL INFO Channel 03/0 : {rank}[0] -> 1[1] [send] via NET/IB/3\n"
    shard, took = noise.randrange(9999), noise.random()
    yield f"{front} {time} | WARNING | data | peer cache miss of shard {shard} took {took:.3f} s, retrying\n"


def timeout(rank: int) -> str:
    """What torch's watchdog says of a rank that waited."""
    return (
        f"[rank{rank}]:[E321 04:00:00.465224069 ProcessGroupNCCL.cpp:683] [Rank {rank}] {NEEDLE} collective operation timeout: "
        "WorkNCCL(SeqNum=77, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds before "
        "timing out.\n"
    )
