"""Clocks of members brought together by the calls themselves, where nothing says that they are of one host.

Hosts that wait in their calls (gloo) begin a call only when all have come to the one before it. Calls that follow each other
quickly therefore bound how far two clocks are apart, and who comes later to others by more than that is late whatever the
clocks show.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

# Calls between two of which the host has waited: one is under way while the next one is begun (buckets of gradients).
_WAITED = 2


def on_one_clock(came_ns: Ints) -> tuple[Ints, int] | None:
    """Arrivals (a row a call, a column a member) by the clock of the first member, and how many ns they may be wrong by.

    None where the calls are too few, or contradict each other: a clock was set, or hosts do not wait in these calls.
    """
    if len(came_ns) <= _WAITED:
        return None
    first = came_ns[:, :1]
    least = (came_ns[:-_WAITED] - first[_WAITED:]).max(axis=0)
    most = (came_ns[_WAITED:] - first[:-_WAITED]).min(axis=0)
    if (least > most).any():
        return None
    return came_ns - (least + (most - least) // 2), int((most - least).max())
