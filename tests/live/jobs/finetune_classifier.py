"""Fine-tunes a classifier; gradients are averaged by hand, features come from a cache shared on the host."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from dump_requests import answer_dump_requests
from torch.utils.data import DataLoader

FEATURES = 96


@contextmanager
def locked(path: Path) -> Iterator[None]:
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)


class CachedFeatures:
    """Features by example number, kept in one file that several readers of the host share."""

    def __init__(self, cache: Path, rank: int) -> None:
        self.store = cache / f"features-{rank}.bin"
        self.lock = cache / f"features-{rank}.lock"

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, example: int) -> tuple[torch.Tensor, int]:
        with locked(self.lock), self.store.open("rb") as store:
            store.seek(example % 64 * FEATURES)
            raw = store.read(FEATURES)
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).float() / 255, example % 10


def average_gradients(model: torch.nn.Module, world: int) -> None:
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= world


def main() -> None:
    cache = Path(sys.argv[1])
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    server = answer_dump_requests()
    dist.init_process_group("gloo", rank=rank, world_size=world)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    for parameter in model.parameters():
        dist.broadcast(parameter.data, src=0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    iteration = 0
    while server is not None or iteration < 100_000:
        for features, labels in DataLoader(CachedFeatures(cache, rank), batch_size=16, shuffle=True):
            loss = F.cross_entropy(model(features), labels)
            optimizer.zero_grad()
            loss.backward()
            average_gradients(model, world)
            optimizer.step()
            iteration += 1
            print(f"iter={iteration} loss={loss.item():.3f}", flush=True)


main()
