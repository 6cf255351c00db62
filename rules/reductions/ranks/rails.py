"""Whose NIC a message between hosts may leave over: with PXN that of a rank beside its sender, on the rail that it comes to.

NCCL takes ranks of the same communicator on the sender's host for it (`NCCL_P2P_PXN_LEVEL`, since 2.12). Recorders do not tell
whether it does; rails are taken to have the order of the ranks of a host.
"""

from __future__ import annotations

from collections.abc import Iterable

from forensics.rules.reductions.ranks.roster import Roster


def may_send_on(sender: int, receiver: int, members: Iterable[int], roster: Roster) -> tuple[int, ...]:
    """Ranks over whose NIC a message may leave, but for its sender: of its communicator; none on one rail, or in one host."""
    here, there = roster.host_of(sender), roster.host_of(receiver)
    if here is None or there is None or here == there:
        return ()
    rail, usual = _rail(receiver, there, roster), _rail(sender, here, roster)
    beside = [rank for rank in members if rank != sender and roster.host_of(rank) == here]
    on_rail = [rank for rank in beside if _rail(rank, here, roster) == rail]
    return () if rail == usual else tuple(sorted(on_rail or beside))


def _rail(rank: int, host: str, roster: Roster) -> int:
    return sum(other < rank and facts.host == host for other, facts in roster.ranks.items())
