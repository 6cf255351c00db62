"""Long-context attention: every rank passes its block of keys round a ring; who sends first follows from a parity."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests


def pass_on(block: torch.Tensor, even: bool) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(block)
    if even:
        dist.send(block, (rank + 1) % world)
        dist.recv(received, (rank - 1) % world)
    else:
        dist.recv(received, (rank - 1) % world)
        dist.send(block, (rank + 1) % world)
    return received


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("parities", type=Path)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    parities = [line.split() for line in args.parities.read_text().splitlines()]
    keys = torch.randn(64, 32)
    for step, parity in enumerate(parities):
        block = keys.clone()
        for _ in range(dist.get_world_size() - 1):
            block = pass_on(block, parity[dist.get_rank()] == "even")
        scores = keys @ block.T
        total = scores.logsumexp(1).sum().reshape(1)
        dist.all_reduce(total)
        print(f"step {step} {total.item():.3f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
