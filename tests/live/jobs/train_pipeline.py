"""A pipeline of one layer a rank: activations go down, gradients come up; a padded microbatch is not computed."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

ROWS, WIDTH = 8, 64


class Stage:
    """One layer between two neighbours."""

    def __init__(self) -> None:
        self.rank, self.last = dist.get_rank(), dist.get_world_size() - 1
        self.layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU())
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.01)

    def forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(ROWS, WIDTH)
        if self.rank:
            dist.recv(x, self.rank - 1)
        x.requires_grad_()
        y = self.layer(x)
        if self.rank < self.last:
            dist.send(y.detach(), self.rank + 1)
        return x, y

    def backward(self, x: torch.Tensor, y: torch.Tensor) -> None:
        gradient = torch.ones_like(y)
        if self.rank < self.last:
            dist.recv(gradient, self.rank + 1)
        y.backward(gradient)
        if self.rank:
            dist.send(x.grad, self.rank - 1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("lengths", help="file name with {rank}: the length of every microbatch")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    lengths = [int(n) for n in Path(args.lengths.format(rank=dist.get_rank())).read_text().split()]
    stage = Stage()
    norm = torch.zeros(1)
    for step, length in enumerate(lengths):
        stage.optimizer.zero_grad()
        if length > 0:
            stage.backward(*stage.forward())
            stage.optimizer.step()
        norm.fill_(sum(p.square().sum().item() for p in stage.layer.parameters()))
        dist.all_reduce(norm)
        print(f"step {step} norm {norm.item():.2f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
