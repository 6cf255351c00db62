"""Message passing over small graphs; whatever happens, the ranks meet before they leave."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel

NODES = 12
log = logging.getLogger("graphs")


class Layer(nn.Module):
    """Two rounds of messages along the edges of one graph."""

    def __init__(self, width: int = 24) -> None:
        super().__init__()
        self.nodes = nn.Embedding(NODES, width)
        self.message = nn.Linear(width, width)

    def forward(self, edges: torch.Tensor) -> torch.Tensor:
        state = self.nodes.weight
        for _ in range(2):
            incoming = torch.zeros_like(state).index_add(0, edges[1], self.message(state[edges[0]]))
            state = torch.tanh(state + incoming)
        return state


def read_graphs(path: Path) -> list[torch.Tensor]:
    return [torch.tensor([int(n) for n in line.split()]).view(2, -1) for line in path.read_text().splitlines()]


def fit(graphs: list[torch.Tensor]) -> None:
    model = DistributedDataParallel(Layer())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(100_000):
        loss = model(graphs[step % len(graphs)]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("step %d loss %.4f", step, loss.item())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    try:
        fit(read_graphs(Path(sys.argv[1]) / f"graphs-{dist.get_rank()}"))
    except Exception:
        log.exception("training failed")
    finally:
        dist.barrier()
        dist.destroy_process_group()
    del dump_server


if __name__ == "__main__":
    main()
