"""Packs documents of any length into full rows; empty documents are left out, the corpus is read round and round."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

ROW = 64


class Packer:
    """Fills rows from one corpus file, one document a line."""

    def __init__(self, corpus: Path) -> None:
        self.sections = [section.splitlines() for section in corpus.read_text().split("\f")]
        self.section = 0

    def row(self) -> torch.Tensor:
        documents = self.sections[self.section % len(self.sections)]
        self.section += 1
        tokens: list[int] = []
        position = 0
        while len(tokens) < ROW:
            document = documents[position % len(documents)]
            position += 1
            if not document.strip():
                continue
            tokens.extend(document.encode())
        return torch.tensor(tokens[:ROW])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", help="file name with {rank}")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    packer = Packer(Path(args.corpus.format(rank=dist.get_rank())))
    table = nn.Embedding(256, 64)
    head = nn.Linear(64, 256)
    weights = [*table.parameters(), *head.parameters()]
    for weight in weights:
        dist.broadcast(weight.data, src=0)
    optimizer = torch.optim.SGD(weights, lr=0.1)
    for step in range(100_000):
        row = packer.row()
        loss = nn.functional.cross_entropy(head(table(row[:-1])), row[1:])
        optimizer.zero_grad()
        loss.backward()
        for weight in weights:
            dist.all_reduce(weight.grad)
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
