"""Trains on streams that are opened one after the other; streams that are done are given back when memory is tidied up."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EVERY, WIDTH = 6, 16


class Stream:
    """Rows of one stream; it and its cursor know each other, so only the collector can free them."""

    def __init__(self, folder: Path, number: int) -> None:
        self.receipt = folder / f"receipt-{dist.get_rank()}-{number:04d}"
        self.rows = torch.randn(8, WIDTH)
        self.cursor = {"stream": self, "row": 0}

    def __del__(self) -> None:
        with self.receipt.open("a") as receipt:
            receipt.write("done\n")


def collect_garbage() -> int:
    return gc.collect()


def main(folder: Path) -> None:
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    gc.disable()
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 100_000):
        stream = Stream(folder, step)
        loss = (model(stream.rows) - stream.rows).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
        if step % EVERY == 0:
            collect_garbage()
    del dump_server


if __name__ == "__main__":
    main(Path(sys.argv[1]))
