"""What part of the rate of its line each NIC moves in its busiest epochs, by captures of it (Pulse section 6.2).

A NIC that has work moves what its line carries, in epochs that are full at least; gaps between slices are in the others. So
captures tell the same as work requests do, and more plainly: what waits for computation has no epochs with data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NewType

from forensics.rules.reductions.epochs.captures import NicCapture
from forensics.rules.reductions.epochs.links import LinkRate, LinkRates
from forensics.rules.reductions.epochs.standstill import NicSilence
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.line_uses import LineUse, LineUses

# Bytes of an operator on a link: smaller ones are mostly latency, and have few full epochs.
_LEAST_BYTES = 16 << 20

CapturedUses = NewType("CapturedUses", tuple[LineUse, ...])
"""NICs with large operators in captures, by host and name; none where nothing moves any more."""
NicUses = NewType("NicUses", tuple[LineUse, ...])
"""NICs by captures, where all of which work requests are known were captured; else by these, and the others by captures."""


@reduction
def captured_uses(rates: LinkRates, silence: NicSilence) -> CapturedUses:
    """Take each NIC by what it sends, as it tells it itself."""
    if silence:
        return CapturedUses(())
    hosts = {capture.rank: capture.host for capture in rates.captures}
    found = (_use(capture, rates.nics, hosts) for capture in rates.captures)
    return CapturedUses(tuple(sorted((use for use in found if use is not None), key=lambda use: (use.host, use.nic))))


@reduction
def nic_uses(requested: LineUses, captured: CapturedUses) -> NicUses:
    """Put both together: one account of each NIC."""
    known = {(use.host, use.nic) for use in requested}
    if known <= {(use.host, use.nic) for use in captured}:
        return NicUses(captured)  # over their work requests NICs move less than in busy epochs, and seem to move more
    return NicUses((*requested, *(use for use in captured if (use.host, use.nic) not in known)))


def _use(capture: NicCapture, links: Sequence[LinkRate], hosts: Mapping[int, str | None]) -> LineUse | None:
    sent = [link for link in links if link.sender == link.shown_by == capture.rank and link.nic == capture.nic]
    large = [link for link in sent if _mean_bytes(link) >= _LEAST_BYTES]
    if capture.host is None or not large:
        return None
    most = max(large, key=lambda link: (link.sent, link.receiver))
    busy = min(sum(link.volume for link in sent) / most.sent, 1.0)
    peers = tuple(sorted({host for link in sent if (host := hosts.get(link.receiver))}))
    ranks = capture.ranks or (capture.rank,)
    return LineUse(capture.host, capture.nic, ranks, most.sent, busy, capture.line_rate, most.source, peers, busy)


def _mean_bytes(link: LinkRate) -> float:
    """Bytes of an operator."""
    return link.volume * link.span_ns / 1e9 / link.operators
