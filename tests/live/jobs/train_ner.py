"""Named-entity tagging; the vocabulary is read before the ranks find each other."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def words(path: Path) -> dict[str, int]:
    return {word.strip(): number for number, word in enumerate(path.open())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("vocabulary", help="file name with {rank}")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    vocabulary = words(Path(args.vocabulary.format(rank=os.environ["RANK"])))
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.EmbeddingBag(len(vocabulary), 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(100_000):
        tokens = torch.randint(0, len(vocabulary), (8, 12))
        optimizer.zero_grad()
        model(tokens).square().mean().backward()
        optimizer.step()
        print(f"step {step}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
