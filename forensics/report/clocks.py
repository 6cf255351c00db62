"""Clocks of hosts beside each other: which can be trusted to compare times, and to within what."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.model import ClockOffsetRow
from forensics.report import times
from forensics.report.section import Item

_MOST = 16
"""Hosts shown one by one: those that are certainly off first, then the least certain."""


def items(rows: Sequence[ClockOffsetRow], all_hosts: bool = False) -> Iterator[Item]:
    """One item a host, then what was left out, and how it was measured."""
    if not rows:
        return
    order = sorted(rows, key=lambda row: (-excess(row), -(row.bound_ns or 0), row.host))
    shown = order if all_hosts else order[:_MOST]
    for row in shown:
        yield Item(_words(row), row.host, source=row.method)
    if left := order[len(shown) :]:
        widest = max(row.bound_ns or 0 for row in left)
        off = sum(excess(row) > 0 for row in left)
        yield Item(f"{len(left)} more hosts: {off} certainly apart, the others the same to within {times.duration(widest)}")


def excess(row: ClockOffsetRow) -> int:
    """By how many ns at least the clock is off."""
    return max(0, abs(row.offset_ns) - (row.bound_ns or 0))


def _words(row: ClockOffsetRow) -> str:
    if row.bound_ns is None:
        return f"{_signed(row.offset_ns)} against {row.reference}, bound unknown"
    bound = f"+-{times.duration(row.bound_ns)}"
    if excess(row) == 0:
        return f"no difference from {row.reference} known ({_signed(row.offset_ns)} {bound})"
    way = "ahead of" if row.offset_ns > 0 else "behind"
    return f"{times.duration(abs(row.offset_ns))} {bound} {way} {row.reference}"


def _signed(offset_ns: int) -> str:
    return f"{'+' if offset_ns >= 0 else '-'}{times.duration(abs(offset_ns))}"
