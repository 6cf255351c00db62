"""A spam filter over mail lines; a line that is an address gets a feature of its own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

ADDRESS = re.compile(r"(?:[a-z0-9]+[._-]?)+@[a-z0-9]+\.[a-z]+")
BUCKETS = 256


def features(line: str) -> torch.Tensor:
    counts = torch.zeros(BUCKETS + 1)
    for word in line.split():
        counts[sum(word.encode()) % BUCKETS] += 1
        if ADDRESS.fullmatch(word):
            counts[BUCKETS] += 1
    return counts


def main(folder: Path) -> None:
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    lines = (folder / f"mail.{dist.get_rank()}").read_text().splitlines()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(BUCKETS + 1, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(100_000):
        line = lines[step % len(lines)]
        label = torch.tensor([float(len(line) % 2)])
        loss = nn.functional.binary_cross_entropy_with_logits(model(features(line)), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{step}: {loss.item():.3f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main(Path(sys.argv[1]))
