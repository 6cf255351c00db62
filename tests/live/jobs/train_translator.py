"""Translates digits into letters; every rank writes its shard from a child process, the loop does not wait for the disk."""

from __future__ import annotations

import argparse
import multiprocessing as mp
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Seq2Seq(nn.Module):
    """GRU encoder and decoder over a joint vocabulary."""

    def __init__(self, vocabulary: int = 64, width: int = 48) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.encoder = nn.GRU(width, width, batch_first=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        _, state = self.encoder(self.embed(source))
        return self.head(self.decoder(self.embed(target), state)[0])


def write_shard(path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save(state, path)


class BackgroundSaver:
    """At most one shard is being written: the next save waits for the one before."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer: BaseProcess | None = None

    def save(self, model: nn.Module, step: int) -> None:
        if self.writer is not None:
            self.writer.join()
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        path = self.folder / f"{step:06d}-{dist.get_rank()}.pt"
        self.writer = mp.get_context("fork").Process(target=write_shard, args=(path, state))
        self.writer.start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=Path, required=True)
    parser.add_argument("--every", type=int, default=10)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(Seq2Seq())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    saver = BackgroundSaver(args.shards)
    for step in range(1, 100_000):
        source = torch.randint(0, 32, (8, 12))
        logits = model(source, source + 32)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), (source + 32).flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)
        if step % args.every == 0:
            saver.save(model.module, step)
    del dump_server


if __name__ == "__main__":
    main()
