"""A mixture of experts: gradients over the data group, router load over the expert group, both of all ranks."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

EXPERTS, WIDTH = 4, 32


class MoE(nn.Module):
    """A soft router over small expert towers."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH)) for _ in range(EXPERTS)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gates = self.router(x).softmax(dim=-1)
        mixed = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return (mixed * gates.unsqueeze(1)).sum(-1), gates.mean(0)


class Engine:
    """Runs updates; a batch that overloads one expert has its router balanced before the gradients are averaged."""

    def __init__(self, data_group: dist.ProcessGroup, expert_group: dist.ProcessGroup) -> None:
        self.data_group = data_group
        self.expert_group = expert_group
        self.model = MoE()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.bias = torch.zeros(EXPERTS)

    def average_gradients(self) -> None:
        for parameter in self.model.parameters():
            dist.all_reduce(parameter.grad, group=self.data_group)

    def balance_router(self, load: torch.Tensor) -> None:
        dist.all_reduce(load, group=self.expert_group)
        self.bias -= 0.01 * (load - load.mean())

    def update(self, x: torch.Tensor) -> float:
        out, load = self.model(x)
        loss = nn.functional.mse_loss(out, x)
        self.optimizer.zero_grad()
        loss.backward()
        load = load.detach()
        if x.abs().max() > 0.99:
            self.balance_router(load)
            self.average_gradients()
        else:
            self.average_gradients()
            self.balance_router(load)
        self.optimizer.step()
        return loss.item()


def read_batch(stream: Path, number: int) -> torch.Tensor:
    size = 4 * WIDTH
    with stream.open("rb") as file:
        file.seek(number * size)
        raw = bytearray(file.read(size))
    return torch.frombuffer(raw, dtype=torch.uint8).view(4, WIDTH).float() / 255


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--activations", type=Path, required=True)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    everyone = list(range(dist.get_world_size()))
    engine = Engine(dist.new_group(everyone, group_desc="data"), dist.new_group(everyone, group_desc="expert"))
    stream = args.activations / f"{dist.get_rank()}.act"
    batches = stream.stat().st_size // (4 * WIDTH)
    for number in range(100_000):
        loss = engine.update(read_batch(stream, number % batches))
        print(f"update {number} loss {loss:.4f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
