"""Whether epochs are short enough to show what a slow NIC does to the others (Pulse section 6.1).

NCCL splits a collective over channels and passes slices on. A NIC of a p-th of the rate takes p times as long for a slice, and
leaves the others a gap of slice x channels / rate x (p - 1): epochs longer than that have the gap in their own rate.
"""

from __future__ import annotations

# NCCL's slices are no larger, and it uses two channels at least (Pulse 6.1).
_SLICE_BYTES, _CHANNELS = 1 << 20, 2


def gap_ns(rate: float, times_slower: float) -> float:
    """ns of the gap that a NIC leaves which is so many times slower; `rate` is that of a sound one (bytes per second)."""
    return _SLICE_BYTES * _CHANNELS / rate * (times_slower - 1) * 1e9


def hides(epoch_ns: int, rate: float, times_slower: float) -> bool:
    """Whether epochs of this length cannot show the gap."""
    return epoch_ns > gap_ns(rate, times_slower)
