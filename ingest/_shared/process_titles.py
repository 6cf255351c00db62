"""Where a process of a server stands in its parallel layout, by what it calls itself, and which rank that makes it.

Upstream: `setproctitle` and the prefix of the log in sglang/srt (`sglang::scheduler_PP1_TP0`,
`[2026-01-29 13:12:37 PP1 TP0] Pyspy dump for PID 88693:`), `set_process_title` and `decorate_logs` of vllm/v1
(`VLLM::Worker_TP2_EP2`, `(Worker_TP2 pid=77)`), as of 2026. In SGLang TP counts over the whole tensor group, which attention
divides into DPs; replicas without that count TP anew. Both number ranks by stage first: stage times size of the tensor group,
plus TP.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Place = tuple[tuple[str, int], ...]
"""Coordinates: name and number of each."""

_COORDINATE = r"[A-Z]{2,8}(?:_[A-Z]{2,8})?\d{1,5}"
_TITLE = re.compile(rf"(?:(?:sglang::scheduler|(?:VLLM::)?Worker)(?=_)|VllmWorker(?= ))((?:[_ ]{_COORDINATE})+)(?![\w])")
_DUMPED = re.compile(rf"\[[\d:., -]{{19,26}}((?: {_COORDINATE})*)\] Pyspy dump for PID (\d{{1,9}})\b")
_ONE = re.compile(r"([A-Z]+(?:_[A-Z]+)?)(\d+)")
_KNOWN = frozenset({"PP", "TP"})


def place_of(title: str) -> Place | None:
    """Coordinates of a process by its title, or by the label that it writes in front of its lines."""
    said = _TITLE.match(title)
    return _place(said[1]) if said else None


def server_title(axes: str) -> str:
    """Title of the process of SGLang that writes ` PP1 TP0` behind the time of its lines."""
    return f"sglang::scheduler{axes.replace(' ', '_')}"


def dumped(line: str) -> tuple[int, Place | None] | None:
    """The process whose stacks a server writes below this line, and its coordinates."""
    said = _DUMPED.search(line) if "Pyspy dump" in line else None
    return (int(said[2]), _place(said[1]) or None) if said else None


def _place(text: str) -> Place:
    return tuple((name.lstrip("_ "), int(number)) for name, number in _ONE.findall(text))


def world_ranks(places: Mapping[Key, Place]) -> dict[Key, int]:
    """The rank of each process in its job; nothing where they may be of several jobs, or the size of a stage is not known."""
    known = {key: dict(place) for key, place in places.items()}
    counted = {frozenset(place) & _KNOWN for place in known.values()}
    if len(counted) != 1 or counted == {frozenset()}:
        return {}
    cells = Counter((place.get("PP", 0), place.get("TP", 0)) for place in known.values())
    stages, size = (1 + max(cell[axis] for cell in cells) for axis in (0, 1))
    replicas = {place.get("DP", 0) for place in known.values()}
    several = (len(replicas) == 1 and replicas != {0}) or not _is_divided(list(known.values()))
    if max(cells.values()) > 1 or several or (stages > 1 and len(cells) < stages * size):
        return {}
    return {key: place.get("PP", 0) * size + place.get("TP", 0) for key, place in known.items()}


def _is_divided(places: list[dict[str, int]]) -> bool:
    """Whether DPs may be parts of each tensor group in order, as attention divides it: replicas of a server count TPs anew."""
    cells = sorted((place.get("PP", 0), place.get("TP", 0), place.get("DP", 0)) for place in places)
    return all(before[0] != after[0] or before[2] <= after[2] for before, after in pairwise(cells))
