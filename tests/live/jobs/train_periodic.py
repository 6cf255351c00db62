"""A small regression; rank 0 evaluates, logs or saves for a part of every period while the others wait, as many jobs do."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel


def evaluate(model: nn.Module, until: float, _: Path) -> None:
    batch = torch.rand(64, 256)
    while time.monotonic() < until:
        with torch.no_grad():
            model(batch)


def log(_: nn.Module, until: float, output: Path) -> None:
    with (output / "metrics.csv").open("a") as metrics:
        while time.monotonic() < until:
            metrics.write(f"{time.time()},{torch.rand(1).item()}\n")
            metrics.flush()
            time.sleep(0.01)


def save(model: nn.Module, until: float, output: Path) -> None:
    while time.monotonic() < until:
        torch.save(model.state_dict(), output / "model.pt")


def step_for(seconds: float, model: nn.Module, optimizer: optim.Optimizer, batch: torch.Tensor) -> float:
    """Forward passes for that long, then one backward pass with its reductions."""
    until = time.monotonic() + seconds
    loss = model(batch).square().mean()
    while time.monotonic() < until:
        loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss)


ON_RANK_ZERO = {"evaluate": evaluate, "log": log, "save": save}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--work", choices=ON_RANK_ZERO, default="evaluate")
    parser.add_argument("--period", type=float, default=1.0, help="seconds from one piece of work on rank 0 to the next")
    parser.add_argument("--share", type=float, default=0.0, help="part of the period that rank 0 needs for it")
    parser.add_argument("--step", type=float, default=0.05, help="seconds a step")
    parser.add_argument("--slow-rank", type=int, help="rank that needs four times as long for its forward passes")
    parser.add_argument("--slower-from", type=int, default=0, help="step from which all ranks need three times as long")
    options = parser.parse_args()
    _server = answer_dump_requests()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1)))
    optimizer = optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.rand(32, 256, generator=torch.Generator().manual_seed(dist.get_rank()))
    own = options.step * (4 if dist.get_rank() == options.slow_rank else 1)
    steps = max(1, round(options.period * (1 - options.share) / options.step))
    number = 0
    while True:
        for _ in range(steps):
            number += 1
            slower = 3 if 0 < options.slower_from <= number else 1
            loss = step_for(own * slower, model, optimizer, batch)
            print(f"step {number} loss {loss:.4f}", flush=True)
        if options.share:
            if dist.get_rank() == 0:
                ON_RANK_ZERO[options.work](model.module, time.monotonic() + options.period * options.share, options.output)
            dist.barrier()


if __name__ == "__main__":
    main()
