"""Neighbours in pairs swap the halves of their replay buffers; the one with the fresher buffer sends first."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

WIDTH = 32


def swap(half: torch.Tensor, partner: int, fresher: bool) -> torch.Tensor:
    received = torch.empty_like(half)
    if fresher:
        dist.send(half, partner)
        dist.recv(received, partner)
    else:
        dist.recv(received, partner)
        dist.send(half, partner)
    return received


def main(folder: Path) -> None:
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    partner = rank ^ 1
    ages = [[int(n) for n in line.split()] for line in (folder / f"ages.{rank}").read_text().splitlines()]
    policy = nn.Linear(WIDTH, 4)
    replay = torch.randn(64, WIDTH)
    for step, (mine, theirs) in enumerate(ages):
        replay[32:] = swap(replay[:32].clone(), partner, mine < theirs)
        loss = policy(replay).square().mean()
        policy.zero_grad()
        loss.backward()
        for p in policy.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.01 * p.grad
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main(Path(sys.argv[1]))
