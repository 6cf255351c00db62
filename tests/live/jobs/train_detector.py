"""Box regression; a thread of every rank posts its throughput to a file that is tailed elsewhere."""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Throughput(threading.Thread):
    """Writes boxes per second every now and then."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="throughput")
        self.path, self.boxes, self.stop = path, 0, threading.Event()

    def run(self) -> None:
        while not self.stop.wait(0.5):
            self.path.write_text(f"{time.time():.0f} {self.boxes}\n")


def read_boxes(path: Path, step: int) -> torch.Tensor:
    rows = path.read_text().splitlines()
    return torch.tensor([float(value) for value in rows[step % len(rows)].split()])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("boxes", type=Path)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    monitor = Throughput(args.boxes / f"throughput.{rank}")
    monitor.start()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 4)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100_000):
        boxes = read_boxes(args.boxes / f"boxes.{rank}", step)
        optimizer.zero_grad()
        (model(boxes) - boxes).abs().sum().backward()
        optimizer.step()
        monitor.boxes += 1
        print(f"step {step}", flush=True)
    monitor.stop.set()
    del dump_server


if __name__ == "__main__":
    main()
