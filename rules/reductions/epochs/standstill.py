"""Whether the NICs show that a job stands still: none moves data any more, for much longer than any paused before."""

from __future__ import annotations

from dataclasses import dataclass

from forensics.rules.reductions.epochs.operators import NicOperators
from forensics.rules.reductions.interface import reduction

# Times the longest recurring pause, as for recorders (docs/decisions/0008-when-a-job-is-stuck.md).
_FACTOR = 2
_LEAST_NS = 2_000_000_000
_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class NicSilence:
    """For how long no captured NIC moved data, and the longest pause of one of them that recurred (ns); `source` tells it.

    False where the silence is not longer than pauses, where nothing was moved before it, or where a capture lost epochs.
    """

    silence_ns: int = 0
    pause_ns: int = 0
    nics: int = 0
    source: str | None = None

    def __bool__(self) -> bool:
        return self.silence_ns >= max(_FACTOR * self.pause_ns, _LEAST_NS)

    @property
    def reason(self) -> str:
        """The silence in words."""
        gap = f"{self.pause_ns / 1e9:.1f} s" if self.pause_ns >= _SECOND_NS else f"{self.pause_ns / 1e6:.0f} ms"
        silence = f"none of {self.nics} captured NICs moved data for {self.silence_ns / 1e9:.1f} s"
        return f"{silence}; longest recurring gap {gap}"


@reduction
def nic_silence(moved: NicOperators) -> NicSilence:
    """Each NIC by its own clock: what is compared are lengths of time, not times of different hosts."""
    busy = [nic for nic in moved if nic.peers]
    if not busy or not all(nic.capture.whole for nic in moved):
        return NicSilence()
    shortest = min(busy, key=lambda nic: (nic.quiet_ns, nic.capture.path))
    return NicSilence(shortest.quiet_ns, max(nic.pause_ns for nic in busy), len(moved), shortest.capture.path)
