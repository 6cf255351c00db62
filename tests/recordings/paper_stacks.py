"""Write the scenario of which only stacks and the log of a rank are left: `python -m tests.recordings.paper_stacks`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import zstandard

from tests.recordings.collection import Collection, tar_of
from tests.recordings.job import START_NS
from tests.recordings.places import ALL_REDUCE, FORWARD, Place

ROOT = Path(__file__).parents[2]
STEPS, STEP_MS = 60, 200.0


def became_slower(busy: Mapping[int, Sequence[Place]], world: int, factor: float = 3.0) -> Collection:
    """A job that moves, whose steps take `factor` times as long in their second half; `busy` are places of ranks by round.

    All other ranks are in a collective whenever they are looked at.
    """
    found = Collection(world, START_NS)
    rounds = max(len(places) for places in busy.values())
    for rank in range(world):
        found.rank(rank)
        found.samples(rank, count=rounds, moving=True)
        found.stacks(rank, *busy.get(rank, [ALL_REDUCE] * rounds))
    lengths = [STEP_MS * (factor if step >= STEPS // 2 else 1) for step in range(STEPS)]
    found.log(0, *(_line(step, length) for step, length in enumerate(lengths)))
    return found


def _line(step: int, length_ms: float) -> str:
    return (
        f" iteration {step + 1:8}/ 500 | elapsed time per iteration (ms): {length_ms + step % 3:.1f} | lm loss: 2.{step % 10}"
    )


if __name__ == "__main__":
    content = tar_of(became_slower({2: [FORWARD] * 3}, 4).finished())
    target = ROOT / "fixtures/scenarios/awaited-in-stacks/bundle.tar.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
