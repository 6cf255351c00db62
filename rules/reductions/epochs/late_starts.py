"""Who begins the operators of a ring last, and makes the others wait for it (Pulse 6.2: a delayed start).

A link moves nothing before both its ends are there: of a rank that is late both links begin late, all others begin together
and stop when their buffers are full. So the rank before it sends later than it receives, the one behind it receives later than
it sends, and all others, the late one too, do both at once. Both directions of a NIC have one clock, so that none has to be
compared with another host's. Stages of a pipeline begin one after the other, and no two links of it together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NewType

import numpy as np
import numpy.typing as npt

from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.epochs.paused_rings import PausedRings, series
from forensics.rules.reductions.interface import reduction

Floats = npt.NDArray[np.float64]

# A begin that is later by less is the scheduler's; and a rank that is late a few times only is no straggler.
_LEAST_NS, _FEWEST = 1_000_000, 4
# Of what the late one costs: what others may begin apart, and by how much its two neighbours may differ. One delay is at most
# half of all.
_ALIKE, _MOST_OF_ONE = 0.25, 0.5


@dataclass(frozen=True, slots=True)
class LateStart:
    """A rank whose `ring` begins `times` operators without it, `typical_ns` earlier (median): `share` of the time in all.

    `before` and `after` are its neighbours, which tell it; `source` is the capture of the one before.
    """

    rank: int
    ring: tuple[int, ...]
    before: int
    after: int
    times: int
    typical_ns: float
    share: float
    source: str


LateStarts = NewType("LateStarts", tuple[LateStart, ...])
"""One of each ring in which somebody is late, by rank."""


@reduction
def late_starts(moved: NicOperators, rings: PausedRings) -> LateStarts:
    """Rings of NICs all of which were captured."""
    nics = {nic.capture.rank: nic for nic in moved}
    found = (_late(ring, nics) for ring in rings.rings if nics.keys() >= {*ring})
    return LateStarts(tuple(sorted((late for late in found if late is not None), key=lambda late: late.rank)))


def _late(ring: Sequence[int], nics: Mapping[int, MovedByNic]) -> LateStart | None:
    """The one rank of a ring whose two neighbours alone tell of a delay, the same one."""
    apart = [_apart(nics[rank], ring[at - 1], ring[(at + 1) % len(ring)]) for at, rank in enumerate(ring)]
    sends, receives = ([float(each[way].sum()) for each in apart] for way in (0, 1))
    at = int(np.argmax([min(sends[at - 1], receives[(at + 1) % len(ring)]) for at in range(len(ring))]))
    before, after = (at - 1) % len(ring), (at + 1) % len(ring)
    lost = sends.pop(before), receives.pop(after)
    others = max([*sends, *receives], default=0.0)
    delays = apart[before][0]
    recurs = len(delays) >= _FEWEST and float(delays.max()) <= _MOST_OF_ONE * lost[0]
    if not recurs or min(lost) < (1 - _ALIKE) * max(lost) or others > _ALIKE * min(lost):
        return None
    nic = nics[ring[before]]
    source = f"{nic.capture.path}#peer={ring[at]}"
    typical, share = float(np.median(delays)), min(lost) / nic.span_ns
    return LateStart(ring[at], tuple(ring), ring[before], ring[after], len(delays), typical, share, source)


def _apart(nic: MovedByNic, before: int, after: int) -> tuple[Floats, Floats]:
    """How much later (ns) a NIC begins to send than to receive, each time that it does, and the other way round."""
    sent, got = series(nic, after, "send"), series(nic, before, "recv")
    if sent is None or got is None:
        return np.empty(0), np.empty(0)
    epoch_ns = nic.capture.epoch_ns
    return _delays(sent, got, epoch_ns), _delays(got, sent, epoch_ns)


def _delays(late: PeerOperators, early: PeerOperators, epoch_ns: int) -> Floats:
    """ns from the first begin of one link after another one had ended to the next begin of that one, where they are many."""
    at = np.searchsorted(early.begin, late.end[:-1], side="right")
    is_known = at < len(early.begin)
    first = early.begin[np.minimum(at, len(early.begin) - 1)]
    found: Floats = np.where(is_known, late.begin[1:] - first, 0).astype(np.float64) * epoch_ns
    return found[found >= _LEAST_NS]
