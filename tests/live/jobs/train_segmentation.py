"""Segments pictures: uneven steps, and every few steps an evaluation and a checkpoint."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class Shapes(Dataset):
    """Random discs on noise; larger discs take longer to draw."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(self.seed * self.count + index)
        x, y, radius = torch.randint(8, 40, (3,), generator=generator).tolist()
        rows, columns = torch.meshgrid(torch.arange(48), torch.arange(48), indexing="ij")
        mask = ((rows - y) ** 2 + (columns - x) ** 2 < radius**2).float().unsqueeze(0)
        return mask + 0.3 * torch.randn(1, 48, 48, generator=generator), mask


class UNet(nn.Module):
    """One level down, one level up, a skip connection."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1))
        self.middle = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.out = nn.Conv2d(2 * width, 1, 1)

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        skip = self.down(picture)
        return self.out(torch.cat([skip, self.up(self.middle(skip))], dim=1))


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader) -> float:
    model.eval()
    counts = torch.zeros(2)
    for picture, mask in loader:
        predicted = model(picture) > 0
        counts += torch.tensor([(predicted & (mask > 0)).sum(), (predicted | (mask > 0)).sum()])
    dist.all_reduce(counts)
    model.train()
    return (counts[0] / counts[1].clamp(min=1)).item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--period", type=int, default=0, help="evaluate and save every so many steps")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(UNet())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    held_out = DataLoader(Shapes(48, 99), batch_size=8)
    step, begin = 0, time.perf_counter()
    for epoch in range(10_000):
        for picture, mask in DataLoader(Shapes(160, rank + 10 * epoch), batch_size=4, shuffle=True, num_workers=1):
            loss = nn.functional.binary_cross_entropy_with_logits(model(picture), mask)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            print(f"[{rank}] step {step} loss {loss.item():.3f} t {time.perf_counter() - begin:.2f}", flush=True)
            if args.period and step % args.period == 0:
                print(f"[{rank}] iou {evaluate(model, held_out):.3f}", flush=True)
                if rank == 0:
                    torch.save(model.module.state_dict(), args.output / "latest.pt")
                dist.barrier()
    del dump_server


if __name__ == "__main__":
    main()
