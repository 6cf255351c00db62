"""A layer split over pairs of ranks, two replicas: pairs sum activations, replicas sum gradients."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

WIDTH, SPLIT = 32, 2


class Grid:
    """Ranks as rows of tensor-parallel pairs and columns of data-parallel replicas."""

    def __init__(self) -> None:
        rank, world = dist.get_rank(), dist.get_world_size()
        for start in range(0, world, SPLIT):
            group = dist.new_group(list(range(start, start + SPLIT)), group_desc=f"tp{start // SPLIT}")
            if rank // SPLIT == start // SPLIT:
                self.tp = group
        for column in range(SPLIT):
            group = dist.new_group(list(range(column, world, SPLIT)), group_desc=f"dp{column}")
            if rank % SPLIT == column:
                self.dp = group


class SumOverPair(torch.autograd.Function):
    """Adds the halves in forward; the gradient goes to both as it is."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor, group: dist.ProcessGroup) -> torch.Tensor:
        total = x.clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


class SplitLayer(nn.Module):
    """Half of the inner width on each rank of a pair; a dense batch also exchanges the halves' maxima."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self.grid = grid
        self.inner = nn.Linear(WIDTH, WIDTH // SPLIT)
        self.outer = nn.Linear(WIDTH // SPLIT, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.inner(x).relu()
        if x.mean() > 0.75:
            halves = [torch.empty_like(inner) for _ in range(SPLIT)]
            dist.all_gather(halves, inner.detach(), group=self.grid.tp)
            inner = inner / torch.cat(halves, 1).amax(1, keepdim=True).clamp(min=1)
        return SumOverPair.apply(self.outer(inner), self.grid.tp)


def read_batch(folder: Path, step: int) -> torch.Tensor:
    raw = bytearray((folder / f"{step:05d}.bin").read_bytes())
    return torch.frombuffer(raw, dtype=torch.uint8).float().view(-1, WIDTH) / 255


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=Path, required=True)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    grid = Grid()
    layer = SplitLayer(grid)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
    folder = args.batches / str(dist.get_rank())
    for step in range(len(list(folder.iterdir()))):
        x = read_batch(folder, step)
        loss = (layer(x) - x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in layer.parameters():
            dist.all_reduce(p.grad, group=grid.dp)
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
