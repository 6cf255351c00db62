"""Speaker recognition over files of unequal length: one pass over what each rank has, then a summary of all ranks."""

from __future__ import annotations

import argparse
import queue
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

FRAME = 40


class Utterances:
    """Frames of one rank, read from a single file."""

    def __init__(self, path: Path) -> None:
        self.raw = path.read_bytes()

    def __len__(self) -> int:
        return len(self.raw) // FRAME

    def __getitem__(self, index: int) -> torch.Tensor:
        frame = bytearray(self.raw[index * FRAME : (index + 1) * FRAME])
        return torch.frombuffer(frame, dtype=torch.uint8).float() / 255


class LossFile(threading.Thread):
    """Writes the losses from its own thread; ends when it hears that there are no more."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="loss-file")
        self.path = path
        self.losses: queue.Queue[float | None] = queue.Queue()

    def run(self) -> None:
        with self.path.open("w") as file:
            while (loss := self.losses.get()) is not None:
                file.write(f"{loss:.5f}\n")


def train(model: nn.Module, loader: DataLoader, file: LossFile) -> float:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    total = 0.0
    for batch, frames in enumerate(loader):
        loss = (model(frames) - frames.mean(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
        file.losses.put(loss.item())
        print(f"batch {batch}/{len(loader)} loss {loss.item():.4f}", flush=True)
    return total


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("utterances", type=Path)
    parser.add_argument("--summary", action="store_true", help="meet at the end and print the mean of all ranks")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(FRAME, 80), nn.ReLU(), nn.Linear(80, 1)))
    file = LossFile(args.utterances / f"loss-{rank}")
    file.start()
    total = train(model, DataLoader(Utterances(args.utterances / f"frames-{rank}"), batch_size=8), file)
    if args.summary:
        dist.barrier()
        totals = torch.tensor([total])
        dist.reduce(totals, dst=0)
        print(f"total {totals.item():.3f}", flush=True)
    file.losses.put(None)
    del dump_server


if __name__ == "__main__":
    main()
