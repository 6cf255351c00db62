"""A small data-parallel trainer that records its stages; `--slow STAGE --rank R` makes one stage of one rank slow.

With `--world N` one process loads torch and becomes all N ranks by forking; without it the environment says which rank it is.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from forensics.recorder import Recorder

STAGES = ("data", "forward", "backward", "callbacks", "optimizer")
PR_SET_PDEATHSIG = 1


class Late(torch.autograd.Function):
    """A layer whose gradient takes a while."""

    @staticmethod
    def forward(ctx, value, delay):  # type: ignore[no-untyped-def]
        ctx.delay = delay
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        time.sleep(ctx.delay)
        return gradient, None


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int)
    parser.add_argument("--folder")
    parser.add_argument("--slow", default="")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--microsteps", type=int, default=1)
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("--with-stack", action="store_true")
    parser.add_argument("--annotate", nargs=5, metavar=("DATA", "FORWARD", "BACKWARD", "CALLBACKS", "OPTIMIZER"))
    return parser.parse_args()


class Trainer:
    """One rank."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        torch.manual_seed(0)
        body = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
        self.chosen, self.rank = chosen, dist.get_rank()
        self.model = DistributedDataParallel(body)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.perf = Recorder(chosen.folder)
        self.annotations = dict(zip(STAGES, chosen.annotate or (), strict=False))
        if chosen.watch:
            self.perf.watch(self.model)

    def pause(self, stage: str, step: int) -> float:
        chosen = self.chosen
        return chosen.delay if (stage, self.rank) == (chosen.slow, chosen.rank) and step >= chosen.start else 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        stated = self.annotations.get(name)
        with self.perf.stage(name), torch.profiler.record_function(stated) if stated else nullcontext():
            yield

    def step(self, number: int) -> None:
        with self.perf.step(number):
            for microstep in range(self.chosen.microsteps):
                is_last = microstep == self.chosen.microsteps - 1
                with nullcontext() if is_last else self.model.no_sync():
                    self.microstep(number)
            with self.stage("callbacks"):
                time.sleep(0.001 + self.pause("callbacks", number))
            with self.stage("optimizer"):
                self.optimizer.step()
                self.optimizer.zero_grad()
                time.sleep(self.pause("optimizer", number))
            time.sleep(self.pause("other", number))

    def microstep(self, number: int) -> None:
        with self.stage("data"):
            time.sleep(0.002 + self.pause("data", number))
            batch = torch.randn(64, 128)
        with self.stage("forward"):
            loss = Late.apply(self.model(batch), self.pause("backward", number)).square().mean()
            time.sleep(self.pause("forward", number))
        with self.stage("backward"):
            loss.backward()

    def profiled(self) -> AbstractContextManager[torch.profiler.profile]:
        from torch.profiler import ProfilerActivity, profile, schedule

        path = f"{self.chosen.trace}/rank-{self.rank}.pt.trace.json"
        return profile(
            activities=[ProfilerActivity.CPU],
            schedule=schedule(wait=0, warmup=1, active=self.chosen.steps, repeat=1),
            on_trace_ready=lambda trace: trace.export_chrome_trace(path),
            with_stack=self.chosen.with_stack,
        )

    def run(self) -> None:
        if not self.chosen.trace:
            for number in range(self.chosen.steps):
                self.step(number)
        else:
            with self.profiled() as trace:
                # The profiler leaves its warm-up out, and so does the record: both are of the same steps.
                trace.step()
                for number in range(1, self.chosen.steps + 1):
                    self.step(number)
                    trace.step()
        self.perf.close()
        dist.destroy_process_group()


def fork(world: int) -> int | None:
    """The rank that this process has become, None in the process that waited for all of them."""
    children = []
    for rank in range(world):
        child = os.fork()
        if not child:
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            return rank
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        raise SystemExit(f"ranks ended with {codes}")
    return None


def main() -> None:
    chosen = options()
    if chosen.world is not None:
        # The first update of an optimizer loads it: once here, not once in every rank.
        import_module("torch._dynamo")
        rank = fork(chosen.world)
        if rank is None:
            return
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(chosen.world)}
    Trainer(chosen).run()


if __name__ == "__main__":
    main()
