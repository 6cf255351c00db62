"""What a reduction is: a function of annotated parameters whose result has its own type, or a dataclass made of its fields.

There is no list to edit: every module below this package is looked through (`forensics.rules.supply`). Parameters are results
of other reductions, the case itself (`DuckDBPyConnection`, only read), or a threshold that a rule supplies. Each type has one
reduction; mappings and tuples are named by a `NewType`. What is empty is false: a rule can need a type as its evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Maker = TypeVar("Maker", bound=Callable[..., object])
_MARK = "is_reduction"


def reduction(maker: Maker) -> Maker:
    """Mark a function as the one that makes the type of its result, or a dataclass as made of what its fields ask for."""
    setattr(maker, _MARK, True)
    return maker


def is_reduction(value: object) -> bool:
    """Whether `reduction` marked this."""
    return callable(value) and hasattr(value, _MARK)
