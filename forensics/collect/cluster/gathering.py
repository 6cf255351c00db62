"""All targets at once, so many at a time, each to its deadline and all to theirs; each delivery is stated as it comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from forensics.bundle.layout import Status
from forensics.collect.cluster.exchange import Delivery, exchange
from forensics.collect.cluster.launchers import Target
from forensics.collect.interrupts import Interrupts


@dataclass(frozen=True, slots=True)
class Pace:
    """How many exchanges run at a time, and how many seconds one of them and all of them may take."""

    width: int
    node_s: float
    all_s: float


def gather(
    targets: Sequence[Target], spool: Path, pace: Pace, interrupts: Interrupts, take: Callable[[Delivery], None]
) -> None:
    """Collect from all targets into files of the folder `spool`; `take` is called once for each target, one at a time."""
    asyncio.run(_gather(targets, spool, pace, interrupts, take))


async def _gather(
    targets: Sequence[Target], spool: Path, pace: Pace, interrupts: Interrupts, take: Callable[[Delivery], None]
) -> None:
    began, began_ns = time.monotonic(), time.time_ns()
    gate, stop = asyncio.Semaphore(pace.width), asyncio.Event()
    asyncio.get_running_loop().add_reader(interrupts.wake, stop.set)

    async def one(index: int, target: Target) -> Delivery:
        async with gate:
            left = pace.all_s - (time.monotonic() - began)
            if left <= 0:
                words = f"not asked: {pace.all_s:.0f} s had passed before its turn came"
                return Delivery(target.name, Status.TIMEOUT, words, began_ns, time.time_ns())
            return await exchange(target, spool / f"{index}.tar", min(pace.node_s, left))

    pending = {asyncio.create_task(one(index, target)): target for index, target in enumerate(targets)}
    stopping = asyncio.create_task(stop.wait())
    while pending and not stop.is_set():
        await asyncio.wait({*pending, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in [task for task in pending if task.done()]:
            del pending[task]
            # In a thread: to write a large bundle must not keep the others from being heard.
            await asyncio.to_thread(take, task.result())
    stopping.cancel()
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
    for target in pending.values():
        take(Delivery(target.name, Status.KILLED, "interrupted before it answered", began_ns, time.time_ns()))
