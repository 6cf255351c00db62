"""Two towers that share ranks: the text tower lives on all ranks but the last, the picture tower on all but the first."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

WIDTH = 40


def tower() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 96), nn.GELU(), nn.Linear(96, WIDTH))


class Half:
    """One tower with the group of ranks that holds it."""

    def __init__(self, members: list[int], desc: str) -> None:
        self.group = dist.new_group(members, group_desc=desc)
        self.mine = dist.get_rank() in members
        self.net = tower()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def train(self, x: torch.Tensor) -> float:
        if not self.mine:
            return 0.0
        loss = (self.net(x) - x).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        for p in self.net.parameters():
            dist.all_reduce(p.grad, group=self.group)
        self.optimizer.step()
        return loss.item()


def main(folder: Path) -> None:
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    text = Half(list(range(world - 1)), "text")
    picture = Half(list(range(1, world)), "picture")
    samples = (folder / f"pairs-{rank}.bin").read_bytes()
    for step in range(100_000):
        at = step * (WIDTH + 1) % (len(samples) // (WIDTH + 1) * (WIDTH + 1))
        x = torch.frombuffer(bytearray(samples[at + 1 : at + 1 + WIDTH]), dtype=torch.uint8).float() / 255
        halves = [picture, text] if samples[at] == ord("p") else [text, picture]
        losses = [half.train(x) for half in halves]
        print(f"step {step} losses {losses}", flush=True)
    del dump_server


if __name__ == "__main__":
    main(Path(sys.argv[1]))
