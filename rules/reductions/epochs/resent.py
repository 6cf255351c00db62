"""How much of what a NIC sends to another one arrives there: the rest was lost on the way and was sent again.

In a ring all links have the same rate, and what is sent again leaves at the rate of the line: neither whole operators nor their
busiest epochs show a link that loses packets, but the captures of its two ends do. Operators are compared that begin and end
alike at both, by clocks whose distance they show themselves; what only one end has was cut differently, or not captured.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.epochs.captures import PEERS_TABLE
from forensics.rules.reductions.epochs.cells import Ints
from forensics.rules.reductions.epochs.operators import MovedByNic, NicOperators, PeerOperators
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers

# Epochs by which an operator may begin or end earlier at one end: a slice is in flight, and epochs of two hosts begin apart.
_NEAR = 4
# Of the operators that both ends have at a time: clocks so far apart that fewer are alike lay one beside another one.
_LEAST_ALIKE = 0.5
# Operators and bytes that show a share.
_FEWEST, _LEAST_BYTES = 3, 16 << 20
# No job goes on that loses more: then the two ends count other bytes, and that may be so on links that seem to lose less.
_LEAST_SHARE = 0.7
# Ends of queue pairs by rank and peer: where one rank knows more of them than the other, their bytes are not the same ones.
_ENDS = f"""
SELECT own, peer, count(*) FROM {PEERS_TABLE}
WHERE own IS NOT NULL AND source_id IN (SELECT source_id FROM captures WHERE nic IS NOT NULL) GROUP BY own, peer
"""

ArrivedShares = NewType("ArrivedShares", Mapping[tuple[int, int], float])
"""By the ranks that stand for sender and receiver, the share of the bytes sent that arrived, where it is known."""


@reduction
def arrived_shares(connection: DuckDBPyConnection, moved: NicOperators, users: CapturedUsers) -> ArrivedShares:
    """Compare what was sent with what was received, where all of both NICs was captured by realtime clocks."""
    if not moved:
        return ArrivedShares({})
    known: Counter[tuple[int, int]] = Counter()
    for own, peer, count in rows_of(connection, "captures", _ENDS):
        known[users.first(own), users.first(peer)] += count
    found: dict[tuple[int, int, str], list[tuple[MovedByNic, PeerOperators]]] = {}
    for nic in moved:
        for each in nic.nics if nic.capture.whole and nic.capture.clock == "realtime" else ():
            found.setdefault((each.own, each.peer, each.direction), []).append((nic, each))
    shares = {
        (own, peer): _share(*sent[0], *got[0])
        for (own, peer, direction), sent in found.items()
        if direction == "send" and len(sent) == len(got := found.get((peer, own, "recv"), [])) == 1
        if known[own, peer] == known[peer, own]
    }
    stated = {ends: share for ends, share in shares.items() if share is not None}
    return ArrivedShares(stated if min(stated.values(), default=1.0) >= _LEAST_SHARE else {})


def _share(sender: MovedByNic, sent: PeerOperators, receiver: MovedByNic, got: PeerOperators) -> float | None:
    near = _NEAR * max(sender.capture.epoch_ns, receiver.capture.epoch_ns)
    begin, end = (each * sender.capture.epoch_ns for each in (sent.begin, sent.end))
    began, ended = (each * receiver.capture.epoch_ns for each in (got.begin, got.end))
    place = _same(begin, end, began, ended)
    ahead = int(np.median((began[place] - begin)[place >= 0])) if (place >= 0).any() else 0
    alike = (place >= 0) & (np.abs(began[place] - begin - ahead) <= near) & (np.abs(ended[place] - end - ahead) <= near)
    if alike.sum() < _LEAST_ALIKE * (place >= 0).sum():
        return None
    out, arrived = int(sent.bytes[alike].sum()), int(got.bytes[place[alike]].sum())
    return arrived / out if alike.sum() >= _FEWEST and out >= _LEAST_BYTES else None


def _same(begin: Ints, end: Ints, began: Ints, ended: Ints) -> Ints:
    """For each operator that was sent the place of the one that was received in its middle, -1 where there is none."""
    if not len(began):
        return np.full(len(begin), -1)
    middle = (begin + end) // 2
    place = np.searchsorted(began, middle, side="right") - 1
    return np.where((place >= 0) & (ended[place] >= middle), place, -1)
