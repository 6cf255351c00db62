"""A small language model over token shards: DistributedDataParallel and DataLoader workers."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
import torch.distributed as dist
from dump_requests import answer_dump_requests
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset


class TokenShards(Dataset):
    """One shard file is one sequence of byte tokens."""

    def __init__(self, root: Path, rank: int) -> None:
        self.files = sorted(root.glob(f"tokens-{rank:03d}-*.bin"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.files[index].open("rb") as shard:
            raw = shard.read()
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).long()


class GPT(nn.Module):
    """Token embedding, two attention blocks, output head."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 256)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.size(1))
        return self.head(self.blocks(self.embed(tokens), mask=mask, is_causal=True))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, tokens: torch.Tensor) -> float:
    logits = model(tokens[:, :-1])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    torch.manual_seed(0)
    dump_server = answer_dump_requests()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    loader = DataLoader(TokenShards(args.data, rank), batch_size=2, num_workers=args.workers)
    step = 0
    for epoch in range(args.epochs):
        for tokens in loader:
            loss = train_step(model, optimizer, tokens)
            print(f"[rank {rank}] epoch {epoch} step {step} loss {loss:.4f}", flush=True)
            step += 1
    dist.destroy_process_group()
    del dump_server


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    main()
