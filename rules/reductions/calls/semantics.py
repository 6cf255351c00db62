"""What kinds of collectives promise, by their names in recorders and stacks: who may leave before others have entered."""

from __future__ import annotations

import re
from collections.abc import Iterable

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
"""Operations with a root: members that name different roots enter all the same, and some may leave before others come."""

FROM_ONE = frozenset({"broadcast", "scatter"})
"""Operations by which one member hands on what it has."""

SEPARATE = frozenset({"all_to_all", "gather", "scatter"})
"""Operations made of messages, each of which completes by itself: a member is through when its own are."""

_STEM = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|gather|scatter|reduce|send|recv")
_SPELLED = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_toall": "all_to_all",
    "allto_all": "all_to_all",
}
# Each member needs something of every other one. An all-to-all that moves nothing for a pair is the exception; taken for a
# meeting it silences, and accuses nobody.
_MEETINGS = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})


def stem_of(name: str) -> str:
    """Kind of operation that a name speaks of (`_all_gather_base`, `ALLREDUCE`, `batch_isend_irecv`), else empty."""
    match = _STEM.search(name.lower())
    return _SPELLED.get(match[0], match[0]) if match else ""


def is_meeting(kinds: Iterable[str]) -> bool:
    """Whether nobody comes out of an operation of these kinds before all members have entered it; False without a kind."""
    known = {stem_of(kind) for kind in kinds}
    return bool(known) and known <= _MEETINGS
