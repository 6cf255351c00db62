"""Where to begin in a job that moves and of which nothing shows a rank: at the one GPU that draws more than all others."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.rules.reductions.frontier.messages import Messengers
from forensics.rules.reductions.hardware.drawn_power import DrawnPower


def power_leads(power: DrawnPower, messengers: Messengers) -> Iterator[str]:
    """One rank whose GPU may compute while the others wait; stages of a pipeline compute for different times anyway."""
    if power.rank is not None and not messengers:
        yield (
            f"stages and times inside calls (TORCH_NCCL_ENABLE_TIMING) of rank {power.rank}: {power.readings}; who waits in a "
            f"collective draws less ({power.source})"
        )
