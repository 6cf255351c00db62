"""Population-based training: now and then all ranks copy the weights of the member with the best score."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

WIDTH, EVERY = 20, 4


class Member:
    """One network of the population and the table of scores as this member knows it."""

    def __init__(self, scores: list[list[float]]) -> None:
        self.net = nn.Sequential(nn.Linear(WIDTH, 128), nn.Tanh(), nn.Linear(128, WIDTH))
        self.scores = scores

    def train(self) -> float:
        x = torch.randn(16, WIDTH)
        loss = (self.net(x) - x.roll(1, 1)).square().mean()
        self.net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in self.net.parameters():
                dist.all_reduce(p.grad)
                p -= 0.01 * p.grad
        return loss.item()

    def copy_best(self, round_number: int) -> int:
        row = self.scores[round_number % len(self.scores)]
        best = row.index(max(row))
        for p in self.net.parameters():
            dist.broadcast(p.data, src=best)
        return best

    def copy_best_by_role(self, round_number: int) -> int:
        row = self.scores[round_number % len(self.scores)]
        best, rank = row.index(max(row)), dist.get_rank()
        flat = torch.cat([p.data.flatten() for p in self.net.parameters()])
        if best == rank:
            dist.broadcast(flat, src=rank)
        else:
            dist.broadcast(flat, src=best)
        return best


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scores", help="file name with {rank}")
    parser.add_argument("--by-role", action="store_true")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    path = Path(args.scores.format(rank=dist.get_rank()))
    member = Member([[float(v) for v in line.split()] for line in path.read_text().splitlines()])
    copy = member.copy_best_by_role if args.by_role else member.copy_best
    for step in range(1, 100_000):
        loss = member.train()
        print(f"step {step} loss {loss:.3f}", flush=True)
        if step % EVERY == 0:
            print(f"step {step} best {copy(step // EVERY - 1)}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
