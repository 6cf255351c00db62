"""Two stages, each split over two ranks, one forward and one backward in turn; a store keeps activations of the upper block.

The store is a service of the host, asked on a UNIX socket: it takes what a forward pass saves and gives it back later.
"""

from __future__ import annotations

import argparse
import socket
import struct
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

ROWS, WIDTH, SPLIT, MICROBATCHES = 256, 192, 2, 4
STEPS, PROFILED_FROM, PROFILED = 100_000, 4, 6


class Store:
    """One request is a letter, the rank, the step, the microbatch and the size of what follows or is wanted."""

    def __init__(self, address: str, rank: int) -> None:
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.connection.connect(address)
        self.rank, self.step = rank, 0

    def put(self, microbatch: int, value: torch.Tensor) -> None:
        content = value.detach().numpy().tobytes()
        self.connection.sendall(struct.pack("<cIIII", b"P", self.rank, self.step, microbatch, len(content)) + content)
        self.connection.recv(1, socket.MSG_WAITALL)

    def get(self, microbatch: int, size: int) -> bytearray:
        self.connection.sendall(struct.pack("<cIIII", b"G", self.rank, self.step, microbatch, size))
        return bytearray(self.connection.recv(size, socket.MSG_WAITALL))


class Spread(torch.autograd.Function):
    """What both ranks of a stage compute with: their gradients add up."""

    @staticmethod
    def forward(ctx, x, group):  # type: ignore[no-untyped-def]
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Gathered(torch.autograd.Function):
    """The sum of what both ranks of a stage computed."""

    @staticmethod
    def forward(ctx, x, group):  # type: ignore[no-untyped-def]
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        return gradient, None


class Block(nn.Module):
    """Half of the inner width of a residual block."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        super().__init__()
        self.group = group
        self.norm = nn.LayerNorm(WIDTH)
        self.inner = nn.Linear(WIDTH, 2 * WIDTH // SPLIT)
        self.outer = nn.Linear(2 * WIDTH // SPLIT, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.inner(Spread.apply(self.norm(x), self.group)).relu()
        return x + Gathered.apply(self.outer(inner), self.group)


class Stage:
    """The blocks of one rank, and the schedule."""

    def __init__(self, store: Store) -> None:
        self.rank, world = dist.get_rank(), dist.get_world_size()
        groups = [dist.new_group([first, first + 1], group_desc="tensor") for first in range(0, world, SPLIT)]
        self.tensor = groups[self.rank // SPLIT]
        self.number, self.stages = self.rank // SPLIT, world // SPLIT
        self.before = self.rank - SPLIT if self.number else None
        self.after = self.rank + SPLIT if self.number < self.stages - 1 else None
        self.lower, self.upper = Block(self.tensor), Block(self.tensor)
        self.parameters = [*self.lower.parameters(), *self.upper.parameters()]
        self.store, self.waiting, self.loss = store, deque[tuple[torch.Tensor | None, torch.Tensor]](), torch.zeros(1)

    def send(self, value: torch.Tensor | None, to: int | None) -> list[dist.Work]:
        return [] if to is None or value is None else [dist.isend(value.contiguous(), to)]

    def receive(self, whence: int | None) -> tuple[torch.Tensor | None, list[dist.Work]]:
        if whence is None:
            return None, []
        value = torch.empty(ROWS, WIDTH)
        return value, [dist.irecv(value, whence)]

    def exchange(self, value: torch.Tensor | None, to: int | None, whence: int | None) -> torch.Tensor | None:
        """Send to a neighbour and receive from one, both at once."""
        arrived, pending = self.receive(whence)
        for work in [*pending, *self.send(value, to)]:
            work.wait()
        return arrived

    def saving(self, microbatch: int) -> torch.autograd.graph.saved_tensors_hooks:
        def pack(value: torch.Tensor) -> torch.Tensor | torch.Size:
            if value.shape != (ROWS, WIDTH) or not value.is_contiguous():
                return value
            self.store.put(microbatch, value)
            return value.shape

        def unpack(saved: torch.Tensor | torch.Size) -> torch.Tensor:
            if isinstance(saved, torch.Tensor):
                return saved
            return torch.frombuffer(self.store.get(microbatch, 4 * saved.numel()), dtype=torch.float32).view(saved)

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)

    def forward(self, x: torch.Tensor | None, microbatch: int) -> torch.Tensor:
        x = torch.randn(ROWS, WIDTH) if x is None else x.requires_grad_()
        y = self.lower(x)
        with self.saving(microbatch):
            y = self.upper(y)
        if self.after is None:
            y = y.square().mean()
            self.loss += y.detach()
        self.waiting.append((x if x.requires_grad else None, y))
        return y.detach()

    def backward(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        x, y = self.waiting.popleft()
        y.backward(gradient)
        return None if x is None else x.grad

    def passes(self) -> None:
        """One forward and one backward in turn, after as many forwards as there are stages behind."""
        ahead = self.stages - self.number - 1
        for microbatch in range(ahead):
            self.exchange(self.forward(self.exchange(None, None, self.before), microbatch), self.after, None)
        x = self.exchange(None, None, self.before)
        for microbatch in range(ahead, MICROBATCHES):
            gradient = self.exchange(self.forward(x, microbatch), self.after, self.after)
            more = self.before if microbatch < MICROBATCHES - 1 else None
            x = self.exchange(self.backward(gradient), self.before, more)
        for _ in range(ahead):
            self.exchange(self.backward(self.exchange(None, None, self.after)), self.before, None)

    def update(self) -> float:
        """Parameters that both ranks have get the same gradient; the norm is that of all ranks."""
        shared = [p for block in (self.lower, self.upper) for p in block.norm.parameters()]
        flat = torch.cat([p.grad.flatten() for p in shared])
        dist.all_reduce(flat, group=self.tensor)
        for parameter, part in zip(shared, flat.split([p.numel() for p in shared]), strict=True):
            parameter.grad.copy_(part.view_as(parameter) / SPLIT)
        stated = torch.stack([sum(p.grad.square().sum() for p in self.parameters), self.loss.squeeze()])
        dist.all_reduce(stated)
        scale = 0.01 / max(1.0, stated[0].sqrt().item())
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.sub_(scale * parameter.grad)
                parameter.grad = None
        self.loss.zero_()
        return stated[1].item() / SPLIT / MICROBATCHES


def profiled(folder: Path | None, rank: int) -> AbstractContextManager[torch.profiler.profile | None]:
    if folder is None:
        return nullcontext()
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=PROFILED_FROM - 1, warmup=1, active=PROFILED, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(str(folder / f"rank-{rank}.pt.trace.json")),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("store", help="address of the store of activations")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--trace", type=Path, help="folder of the traces of a few steps")
    args = parser.parse_args()
    torch.manual_seed(0)
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    stage = Stage(Store(args.store, dist.get_rank()))
    with profiled(args.trace, stage.rank) as trace:
        for step in range(args.steps):
            stage.store.step = step
            stage.passes()
            loss = stage.update()
            if trace is not None:
                trace.step()
            print(f"[rank {stage.rank}] step {step} loss {loss:.4f}", flush=True)
    dist.destroy_process_group()
    del dump_server


if __name__ == "__main__":
    main()
