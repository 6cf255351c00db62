"""A click model fed by the feature service of the host: iterable dataset, one DataLoader worker."""

from __future__ import annotations

import argparse
import socket
import struct
from collections.abc import Iterator

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, IterableDataset


class FeatureStream(IterableDataset):
    """Rows asked one by one from the feature service."""

    def __init__(self, address: str, rank: int, width: int) -> None:
        self.address = address
        self.rank = rank
        self.width = width

    def __iter__(self) -> Iterator[torch.Tensor]:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(self.address)
            while True:
                connection.sendall(struct.pack("<II", self.rank, self.width))
                yield torch.frombuffer(bytearray(receive_exactly(connection, self.width)), dtype=torch.uint8).long()


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        piece = connection.recv(size - len(received))
        if not piece:
            raise ConnectionError("feature service closed the stream")
        received += piece
    return received


class ClickModel(nn.Module):
    """Embedding bag and a two-layer tower."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(256, 32)
        self.tower = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tower(self.table(ids)).squeeze(1)


def fit(model: DDP, loader: DataLoader, optimizer: torch.optim.Optimizer) -> None:
    for number, ids in enumerate(loader, start=1):
        clicked = (ids[:, 0] > 127).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(ids), clicked)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"batch {number}: logloss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("service")
    parser.add_argument("--width", type=int, default=24)
    options = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    network = DDP(ClickModel())
    rows = DataLoader(FeatureStream(options.service, dist.get_rank(), options.width), batch_size=8, num_workers=1)
    fit(network, rows, torch.optim.Adagrad(network.parameters(), lr=0.01))
