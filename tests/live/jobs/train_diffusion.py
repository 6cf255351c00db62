"""A denoiser with one flat gradient all-reduce; every rank writes its own part of the state."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

log = logging.getLogger("diffusion")


class Denoiser(nn.Module):
    """Predicts the noise of a 1-d signal from the signal and the time."""

    def __init__(self, width: int = 160) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(65, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 64))

    def forward(self, signal: torch.Tensor, when: torch.Tensor) -> torch.Tensor:
        return self.net(torch.cat([signal, when], dim=1))


def denoising_loss(model: Denoiser, batch: int = 16) -> torch.Tensor:
    clean, noise, when = torch.randn(batch, 64), torch.randn(batch, 64), torch.rand(batch, 1)
    return nn.functional.mse_loss(model(clean * (1 - when) + noise * when, when), noise)


def sync_gradients(model: nn.Module) -> None:
    flat = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    dist.all_reduce(flat, op=dist.ReduceOp.SUM)
    flat /= dist.get_world_size()
    offset = 0
    for p in model.parameters():
        p.grad = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()


def write_part(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, step: int) -> None:
    name = f"step{step:05d}-part{dist.get_rank():02d}of{dist.get_world_size():02d}.pt"
    with (folder / name).open("wb") as part:
        torch.save({"weights": model.state_dict(), "moments": optimizer.state_dict()}, part)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    folder = Path(os.environ["OUTPUT_DIR"])
    every = int(os.environ.get("SAVE_EVERY", "15"))
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    model = Denoiser()
    start = parameters_to_vector(model.parameters()).detach()
    dist.broadcast(start, src=0)
    vector_to_parameters(start, model.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    for step in range(1, 1_000_000):
        loss = denoising_loss(model)
        optimizer.zero_grad()
        loss.backward()
        sync_gradients(model)
        optimizer.step()
        log.info("step %d mse %.4f", step, loss.item())
        if step % every == 0:
            write_part(model, optimizer, folder, step)
    del dump_server


if __name__ == "__main__":
    main()
