"""A regression that stops its process at once when an input is out of range; a thread keeps a heartbeat file fresh."""

from __future__ import annotations

import argparse
import os
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OUT_OF_RANGE = 3


def beat(path: Path) -> None:
    while True:
        path.touch()
        time.sleep(1.0)


def checked(values: list[float]) -> torch.Tensor:
    if max(abs(v) for v in values) > 1e3:
        os._exit(OUT_OF_RANGE)
    return torch.tensor(values)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    threading.Thread(target=beat, args=(args.run / f"heartbeat.{rank}",), name="heartbeat").start()
    rows = [[float(v) for v in line.split()] for line in (args.run / f"series.{rank}").read_text().splitlines()]
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(100_000):
        x = checked(rows[step % len(rows)])
        loss = (model(x) - x.sum()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
