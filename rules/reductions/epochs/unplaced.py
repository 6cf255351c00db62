"""NICs of which captures tell no rank, compared with each other all the same: who runs the hosts may know no more of them.

Pulse is made for those who own machines and not the job (section 2.3). Addresses of queue pairs show which NICs exchange data.
Each NIC stands here for itself, by a number of its own; numbers of ranks are not known and none is said.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.epochs.captures import NicCaptures, name_peers, nic_captures
from forensics.rules.reductions.epochs.gaps import hides
from forensics.rules.reductions.epochs.halted_links import HaltedLink, halted_ends, halted_links
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.links import link_rates
from forensics.rules.reductions.epochs.mirrors import MirroredPeers
from forensics.rules.reductions.epochs.operators import nic_operators
from forensics.rules.reductions.epochs.resent import arrived_shares
from forensics.rules.reductions.epochs.slow_links import SlowEnd, judged_links, slow_ends
from forensics.rules.reductions.epochs.standstill import NicSilence, nic_silence
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import CapturedUsers, NicUsers

# A NIC with several own addresses may be two of hosts that have one name.
_NICS = """
SELECT coalesce(c.host, s.host) AS host, c.nic, min(s.path) AS path
FROM captures c JOIN sources s USING (source_id) LEFT JOIN queue_pairs q ON q.source_id = c.source_id AND q.nic = c.nic
WHERE coalesce(c.host, s.host) IS NOT NULL AND c.nic IS NOT NULL
GROUP BY ALL HAVING count(DISTINCT q.gid) <= 1 ORDER BY path, host, nic
"""


@dataclass(frozen=True, slots=True)
class UnplacedNics:
    """Names of the captured NICs, by the numbers that stand for them, and the links between them where enough are alike.

    `halted` are NICs, or the two ends of a link, with links that stopped before those beside them where nothing moves any more.
    Empty where some capture tells its rank: then the rest is judged by ranks, or not at all.
    """

    names: tuple[str, ...] = ()
    judged: tuple[JudgedLink, ...] = ()
    epoch_ns: int = 0
    silence: NicSilence = field(default_factory=NicSilence)
    halted: tuple[tuple[tuple[int, ...], tuple[HaltedLink, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names)

    @property
    def slow(self) -> tuple[SlowEnd, ...]:
        """NICs that account for the slow links; only for lost data where epochs would not show half of the rate."""
        fastest = max((link.usual for link in self.judged), default=0.0)
        is_hidden = fastest > 0 and hides(self.epoch_ns, fastest, 2.0)
        return tuple(end for end in slow_ends(self.judged) if not is_hidden or all(link.is_lossy for link in end.links))


@reduction
def unplaced_nics(connection: DuckDBPyConnection, placed: NicCaptures) -> UnplacedNics:
    """Compare the links between captured NICs by the addresses that both ends tell; traffic alone is not asked."""
    if placed:
        return UnplacedNics()
    found = [(host, nic) for host, nic, _ in rows_of(connection, "captures", _NICS)]
    by_nic = {nic: (number,) for number, nic in enumerate(found)}
    users = CapturedUsers(NicUsers(by_nic, {}, by_nic))
    captures = nic_captures(connection, users)
    if not any(capture.is_dated for capture in captures):
        return UnplacedNics()
    name_peers(connection, users)
    moved = nic_operators(connection, captures, users, MirroredPeers())
    rates = link_rates(moved, arrived_shares(connection, moved, users))
    names, silence = tuple(f"{nic} of {host}" for host, nic in found), nic_silence(moved)
    halted = tuple(halted_ends(halted_links(moved, silence), users))
    return UnplacedNics(names, judged_links(rates, users), rates.epoch_ns, silence, halted)
