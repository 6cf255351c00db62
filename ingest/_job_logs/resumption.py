"""Where steps of a log go on although something above them had ended: what stands there is of an earlier attempt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Protocol, TypeVar

_CLOCK = re.compile(r"(?<![\d:])([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?![\d:])")
_AT_ONCE_S, _NEVER = 60, -(10**6)
_LEAST_ANEW = 3
"""Steps that a job trains after an error without having been started again: whoever is ahead notes one, a loader two."""


class Counted(Protocol):
    """One line that counts; `at_s` is its time by `clock`."""

    @property
    def locator(self) -> int: ...
    @property
    def clock(self) -> str | None: ...
    @property
    def at_s(self) -> float | None: ...


class Shown(Counted, Protocol):
    """One line that counts, with its number and what it says."""

    @property
    def step(self) -> int: ...
    @property
    def text(self) -> str: ...


_C = TypeVar("_C", bound=Shown)
Parts = Sequence[Sequence[Counted]]
"""Lines of one series, cut where the number falls."""


def resumed(
    series: Sequence[Parts], ends: Sequence[int], stalls: Sequence[int], errors: Sequence[int], loads: Sequence[int] = ()
) -> int | None:
    """The line in which steps go on after the last of these ends after which they do: two of one series.

    After watchdogs gave up only steps that begin again count: a program that ends prints what it had not written yet. After an
    error, which a program may survive, they have to begin again later, as their times say, or a checkpoint was loaded (`loads`)
    and steps go on.
    """
    parts = [_lines(part) for each in series for part in each]
    again = [_lines(part) for each in series for part in each[1:]]
    found = (_after(parts, ends), _after(again, stalls, whole=True), _after([*_anew(series)], errors, whole=True))
    loaded = _loaded(parts, (*stalls, *errors), loads)
    return max((line for line in (*found, loaded) if line is not None), default=None)


def without_repeats(parts: Sequence[Sequence[_C]]) -> Sequence[Sequence[_C]]:
    """Parts without those that another process wrote of the same steps at the same time of day: a log pasted below another."""
    if len(parts) < 2:
        return parts
    kept: list[Sequence[_C]] = []
    seen: dict[int, int] = {}
    for part in parts:
        times = {point.step: at for point in part if (at := _time_of_day(point.text)) is not None}
        is_known = len(times) == len(part) > 0
        if not (is_known and all(abs(seen.get(step, _NEVER) - at) <= _AT_ONCE_S for step, at in times.items())):
            kept.append(part)
        seen |= times
    return kept


def _time_of_day(text: str) -> int | None:
    found = _CLOCK.search(text)
    return sum(int(number) * weight for number, weight in zip(found.groups(), (3600, 60, 1), strict=True)) if found else None


def _loaded(parts: Sequence[Sequence[int]], before: Sequence[int], loads: Sequence[int]) -> int | None:
    """The last line that tells of a checkpoint that was loaded below one of these, with steps below it."""
    for load in sorted(loads, reverse=True):
        goes_on = any(sum(line > load for line in part) >= _LEAST_ANEW for part in parts)
        if goes_on and any(line < load for line in before):
            return load
    return None


def _lines(part: Sequence[Counted]) -> list[int]:
    return [point.locator for point in part]


def _anew(series: Sequence[Parts]) -> Iterator[list[int]]:
    """Lines of parts that begin later than everything above them in their series."""
    for parts in series:
        newest = float("-inf")
        for part in parts:
            times = [point.at_s for point in part if point.clock == "line" and point.at_s is not None]
            if len(times) >= _LEAST_ANEW and float("-inf") < newest <= times[0]:
                yield _lines(part)
            newest = max([newest, *times])


def _after(parts: Sequence[Sequence[int]], ends: Sequence[int], whole: bool = False) -> int | None:
    """The first line of a part, two at least, behind the last of these ends with one; `whole` for parts that begin there."""
    for end in sorted(ends, reverse=True):
        behind = [
            found
            for part in parts
            if not (whole and part[0] <= end) and len(found := [line for line in part if line > end]) > 1
        ]
        if behind:
            return min(found[0] for found in behind)
    return None
