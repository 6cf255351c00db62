"""A sequence tagger in epochs: batches that are all padding are dropped, the epoch ends with an exchange of the losses."""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.utils.data import DataLoader

LENGTH, TAGS, PAD = 32, 8, 0


class Sentences:
    """Fixed-length byte sentences of one rank."""

    def __init__(self, corpus: Path, rank: int) -> None:
        self.raw = (corpus / f"sentences-{rank}.txt").read_bytes()

    def __len__(self) -> int:
        return len(self.raw) // LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        piece = self.raw[index * LENGTH : (index + 1) * LENGTH]
        return torch.frombuffer(bytearray(piece), dtype=torch.uint8).long()


class Tagger(nn.Module):
    """Embedding, GRU, projection to tags."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 24, padding_idx=PAD)
        self.gru = nn.GRU(24, 32, batch_first=True)
        self.project = nn.Linear(32, TAGS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.project(self.gru(self.embed(words))[0])


def reduce_gradients(model: nn.Module) -> None:
    gradients = [p.grad for p in model.parameters()]
    bucket = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(bucket)
    for gradient, total in zip(gradients, bucket.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(total.view_as(gradient) / dist.get_world_size())


def train_epoch(model: Tagger, loader: DataLoader, optimizer: torch.optim.Optimizer, epoch: int) -> float:
    total = 0.0
    for index, words in enumerate(loader):
        present = words != PAD
        if not present.any():
            continue
        loss = nn.functional.cross_entropy(model(words)[present], words[present] % TAGS)
        optimizer.zero_grad()
        loss.backward()
        reduce_gradients(model)
        optimizer.step()
        total += loss.item()
        print(f"epoch {epoch} batch {index} loss {loss.item():.3f}", flush=True)
    return total / len(loader)


def report_epoch(mean_loss: float) -> list[float]:
    gathered = [torch.zeros(1) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, torch.tensor([mean_loss]))
    return [value.item() for value in gathered]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    args = parser.parse_args()
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Tagger()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Sentences(args.corpus, dist.get_rank()), batch_size=4)
    for epoch in range(10_000):
        losses = report_epoch(train_epoch(model, loader, optimizer, epoch))
        print(f"epoch {epoch} done, losses {losses}", flush=True)
    del dump_server


if __name__ == "__main__":
    main()
