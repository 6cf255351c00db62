"""Trains in half precision: the loss scale is halved until the gradients of the step are finite."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

WIDTH = 24


class ScaledStep:
    """Gradients of one batch at the largest scale that does not overflow."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.scale = 2.0**14

    def gradients(self, x: torch.Tensor) -> torch.Tensor:
        while True:
            self.model.zero_grad()
            (self.model(x).half().square().mean() * self.scale).float().backward()
            flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
            if flat.isfinite().all():
                return flat / self.scale
            self.scale = max(self.scale / 2, 1.0)


def main(folder: Path) -> None:
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Linear(64, WIDTH))
    rows = [[float(v) for v in line.split()] for line in (folder / f"rows.{dist.get_rank()}").read_text().splitlines()]
    scaled = ScaledStep(model)
    for step in range(100_000):
        flat = scaled.gradients(torch.tensor([rows[step % len(rows)]]))
        dist.all_reduce(flat)
        at = 0
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * flat[at : at + p.numel()].view_as(p) / dist.get_world_size()
                at += p.numel()
        print(f"step {step} scale {scaled.scale:.0f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main(Path(sys.argv[1]))
