"""Times of day above stacks, or in the names of their files and folders: `py-spy_41233_0312.txt`, `1934/node-b_pid1502.txt`.

One number in a name proves nothing. They are times where all files of a kind have one at that place, each of them is a time of
day, none is the number of the process in the file, and some process was looked at again later.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import PurePosixPath

LEAST_FILES = 4
"""Four numbers of four digits that are all times by chance: one case in two thousand."""
ROUND_S = 180
"""Looks at several processes, one after the other, lie within this of the next one."""
AGAIN_S = 5
"""A process of which there is a look this much later was looked at again, where the times have seconds: forms of one look are
made in one go."""
_STAMP = re.compile(r"(?<!\d)20\d{2}-?\d{2}-?\d{2}[T_ -](\d{2})[-:.h]?(\d{2})[-:.m]?(\d{2})(?![A-Za-z0-9])")
_TOKEN = re.compile(r"(?<![A-Za-z0-9])(\d{2})[h:]?(\d{2})(?:[m:]?(\d{2})s?)?(?![A-Za-z0-9])")
# Years that are times of day as well.
_YEARS = range(2000, 2060)
_DAY_S = 24 * 3600


def clock(path: str, pid: int | None = None) -> int | None:
    """Seconds of the day that the name of a file, or else of its folder, has: a number that is not that of its process.

    None without one, with several, or where the only number is no time of day.
    """
    named = PurePosixPath(path)
    for part in (named.stem, named.parent.name):
        stamps = list(_STAMP.finditer(part))
        found = stamps or [said for said in _TOKEN.finditer(part) if not _is_year(said) and _digits(said) != pid]
        times = [seconds for said in found if (seconds := _seconds(said)) is not None]
        if found:
            return times[0] if len(times) == 1 else None
    return None


def rounds_of(looks: Iterable[tuple[int | None, object]]) -> Sequence[int]:
    """The round of each look, 0 first: `looks` are a time of day and whose it is. Empty where they are no times of looks."""
    found = list(looks)
    times = [seconds for seconds, _ in found if seconds is not None]
    if len(times) < max(len(found), LEAST_FILES):
        return ()
    numbers = _numbered(times, [owner for _, owner in found])
    seen: dict[object, set[int]] = defaultdict(set)
    for number, (_, owner) in zip(numbers, found, strict=True):
        seen[owner].add(number)
    return numbers if any(len(rounds) > 1 for rounds in seen.values()) else ()


def _numbered(times: Sequence[int], owners: Sequence[object]) -> list[int]:
    """Rounds in the order of the day; looks before and after midnight are in the order in which the longest pause puts them.

    A round ends with a pause, or where one of its processes is looked at again.
    """
    ordered = sorted(set(times))
    pauses = [(after - before, after) for before, after in pairwise([*ordered, ordered[0] + _DAY_S])]
    first = max(pauses)[1] % _DAY_S
    ordered.sort(key=lambda seconds: (seconds - first) % _DAY_S)
    again = AGAIN_S if any(seconds % 60 for seconds in times) else _DAY_S
    looked: dict[int, list[object]] = defaultdict(list)
    for seconds, owner in zip(times, owners, strict=True):
        looked[seconds].append(owner)
    number, found, begun = 0, dict[int, int](), dict[object, int]()
    for before, seconds in pairwise([ordered[0], *ordered]):
        is_again = any((seconds - begun[owner]) % _DAY_S >= again for owner in looked[seconds] if owner in begun)
        if is_again or (seconds - before) % _DAY_S > ROUND_S:
            number, begun = number + 1, {}
        for owner in looked[seconds]:
            begun.setdefault(owner, seconds)
        found[seconds] = number
    return [found[seconds] for seconds in times]


def _is_year(said: re.Match[str]) -> bool:
    return said[3] is None and said[0].isdigit() and int(said[0]) in _YEARS


def _digits(said: re.Match[str]) -> int:
    return int("".join(filter(None, said.groups())))


def _seconds(said: re.Match[str]) -> int | None:
    hour, minute, second = (int(part or 0) for part in said.groups())
    return 3600 * hour + 60 * minute + second if hour < 24 and minute < 60 and second < 60 else None
