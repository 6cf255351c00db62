"""What is said of a rank that comes last to collectives."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Evidence
from forensics.rules.reductions.arrivals.lateness import Lateness
from forensics.rules.reductions.text.evidence_text import ranks_text


def late_evidence(late: Lateness) -> Iterator[Evidence]:
    """How often it came last and by how much, and what tells so."""
    most = "up to" if late.is_bound else "median"
    yield Evidence(
        f"rank {late.rank} arrived last in {late.late}/{late.calls} {late.kind} of {late.communicator} ({most} "
        f"{late.typical_ns / 1e6:.0f} ms late); peers spent {100 * late.share:.0f} % of the time waiting for it",
        late.source,
    )
    if late.within is not None:
        yield _within(late.within)
    if late.before_ns is not None:
        yield Evidence(f"earlier in the same record it was {late.before_ns / 1e6:.0f} ms late", late.source)
    if late.on_own_clocks:
        yield Evidence(
            "each member's time in the call is on its own clock; who came last is in it for the shortest", late.source
        )
    if late.on_device:
        yield Evidence("its host made these calls when those beside it did: its device came to them late", late.source)


def _within(late: Lateness) -> Evidence:
    peers = ranks_text([rank for rank in late.members if rank != late.rank])
    often = f"{late.late}/{late.calls} {late.kind} of {late.communicator} (median {late.typical_ns / 1e6:.0f} ms late)"
    return Evidence(f"it arrived last in {often} too: {peers} waited for it there, and came late elsewhere", late.source)
