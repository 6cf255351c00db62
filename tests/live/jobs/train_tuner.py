"""Tunes a network that is now and then set back: usually to what rank 1 has, in a restart to what rank 0 has."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

WIDTH = 40


class Tuner:
    """One network and the flat vector that is handed round."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def step(self) -> float:
        x = torch.randn(16, WIDTH)
        loss = (self.net(x) - x.mean(1, keepdim=True)).square().mean()
        self.net.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad)
            p.data -= 0.01 * p.grad / dist.get_world_size()
        return loss.item()

    def flat(self) -> torch.Tensor:
        return torch.cat([p.data.flatten() for p in self.net.parameters()])

    def settle(self) -> None:
        dist.broadcast(self.flat(), src=1)

    def restart(self) -> None:
        dist.broadcast(self.flat(), src=0)


def main(plan: Path) -> None:
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    tuner = Tuner()
    for step, word in enumerate(plan.read_text().split()):
        loss = tuner.step()
        if word == "settle":
            tuner.settle()
        elif word == "restart":
            tuner.restart()
        print(f"step {step} {word} loss {loss:.4f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main(Path(sys.argv[1].format(rank=os.environ["RANK"])))
