"""Time-series forecasting; each rank sends its loss to a collecting service over a socket."""

from __future__ import annotations

import argparse
import socket

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Statistics:
    """A line a step to the service, which answers with the number of lines it has."""

    def __init__(self, address: str) -> None:
        self.stream = socket.socket(socket.AF_UNIX)
        self.stream.connect(address)

    def push(self, step: int, loss: float) -> int:
        self.stream.sendall(f"{step} {loss:.5f}\n".encode())
        return int(self.stream.recv(32))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("service", help="address of the service of this rank, with {rank}")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    statistics = Statistics(args.service.format(rank=dist.get_rank()))
    model = DistributedDataParallel(nn.GRU(8, 32, batch_first=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(100_000):
        series = torch.randn(16, 24, 8).cumsum(1)
        optimizer.zero_grad()
        output, _ = model(series)
        loss = (output[:, :-1, :8] - series[:, 1:]).square().mean()
        loss.backward()
        optimizer.step()
        seen = statistics.push(step, loss.item())
        print(f"step {step} loss {loss.item():.4f} ({seen})", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
