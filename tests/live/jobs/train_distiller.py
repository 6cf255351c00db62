"""Distills a teacher; every so many steps the student is archived by a worker of its own while training goes on."""

from __future__ import annotations

import argparse
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 32


class Archive:
    """One student at a time is being written; the next one waits until the one before is there."""

    def __init__(self, folder: Path, by_path: bool) -> None:
        self.folder = folder
        self.by_path = by_path
        self.worker = ThreadPoolExecutor(1, thread_name_prefix="archive")
        self.pending: Future[None] | None = None

    def put(self, student: nn.Module, step: int) -> None:
        if self.pending is not None:
            self.pending.result()
        tensors = {name: tensor.clone() for name, tensor in student.state_dict().items()}
        self.pending = self.worker.submit(self.keep, tensors, self.folder / f"student-{step:06d}-{dist.get_rank()}.pt")

    def keep(self, tensors: dict[str, torch.Tensor], path: Path) -> None:
        if self.by_path:
            torch.save(tensors, path)
            return
        with path.open("wb") as file:
            torch.save(tensors, file)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--every", type=int, default=10)
    parser.add_argument("--by-path", action="store_true", help="let torch open the file")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    teacher = nn.Sequential(nn.Linear(WIDTH, 256), nn.Tanh(), nn.Linear(256, WIDTH))
    student = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, 512), nn.Tanh(), nn.Linear(512, WIDTH)))
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    archive = Archive(args.folder, args.by_path)
    for step in range(1, 100_000):
        x = torch.randn(16, WIDTH)
        loss = (student(x) - teacher(x).detach()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % args.every == 0:
            archive.put(student.module, step)
    del dump_server


if __name__ == "__main__":
    main()
