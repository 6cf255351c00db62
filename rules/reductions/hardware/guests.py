"""Hosts whose GPUs all have a guest, and on which of them the guests compute, by the power that the GPUs draw.

A process of somebody else that only holds memory draws nothing. A GPU whose rank waits in a collective draws little, one that
computes for its rank as much as those of its peers: where each GPU of a host draws far more than any of the other hosts, it is
at work for its guest as well, whatever the job does at that moment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.hardware.causes import Hardware, Oddity
from forensics.rules.reductions.hardware.state import Gpu, machines
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import Roster

MOST_GUESTS, FEW_GUESTS = 0.75, 0.25
"""Of the GPUs of a host that has guests; a guest on a few is a desktop or somebody's notebook."""
# Times what any GPU without a guest draws: stages of a pipeline differ by less, and so do boards.
_MORE = 1.25
_LEAST_OTHERS = 4
_POWER = "power_mw"

ComputingGuests = NewType("ComputingGuests", Mapping[str, str])
"""Hosts on whose GPUs guests compute, each with what shows it."""


@reduction
def computing_guests(connection: DuckDBPyConnection, hardware: Hardware, roster: Roster) -> ComputingGuests:
    """Hosts with guests, each of whose GPUs draws more than any GPU without a guest of quiet hosts, of the same model."""
    shares = guest_shares(hardware, roster)
    odd = {host for host, share in shares.items() if share >= MOST_GUESTS}
    if not odd:
        return ComputingGuests({})
    gpus = machines(connection).gpus
    by_host: dict[str, dict[int, Gpu]] = defaultdict(dict)
    for rank, gpu in gpus.items():
        if host := roster.host_of(rank):
            by_host[host][rank] = gpu
    quiet = {host for host, share in shares.items() if share <= FEW_GUESTS}
    others = [gpu for host in quiet for rank, gpu in by_host[host].items() if not has_guest(hardware, rank)]
    stated = ((host, drawn_apart(tuple(by_host[host].values()), others)) for host in sorted(odd))
    return ComputingGuests({host: text for host, text in stated if text})


def guest_shares(hardware: Hardware, roster: Roster) -> Mapping[str, float]:
    """The part of the ranks of each host whose GPU has a guest."""
    together: dict[str, list[bool]] = defaultdict(list)
    for rank, host in sorted(roster.hosts.items()):
        if host is not None:
            together[host].append(has_guest(hardware, rank))
    return {host: sum(each) / len(each) for host, each in together.items() if len(each) > 1}


def has_guest(hardware: Hardware, rank: int) -> bool:
    """Whether the GPU of a rank has a process that is not the job's."""
    return any(sign.kind is Oddity.SHARED for sign in hardware.signs.get(rank, ()))


def drawn_apart(own: Collection[Gpu], others: Collection[Gpu]) -> str | None:
    """What the GPUs of a host draw, where each of them draws far more than any of the others, all of one model."""
    models = {gpu.model for gpu in (*own, *others)}
    drawn = [gpu.readings.get(_POWER, 0) for gpu in own]
    usual = [gpu.readings[_POWER] for gpu in others if _POWER in gpu.readings]
    known = len(models) == 1 and bool(drawn) and len(usual) >= max(_LEAST_OTHERS, len(others) // 2)
    if not known or min(drawn) < _MORE * max(usual):
        return None
    least, most = f"{min(drawn) / 1000:.0f} W or more", f"{max(usual) / 1000:.0f} W at most"
    return f"each of its GPUs draws {least}, those of hosts without guests {most}"
