"""Predicts the next audio frame; a writer thread sends the curves to a file so that the loop never waits for the disk."""

from __future__ import annotations

import argparse
import json
import math
import queue
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

FRAME = 80


class Tones(Dataset):
    """Sums of two sine waves cut into frames."""

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time = torch.arange(FRAME * 16) / 4000
        low, high = 100 + index % 97, 400 + index % 389
        wave = torch.sin(2 * math.pi * low * time) + 0.5 * torch.sin(2 * math.pi * high * time)
        return wave.view(16, FRAME)


class NextFrame(nn.Module):
    """Two-layer LSTM over frames."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(FRAME, 96, num_layers=2, batch_first=True)
        self.to_frame = nn.Linear(96, FRAME)

    def forward(self, frames: torch.Tensor) -> torch.Tensor:
        return self.to_frame(self.lstm(frames)[0])


class CurveWriter:
    """Appends scalars to a JSON-lines file from its own thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pending: queue.Queue[dict[str, float]] = queue.Queue()
        threading.Thread(target=self.drain, name="curve-writer").start()

    def drain(self) -> None:
        with self.path.open("a") as curves:
            while row := self.pending.get():
                curves.write(json.dumps(row) + "\n")
                curves.flush()

    def add(self, step: int, loss: float) -> None:
        self.pending.put({"step": step, "loss": loss})

    def close(self) -> None:
        self.pending.put({})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--num-workers", type=int, default=1)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(NextFrame())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    writer = CurveWriter(args.run_dir / f"curves-{rank}.jsonl")
    loader = DataLoader(Tones(), batch_size=8, num_workers=args.num_workers)
    for step, frames in enumerate(loader):
        loss = nn.functional.l1_loss(model(frames)[:, :-1], frames[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        writer.add(step, loss.item())
        print(f"rank {rank}: step {step}: l1 {loss.item():.4f}", flush=True)
    writer.close()
    del dump_server


if __name__ == "__main__":
    main()
