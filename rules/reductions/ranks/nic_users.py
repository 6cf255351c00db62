"""Which ranks have a NIC together: what is slow or broken about it is so for all of them.

Ranks have one NIC together where all of their queue pairs are on it, with the same address: host names alone may be those of
containers, or the same everywhere. Of a rank without a log those of its peers tell the address that they lead to. Where rings
leave a host by other ranks than they enter it, ranks use each other's NICs: then none is of the same ranks as all of theirs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.interface import reduction

_USES = """
SELECT DISTINCT coalesce(q.host, s.host) AS host, q.nic, q.gid, coalesce(q.rank, s.rank) AS of_rank
FROM queue_pairs q JOIN sources s USING (source_id)
WHERE coalesce(q.host, s.host) IS NOT NULL AND q.nic IS NOT NULL AND coalesce(q.rank, s.rank) IS NOT NULL ORDER BY ALL
"""
# Where queue pairs lead to, by the rank at the other end; with PXN another process sends, and the receiver is on its own NIC.
_PEERS = """
SELECT DISTINCT m.rank, q.remote_nic FROM queue_pairs q
JOIN members m ON m.communicator = q.communicator AND m.position = q.peer
WHERE q.remote_nic IS NOT NULL AND m.rank IS NOT NULL AND q.direction = 'send'
ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class NicUsers:
    """Ranks by the host and name of their NIC, and for each rank that shares its NICs all who do, itself included.

    `crossed` are all users of each NIC of which some have other NICs beside it, or several all of the same ones.
    """

    by_nic: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    shared: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    crossed: Mapping[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)

    def of(self, ranks: Iterable[int]) -> tuple[int, ...]:
        """Ranks with those that have the same NIC."""
        return tuple(sorted({other for rank in ranks for other in self.shared.get(rank, (rank,))}))

    def are_apart(self, ranks: Collection[int]) -> bool:
        """Whether some ranks have several NICs; one of which nothing is known may have that of another one, where any do."""
        known = {rank for users in self.by_nic.values() for rank in users}.union(self.shared)
        return len({self.first(rank) for rank in ranks if rank in known or not self.shared}) > 1

    def together(self, rank: int, among: Collection[int]) -> tuple[int, ...]:
        """Of some ranks those that have the NIC of one of them."""
        return tuple(other for other in self.of([rank]) if other in among)

    def first(self, rank: int) -> int:
        """The first rank of those that have the NIC of a rank, the lowest where none of them has another: it stands for it."""
        return self.shared.get(rank, (rank,))[0]


CapturedUsers = NewType("CapturedUsers", NicUsers)
"""The same for captures, of which each is of one NIC: those that are used crosswise are each shown by a rank of their own."""


@reduction
def nic_users(connection: DuckDBPyConnection) -> NicUsers:
    """Users of each NIC, by the queue pairs of ranks; a NIC whose users have others beside it, each of its own, has none."""
    uses: dict[int, set[tuple[str, str, str | None]]] = defaultdict(set)
    for host, nic, address, rank in rows_of(connection, "queue_pairs", _USES):
        uses[rank].add((host, nic, address))
    owners = {address: (host, nic, address) for found in uses.values() for host, nic, address in found if address}
    peers: dict[int, set[str]] = defaultdict(set)
    for rank, address in rows_of(connection, "queue_pairs", _PEERS):
        peers[rank].add(address)
    uses |= {
        rank: {owners[each] for each in seen} for rank, seen in peers.items() if rank not in uses and seen <= owners.keys()
    }
    for rank, found in uses.items():  # a map of queue pairs may leave out the address that another source tells
        uses[rank] = {use for use in found if use[2] or not any(other[:2] == use[:2] and other[2] for other in found)}
    alike: dict[frozenset[tuple[str, str, str | None]], list[int]] = defaultdict(list)
    for rank in sorted(uses):
        alike[frozenset(uses[rank])].append(rank)
    groups: dict[tuple[str, str], set[tuple[int, ...]]] = defaultdict(set)
    for nics, ranks in alike.items():
        for host, nic, _ in nics:
            groups[host, nic].add(tuple(ranks))
    return NicUsers(
        {nic: next(iter(found)) for nic, found in groups.items() if len(found) == 1},
        {rank: tuple(ranks) for ranks in alike.values() if len(ranks) > 1 for rank in ranks},
        _crossed(uses, groups),
    )


def _crossed(
    uses: Mapping[int, set[tuple[str, str, str | None]]], groups: Mapping[tuple[str, str], set[tuple[int, ...]]]
) -> dict[tuple[str, str], tuple[int, ...]]:
    """Users of NICs of one address of which some, or all together, have other NICs as well."""
    addresses: dict[tuple[str, str], set[str | None]] = defaultdict(set)
    for host, nic, address in {use for found in uses.values() for use in found}:
        addresses[host, nic].add(address)
    several = {ranks for ranks, count in Counter(ranks for found in groups.values() for ranks in found).items() if count > 1}
    return {
        nic: tuple(sorted({rank for ranks in found for rank in ranks}))
        for nic, found in groups.items()
        if len(addresses[nic]) == 1 and (len(found) > 1 or any(len(ranks) > 1 for ranks in found & several))
    }


@reduction
def captured_users(users: NicUsers) -> CapturedUsers:
    """Users of each NIC, the rank that stands for it first: one that stands for no other NIC."""
    by_nic = {nic: ranks for nic, ranks in users.by_nic.items() if nic not in users.crossed}
    shared, taken = dict(users.shared), {rank for ranks in by_nic.values() for rank in ranks}
    for nic, ranks in sorted(users.crossed.items(), key=lambda each: (len(each[1]), each)):
        if free := [rank for rank in ranks if rank not in taken]:
            taken.add(free[0])
            by_nic[nic] = shared[free[0]] = (free[0], *(rank for rank in ranks if rank != free[0]))
    return CapturedUsers(NicUsers(by_nic, shared, users.crossed))
