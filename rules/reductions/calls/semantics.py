"""What kinds of collectives promise: who may come out of one before others have entered it."""

from __future__ import annotations

import re
from collections.abc import Iterable

ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
"""Operations with a root: members that name different roots enter all the same, and some may leave before others come."""

# Each member needs something of every other one. An all-to-all that moves nothing for a pair is the exception; taken for a
# meeting it silences, and accuses nobody.
_MEETING = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|barrier")


def is_meeting(kinds: Iterable[str]) -> bool:
    """Whether nobody comes out of an operation of these kinds before all members have entered it; False without a kind."""
    known = list(kinds)
    return bool(known) and all(_MEETING.search(kind.lower()) for kind in known)
