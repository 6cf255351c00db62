"""A small data-parallel trainer that records its stages; `--slow STAGE --rank R` makes one stage of one rank slow."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from forensics.recorder import Recorder


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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder")
    parser.add_argument("--slow", default="")
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--delay", type=float, default=0.03)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--watch", action="store_true")
    parser.add_argument("--trace")
    parser.add_argument("--annotate", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    body = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128))
    model = DistributedDataParallel(body)
    optimizer = torch.optim.AdamW(model.parameters())
    perf = Recorder(options.folder)
    if options.watch:
        perf.watch(model)

    def pause(stage: str, step: int) -> float:
        return options.delay if stage == options.slow and rank == options.rank and step >= options.start else 0.0

    @contextmanager
    def stage(name: str) -> Iterator[None]:
        with perf.stage(name), torch.profiler.record_function(f"## {name} ##") if options.annotate else nullcontext():
            yield

    def run(step: int) -> None:
        with perf.step():
            with stage("data"):
                time.sleep(0.002 + pause("data", step))
                batch = torch.randn(64, 128)
            with stage("forward"):
                loss = Late.apply(model(batch), pause("backward", step)).square().mean()
                time.sleep(pause("forward", step))
            with stage("backward"):
                loss.backward()
            with stage("callbacks"):
                time.sleep(0.001 + pause("callbacks", step))
            with stage("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(pause("optimizer", step))
            time.sleep(pause("other", step))

    if options.trace:
        from torch.profiler import ProfilerActivity, profile, schedule

        plan = schedule(wait=0, warmup=1, active=options.steps, repeat=1)
        path = f"{options.trace}/rank-{rank}.pt.trace.json"
        with profile(
            activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=lambda p: p.export_chrome_trace(path)
        ) as p:
            for step in range(options.steps + 1):
                run(step)
                p.step()
    else:
        for step in range(options.steps):
            run(step)
    perf.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
