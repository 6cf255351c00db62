"""A tiny vision transformer; rank 0 writes the whole model now and then while the others wait at a barrier."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel


class PatchTransformer(nn.Module):
    """8x8 patches of a 32x32 picture, one encoder layer, mean pooling."""

    def __init__(self, classes: int = 10, width: int = 48) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, kernel_size=8, stride=8)
        self.encoder = nn.TransformerEncoderLayer(width, 4, 96, batch_first=True)
        self.classify = nn.Linear(width, classes)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(pictures).flatten(2).transpose(1, 2)
        return self.classify(self.encoder(tokens).mean(dim=1))


class Trainer:
    """Owns the model, its optimizer and where snapshots go."""

    def __init__(self, output: Path, save_every: int) -> None:
        self.output = output
        self.save_every = save_every
        self.model = DistributedDataParallel(PatchTransformer())
        self.optimizer = optim.AdamW(self.model.parameters(), lr=1e-3)
        self.global_step = 0

    def run_batch(self, pictures: torch.Tensor, labels: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(pictures), labels)
        loss.backward()
        self.optimizer.step()
        self.global_step += 1
        return loss.item()

    def save_checkpoint(self) -> None:
        if dist.get_rank() == 0:
            state = {"model": self.model.module.state_dict(), "optimizer": self.optimizer.state_dict()}
            torch.save(state, self.output / f"model-{self.global_step:06d}.pt")
        dist.barrier()

    def fit(self, steps: int) -> None:
        generator = torch.Generator().manual_seed(dist.get_rank())
        for _ in range(steps):
            pictures = torch.rand(8, 3, 32, 32, generator=generator)
            labels = torch.randint(0, 10, (8,), generator=generator)
            loss = self.run_batch(pictures, labels)
            print(f"step {self.global_step} | loss {loss:.3f}", flush=True)
            if self.global_step % self.save_every == 0:
                self.save_checkpoint()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100_000)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group(backend="gloo")
    Trainer(args.output, args.save_every).fit(args.steps)
    dist.destroy_process_group()
    del dump_server


if __name__ == "__main__":
    main()
