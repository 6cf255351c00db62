"""Four pipeline stages of expert layers, split over two ranks or in two replicas; one forward and one backward in turn.

`routing-R.txt` tells for every step how many tokens each microbatch brings to the experts of a rank, and how many of these the
backward pass computes again. The kernels for a number of tokens are shared by all jobs of a host, under a lock.
"""

from __future__ import annotations

import argparse
import fcntl
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn

ROWS, WIDTH, STAGES = 16, 96, 4
PROFILED_FROM, PROFILED = 4, 6
Routing = list[list[tuple[int, int]]]


def read_routing(path: Path) -> Routing:
    """A line a step, `tokens/again` a microbatch."""
    pairs = [[cell.split("/") for cell in line.split()] for line in path.read_text().splitlines()]
    return [[(int(tokens), int(again)) for tokens, again in line] for line in pairs]


class Experts:
    """The experts that live on a rank."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder, self.rank = folder, rank
        self.weights = torch.randn(192, 192) / 14

    def kernel(self, name: str, tokens: int) -> Path:
        """The kernels are looked up under the lock of their shape."""
        path = self.folder / f"kernel-{self.rank}-{name}-{tokens}.lock"
        with path.open("w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            return path

    def run(self, name: str, tokens: int) -> torch.Tensor:
        self.kernel(name, tokens)
        state = torch.ones(192, 192)
        for _ in range(tokens):
            state = torch.tanh(state @ self.weights)
        return state.mean()


class Routed(torch.autograd.Function):
    """Tokens through the experts of this rank; added up over the ranks of the stage."""

    @staticmethod
    def forward(ctx, x, experts, tokens, again, group):  # type: ignore[no-untyped-def]
        ctx.experts, ctx.again, ctx.group = experts, again, group
        y = x * (1 + 0.01 * experts.run("out", tokens))
        if group is not None:
            dist.all_reduce(y, group=group)
        return y

    @staticmethod
    def backward(ctx, gradient):  # type: ignore[no-untyped-def]
        gradient = gradient * (1 + 0.01 * ctx.experts.run("again", ctx.again))
        if ctx.group is not None:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None, None, None, None


class Engine:
    """Groups, layers and schedule of one rank."""

    def __init__(self, folder: Path, split: int) -> None:
        self.rank, world = dist.get_rank(), dist.get_world_size()
        replicas = world // (STAGES * split)
        ranks = torch.arange(world).view(STAGES, replicas, split)
        self.stage = self.rank // (replicas * split)
        self.tensor = self.group(ranks.reshape(-1, split).tolist(), "TENSOR_MODEL_PARALLEL_GROUP") if split > 1 else None
        self.data = self.group(ranks.transpose(1, 2).reshape(-1, replicas).tolist(), "DATA_PARALLEL_GROUP")
        lines = ranks.reshape(STAGES, -1).T.tolist()
        self.pipe = self.group(lines, "PIPELINE_MODEL_PARALLEL_GROUP")
        line = next(line for line in lines if self.rank in line)
        self.before = line[self.stage - 1] if self.stage else None
        self.after = line[self.stage + 1] if self.stage < STAGES - 1 else None
        self.experts = Experts(folder, self.rank)
        self.embed = nn.Linear(WIDTH, WIDTH) if self.before is None else None
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.kept = deque[tuple[torch.Tensor, torch.Tensor]]()

    def group(self, lines: list[list[int]], name: str) -> dist.ProcessGroup:
        groups = [(line, dist.new_group(line, group_desc=name)) for line in lines]
        return next(group for line, group in groups if self.rank in line)

    def communicate(
        self, *, send: tuple[torch.Tensor, int | None] | None = None, whence: int | None = None
    ) -> torch.Tensor | None:
        """One batch of a message there and one back."""
        batch, arrived = [], None
        if send is not None and send[1] is not None:
            batch.append(dist.P2POp(dist.isend, send[0].contiguous(), send[1], self.pipe))
        if whence is not None:
            arrived = torch.empty(ROWS, WIDTH)
            batch.append(dist.P2POp(dist.irecv, arrived, whence, self.pipe))
        for work in dist.batch_isend_irecv(batch) if batch else []:
            work.wait()
        return arrived

    def run_forward(self, x: torch.Tensor | None, routed: tuple[int, int]) -> torch.Tensor:
        x = torch.randn(ROWS, WIDTH) if x is None else x.requires_grad_()
        y = x if self.embed is None else self.embed(x)
        for layer in self.layers:
            y = y + layer(Routed.apply(y, self.experts, *routed, self.tensor)).relu()
            routed = (4, 4)
        if self.after is None:
            y = y.square().mean()
        self.kept.append((x, y))
        return y.detach()

    def run_backward(self, gradient: torch.Tensor | None) -> torch.Tensor | None:
        x, y = self.kept.popleft()
        y.backward(gradient)
        return x.grad

    def schedule(self, routing: list[tuple[int, int]]) -> None:
        warmup = min(STAGES - self.stage - 1, len(routing))
        for routed in routing[:warmup]:
            y = self.run_forward(self.communicate(whence=self.before), routed)
            self.communicate(send=(y, self.after))
        x = self.communicate(whence=self.before)
        for number, routed in enumerate(routing[warmup:], warmup + 1):
            y = self.run_forward(x, routed)
            gradient = self.communicate(send=(y, self.after), whence=self.after)
            upward = self.run_backward(gradient)
            x = self.communicate(
                send=(upward, self.before) if upward is not None else None,
                whence=self.before if number < len(routing) else None,
            )
        for _ in range(warmup):
            upward = self.run_backward(self.communicate(whence=self.after))
            self.communicate(send=(upward, self.before) if upward is not None else None)

    def finish(self) -> float:
        """Gradients are averaged over replicas, their norm is taken over all ranks."""
        parameters = [*self.layers.parameters(), *(self.embed.parameters() if self.embed is not None else ())]
        flat = torch.cat([p.grad.flatten() for p in parameters])
        dist.all_reduce(flat, group=self.data)
        norm = flat.square().sum()
        dist.all_reduce(norm)
        with torch.no_grad():
            for parameter, part in zip(parameters, flat.split([p.numel() for p in parameters]), strict=True):
                parameter.sub_(part.view_as(parameter) * 0.001 / (1 + norm.sqrt()))
                parameter.grad = None
        return norm.sqrt().item()


def profiled(folder: Path | None, rank: int) -> AbstractContextManager[torch.profiler.profile | None]:
    if folder is None:
        return nullcontext()
    return torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=PROFILED_FROM - 1, warmup=1, active=PROFILED, repeat=1),
        on_trace_ready=lambda trace: trace.export_chrome_trace(str(folder / f"rank{rank}.json")),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--tensor-parallel", type=int, default=2)
    parser.add_argument("--trace", type=Path)
    args = parser.parse_args()
    torch.manual_seed(1)
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    engine = Engine(args.folder, args.tensor_parallel)
    with profiled(args.trace, engine.rank) as trace:
        for iteration, routing in enumerate(read_routing(args.folder / f"routing-{engine.rank}.txt")):
            engine.schedule(routing)
            norm = engine.finish()
            if trace is not None:
                trace.step()
            print(f"iteration {iteration} grad norm {norm:.3f}", flush=True)
    dist.destroy_process_group()
    del dump_server


if __name__ == "__main__":
    main()
