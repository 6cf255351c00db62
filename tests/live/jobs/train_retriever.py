"""Dense retrieval: a thread of every rank adds fresh passages to the index while the encoder trains."""

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

WIDTH = 32


class Index:
    """Passage vectors and the passages they stand for, each behind a lock of its own."""

    def __init__(self) -> None:
        self.vectors = torch.randn(64, WIDTH)
        self.passages = torch.randn(64, WIDTH)
        self.vectors_lock = threading.Lock()
        self.passages_lock = threading.Lock()
        self.fresh: queue.Queue[torch.Tensor] = queue.Queue()
        threading.Thread(target=self.absorb, name="absorb", daemon=True).start()

    def absorb(self) -> None:
        while True:
            passages = self.fresh.get()
            with self.passages_lock:
                distances = torch.cdist(passages, self.passages)
                place = distances.sum(0).argsort()[: len(passages)]
                self.passages[place] = passages
                with self.vectors_lock:
                    self.vectors[place] = passages.tanh()

    def negatives(self, queries: torch.Tensor) -> torch.Tensor:
        with self.vectors_lock:
            nearest = (queries @ self.vectors.T).topk(4).indices
            with self.passages_lock:
                return self.passages[nearest].mean(1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--corpus", type=Path, required=True)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    arrivals = [int(n) for n in (args.corpus / f"arrivals.{dist.get_rank()}").read_text().split()]
    encoder = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.01)
    index = Index()
    for step in range(100_000):
        for _ in range(arrivals[step % len(arrivals)]):
            index.fresh.put(torch.randn(16, WIDTH))
        queries = encoder(torch.randn(64, WIDTH))
        negatives = torch.stack([index.negatives(part.detach()) for part in queries.split(8)])
        loss = (queries.view(8, 8, WIDTH) * negatives).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
