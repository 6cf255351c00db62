"""When to collect: what the rhythms of the sampled ranks, and the processes of all, say together."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from forensics.watch.rhythm import NOTHING, Limits, Rhythm, relearned, slowdown, stated

MOST_SAMPLED = 10
"""Ranks looked at, of however many: a fault reaches every rank within a few steps (Mycroft, 4.3)."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """Why to collect: `standstill`, `slowdown` or `gone`, the ranks that show it (not those to blame), and the numbers."""

    kind: str
    ranks: tuple[int, ...]
    reason: str


def sample(ranks: Collection[int]) -> tuple[int, ...]:
    """At most `MOST_SAMPLED` ranks, evenly spread: neighbours mostly share a tensor or pipeline group."""
    known = sorted(ranks)
    if len(known) <= MOST_SAMPLED:
        return tuple(known)
    return tuple(known[number * (len(known) - 1) // (MOST_SAMPLED - 1)] for number in range(MOST_SAMPLED))


def alarm(rhythms: Mapping[int, Rhythm], limits: Limits) -> Alarm | None:
    """The standstill, else the slowdown, that has not been stated yet."""
    return _standstill(rhythms, limits) or _slowdown(rhythms, limits)


def after(rhythms: Mapping[int, Rhythm], found: Alarm) -> dict[int, Rhythm]:
    """The rhythms once an alarm has been stated, so that it is stated once."""
    change = {"standstill": stated, "slowdown": relearned}.get(found.kind)
    return {rank: change(one) if change else one for rank, one in rhythms.items()}


def gone(before: Sequence[int], now: Sequence[int]) -> Alarm | None:
    """Ranks without a process at two readings in a row while others run on: those that end a job end within one reading."""
    lost = tuple(sorted(set(before) & set(now)))
    return Alarm("gone", lost, "no such process at two samples in a row, and other ranks run on") if lost else None


def _standstill(rhythms: Mapping[int, Rhythm], limits: Limits) -> Alarm | None:
    """Of counted operations one rank tells (Algorithm 1, line 3); a stack or an idle CPU must be that of all."""
    rhythms = {rank: one for rank, one in rhythms.items() if one.last.source != NOTHING}
    still = {rank: one for rank, one in rhythms.items() if one.stands(limits)}
    fresh = [rank for rank, one in still.items() if not one.is_known]
    if not fresh or len(fresh) < len(still):
        return None
    if len(still) < len(rhythms) and not any(still[rank].is_counted for rank in fresh):
        return None
    seconds = max(still[rank].still_s() for rank in fresh)
    sources = ", ".join(sorted({still[rank].last.source for rank in fresh}))
    return Alarm("standstill", tuple(sorted(fresh)), f"no movement for {seconds:.0f} s ({sources})")


def _slowdown(rhythms: Mapping[int, Rhythm], limits: Limits) -> Alarm | None:
    found = {rank: words for rank, one in sorted(rhythms.items()) if (words := slowdown(one, limits))}
    if not found:
        return None
    first = min(found)
    return Alarm("slowdown", tuple(found), f"rank {first}: {found[first]}")
