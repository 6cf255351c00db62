"""Caption scores: after the update the ranks bring the scores of their examples together; a thread shows the progress."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WIDTH = 16


def add_up(scores: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(scores)
    return scores


def bring_together(scores: torch.Tensor) -> torch.Tensor:
    parts = [torch.empty_like(scores) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, scores)
    return torch.cat(parts)


def follow_first(scores: torch.Tensor) -> torch.Tensor:
    dist.broadcast(scores, src=0)
    return scores


class Progress(threading.Thread):
    """Writes the step to a file now and then."""

    def __init__(self, path: Path) -> None:
        super().__init__(name="progress")
        self.path, self.step, self.done = path, 0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(0.5):
            self.path.write_text(f"{self.step}\n")


CALLS = {"sum": add_up, "gather": bring_together, "first": follow_first}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--captions", type=Path, required=True)
    parser.add_argument("--scores", choices=CALLS, default="sum")
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    lengths = [int(n) for n in (args.captions / f"examples.{dist.get_rank()}").read_text().split()]
    model = DistributedDataParallel(nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    progress = Progress(args.captions / f"progress.{dist.get_rank()}")
    progress.start()
    for step in range(100_000):
        progress.step = step
        examples = torch.randn(lengths[step % len(lengths)], WIDTH)
        scores = model(examples).squeeze(1)
        optimizer.zero_grad()
        scores.square().mean().backward()
        optimizer.step()
        joint = CALLS[args.scores](scores.detach().clone())
        print(f"step {step} mean score {joint.mean().item():.4f}", flush=True)
    progress.done.set()
    del dump_server


if __name__ == "__main__":
    main()
