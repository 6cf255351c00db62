"""What sampled device times say of forward and backward: the host sees work of forward late, where it first waits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from forensics.rules.reductions.frontier.gates import Gates
from forensics.rules.reductions.frontier.matrix import StageMatrix

if TYPE_CHECKING:
    from forensics.rules.reductions.frontier.labels import Examined

FORWARD, BACKWARD = "forward", "backward"


def event_ready(matrix: StageMatrix) -> float | None:
    """Share of the device times asked for that are there; None when none was asked for."""
    device, asked = matrix.device or {}, sum(matrix.asked.values())
    ready = sum(int(np.isfinite(device[stage]).sum()) for stage in matrix.asked if stage in device)
    return min(ready / asked, 1.0) if asked else None


def hides_forward(matrix: StageMatrix, found: Examined, gates: Gates) -> bool:
    """Whether the excess of a leading backward pass may be work of forward: no rank stands out, and no device time denies it.

    Direct exposure asks for spread too (StageFrontier Table 2); section 6.2 claims no such row for either stage.
    """
    if not found.shares or FORWARD not in found.stages:
        return False
    first = int(np.argmax(found.shares))
    if found.stages[first] != BACKWARD or found.shares[first] <= gates.dominance or found.gains[first] < gates.static_gain:
        return False
    device, usual = _forward_on_device(matrix), found.exposed_ns / max(len(matrix.steps), 1)
    is_even = found.maxima[first] - found.means[first] < gates.static_gain * found.exposed_ns
    return is_even and (device is None or device >= gates.dominance * usual)


def _forward_on_device(matrix: StageMatrix) -> float | None:
    """Device time of forward in ns: the median over sampled steps of the longest rank; None without a sample."""
    values = (matrix.device or {}).get(FORWARD)
    if values is None or not np.isfinite(values).any():
        return None
    sampled = values[np.isfinite(values).any(axis=1)]
    return float(np.median(np.nanmax(sampled, axis=1)))


def device_labels(matrix: StageMatrix, found: Examined, gates: Gates) -> Iterator[tuple[str, str | None, str]]:
    """What sampled device times say of a leading forward or backward stage."""
    if found.event_ready is None or found.shares is None:
        return
    values = (matrix.device or {}).get(FORWARD)
    share = dict(zip(found.stages, found.shares, strict=True))
    samples = int(np.isfinite(values).sum()) if values is not None else 0
    if found.event_ready < gates.event_ready or samples < gates.event_samples or values is None:
        yield (
            "forward_event_scope_limited",
            FORWARD,
            f"{samples} device times of forward are there, of {matrix.asked.get(FORWARD, 0)} asked for",
        )
        return
    device = _forward_on_device(matrix) or 0.0
    usual = found.exposed_ns / max(len(matrix.steps), 1)
    is_high = device >= gates.dominance * usual
    if share.get(FORWARD, 0.0) > gates.dominance:
        label = "forward_device_supported" if is_high else "forward_host_overhead_suspected"
        yield label, FORWARD, f"device time of forward is {device / 1e6:.1f} ms of a step of {usual / 1e6:.1f} ms"
    elif is_high and share.get(BACKWARD, 0.0) > share.get(FORWARD, 0.0):
        yield (
            "forward_spillover_suspected",
            FORWARD,
            f"device time of forward is {device / 1e6:.1f} ms, and seen later, in backward",
        )
