"""Runs a hand-written C kernel that is compiled for a tile size when the first batch of that size arrives."""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SOURCE = """
#include "tile.h"
void scale(float *x, int n) { for (int i = 0; i < n; i++) x[i] *= TILE_SCALE; }
"""


class Kernels:
    """Compiled kernels of one rank by tile size; the header of a size lies in a folder of that size."""

    def __init__(self, headers: Path) -> None:
        self.headers = headers
        self.built = Path(tempfile.mkdtemp(prefix="kernels-"))
        self.compiled = cache(self.build)

    def build(self, tile: int) -> ctypes.CDLL:
        source, library = self.built / f"scale{tile}.c", self.built / f"scale{tile}.so"
        source.write_text(SOURCE)
        folder = self.headers / f"rank{dist.get_rank()}" / f"tile{tile}"
        subprocess.run(["cc", "-O2", "-fPIC", "-shared", f"-I{folder}", "-o", library, source], check=True)
        return ctypes.CDLL(str(library))

    def scale(self, x: torch.Tensor) -> torch.Tensor:
        kernel = self.compiled(x.shape[1])
        kernel.scale(ctypes.c_void_p(x.data_ptr()), ctypes.c_int(x.numel()))
        return x


class Tiled(nn.Module):
    """Pads the scaled tile to a fixed width and projects it."""

    def __init__(self, kernels: Kernels) -> None:
        super().__init__()
        self.kernels = kernels
        self.project = nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scaled = self.kernels.scale(x)
        return self.project(nn.functional.pad(scaled, (0, 64 - scaled.shape[1])))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--headers", type=Path, required=True)
    parser.add_argument("--tiles", type=Path, required=True)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Tiled(Kernels(args.headers)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, tile in enumerate(int(word) for word in args.tiles.read_text().split()):
        loss = model(torch.randn(8, tile)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} tile {tile} loss {loss.item():.3f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
