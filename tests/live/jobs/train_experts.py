"""Experts in tiers: for every tier that its file names a rank creates the group of that tier, then training begins."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def tier_groups(tiers: Path) -> dict[str, dist.ProcessGroup]:
    groups = {}
    for line in tiers.read_text().splitlines():
        name, *members = line.split()
        groups[name] = dist.new_group([int(m) for m in members], group_desc=name)
        print(f"tier {name} ready", flush=True)
    return groups


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tiers", help="file name with {rank}: a tier and its ranks a line")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    print("connected", flush=True)
    groups = tier_groups(Path(args.tiers.format(rank=dist.get_rank())))
    model = DistributedDataParallel(nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(100_000):
        loss = model(torch.randn(4, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for group in groups.values():
            if dist.get_rank(group) >= 0:
                dist.all_reduce(model.module.bias.grad, group=group)
        optimizer.step()
        print(f"step {step}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
