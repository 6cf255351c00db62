"""What values of a dump say once all that they refer to is written out, and how much of it a dump of some size may say.

A pickle may refer to one value many times, and to values that do so themselves: of 2 KB it can make gigabytes. What is read
of a value is bounded by its weight: 32 for a container, 8 for any other value, and the bytes of a text
(native/pickle/values.c counts alike).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from forensics.ingest.interface import Problem

T = TypeVar("T")

MAX_HEIGHT = 64
_CONTAINER, _LEAF = 32, 8
_FLOOR = 1 << 20
_OF_A_VALUE, _OF_A_KEY = 4, 16
_BEYOND = (1 << 32) - 1  # the native reader counts no further
_CONTAINERS = frozenset({list, tuple, dict})


class Allowed(NamedTuple):
    """What one value may weigh, and all distinct values under one key together."""

    value: int
    key: int


def allowed(size: int) -> Allowed:
    """For a dump of `size` bytes. Recorded dumps weigh up to ten times their size over all keys."""
    return Allowed(min(_FLOOR + _OF_A_VALUE * size, _BEYOND - 1), _FLOOR + _OF_A_KEY * size)


def too_heavy(key: str) -> Problem:
    """What is said of values that are left out."""
    return Problem(f"`{key}` refers to itself or to the same values over and over: far more than the file holds; left out")


class Weights:
    """Weighs containers, each once however often it is referred to; they must stay alive as long as this."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, int]] = {}

    def of(self, value: Any) -> int:
        """The weight; beyond every limit for what is in itself or nested deeper than `MAX_HEIGHT`."""
        if type(value) not in _CONTAINERS:
            return _weight_of_leaf(value)
        if id(value) not in self._known:
            self._weigh(value)
        return self._known[id(value)][0]

    def _weigh(self, value: Any) -> None:
        """Innermost first, without calls in calls; a container that is met inside itself weighs too much."""
        known = self._known
        path = [(value, self._inner(value))]
        known[id(value)] = (_BEYOND, MAX_HEIGHT)
        while path:
            container, rest = path[-1]
            while rest and id(rest[-1]) in known:
                rest.pop()
            if rest:
                inner = rest.pop()
                if len(path) > MAX_HEIGHT:  # the outermost is too deep, and of those between nothing is known yet
                    for between, _ in path[1:]:
                        del known[id(between)]
                    return
                known[id(inner)] = (_BEYOND, MAX_HEIGHT)
                path.append((inner, self._inner(inner)))
                continue
            known[id(container)] = self._sum(container)
            path.pop()

    def _inner(self, container: Any) -> list[Any]:
        return [item for item in _items(container) if type(item) in _CONTAINERS and id(item) not in self._known]

    def _sum(self, container: Any) -> tuple[int, int]:
        weight, height = _CONTAINER, 0
        for item in _items(container):
            if type(item) in _CONTAINERS:
                more, inner = self._known[id(item)]
                weight, height = weight + more, max(height, inner + 1)
            else:
                weight += _weight_of_leaf(item)
        return (_BEYOND, MAX_HEIGHT) if height >= MAX_HEIGHT or weight >= _BEYOND else (weight, height)


def _items(container: Any) -> Sequence[Any]:
    return [*container.keys(), *container.values()] if type(container) is dict else container


def _weight_of_leaf(value: Any) -> int:
    if type(value) is not str:
        return _LEAF
    return _LEAF + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))


def read_within(
    values: Sequence[Any], weigh: Callable[[Any], int], read: Callable[[Any], T], nothing: Callable[[], T], limits: Allowed
) -> tuple[list[T], bool]:
    """What is read of each value, `nothing` of those that are too heavy - of all when they are so together; whether any was."""
    weights = [weigh(value) for value in values]
    is_heavy = [weight > limits.value for weight in weights]
    if sum(weight for weight, heavy in zip(weights, is_heavy, strict=True) if not heavy) > limits.key:
        is_heavy = [True] * len(values)
    return [nothing() if heavy else read(value) for value, heavy in zip(values, is_heavy, strict=True)], any(is_heavy)
