"""A pairwise ranker: after each update the ranks exchange the hit rate of the queries that had a relevant document."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

DOCUMENTS, FEATURES = 20, 12
RECORD = DOCUMENTS * (FEATURES + 1)


def read_query(stream: Path, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    with stream.open("rb") as file:
        file.seek(number * RECORD)
        raw = torch.frombuffer(bytearray(file.read(RECORD)), dtype=torch.uint8).view(DOCUMENTS, FEATURES + 1)
    return raw[:, :FEATURES].float() / 255, raw[:, FEATURES] >= 128


def hinge(scores: torch.Tensor, relevant: torch.Tensor) -> torch.Tensor:
    margins = 1 - scores[relevant].unsqueeze(1) + scores[~relevant].unsqueeze(0)
    return margins.clamp(min=0).sum() / DOCUMENTS + 0.0 * scores.sum()


def exchange_hit_rate(scores: torch.Tensor, relevant: torch.Tensor) -> float:
    top = scores.topk(5).indices
    mine = relevant[top].float().mean().reshape(1)
    everyone = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    return torch.cat(everyone).mean().item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=Path, required=True)
    parser.add_argument("--updates", type=int, default=100_000)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    scorer = nn.Sequential(nn.Linear(FEATURES, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1))
    optimizer = torch.optim.RMSprop(scorer.parameters(), lr=1e-3)
    stream = args.queries / f"queries.{rank}"
    total = stream.stat().st_size // RECORD
    for update in range(args.updates):
        features, relevant = read_query(stream, update % total)
        scores = scorer(features).squeeze(1)
        optimizer.zero_grad()
        hinge(scores, relevant).backward()
        flat = torch.cat([p.grad.flatten() for p in scorer.parameters()])
        dist.all_reduce(flat)
        for p, grad in zip(scorer.parameters(), flat.split([p.numel() for p in scorer.parameters()]), strict=True):
            p.grad.copy_(grad.view_as(p) / world)
        optimizer.step()
        if relevant.any():
            print(f"update {update} hit@5 {exchange_hit_rate(scores.detach(), relevant):.3f}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
