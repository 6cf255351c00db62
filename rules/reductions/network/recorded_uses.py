"""What part of the lines of its NICs each host moves in collectives, by what recorders alone tell.

A ring leaves a host once, over all channels together: what a group of ranks moves between two hosts is known by the size of its
calls (Pulse, appendix B), and how long that takes by the member that comes last. The groups of the ranks of a host that make
calls of one kind and size make them at one time, as data-parallel replicas do, and have all NICs of the host together. Where
work requests are gone, as after a pause that is longer than what the logs of the collector hold, this is what is left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.epochs.volumes import volumes
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.network.call_paces import CallPace, CallPaces
from forensics.rules.reductions.network.line_uses import LineUse, by_hosts
from forensics.rules.reductions.ranks.roster import Roster

# Bytes of a call: smaller ones are latency, and go in tree order.
_LEAST_BYTES = 64 << 20
# Of the larger one: what two sources tell of a host is as good as the same.
_ALIKE = 0.8

RecordedUses = NewType("RecordedUses", tuple[LineUse, ...])
"""NICs of hosts, each with an even part of what its host moves, and with all ranks of it."""

_LINES = """
SELECT host, parent, max(rate_bytes_per_s) FROM devices WHERE kind = 'port' AND host IS NOT NULL AND parent IS NOT NULL
GROUP BY host, parent HAVING max(rate_bytes_per_s) > 0 ORDER BY ALL
"""


def filled(uses: Sequence[LineUse], recorded: RecordedUses) -> tuple[LineUse, ...]:
    """Uses with those of hosts without any by what recorders tell, where both tell about the same of hosts that have both.

    What recorders tell takes all NICs of a host for used: the hosts that show their NICs show whether that is so.
    """
    known = {use.host for use in uses}
    own = by_hosts([use for use in uses if use.host in {each.host for each in recorded}])
    said = by_hosts([each for each in recorded if each.host in known])
    same = bool(own) and len(own) == len(said)
    alike = same and all(_ALIKE * max(pair) <= min(pair) for pair in zip(own, said, strict=True))
    return (*uses, *(each for each in recorded if alike and each.host not in known))


@reduction
def recorded_uses(connection: DuckDBPyConnection, paces: CallPaces, roster: Roster) -> RecordedUses:
    """Take of each host the calls that move most."""
    nics: dict[str, dict[str, float]] = defaultdict(dict)
    for host, nic, line in rows_of(connection, "devices", _LINES):
        nics[host][nic] = float(line)
    found: list[LineUse] = []
    for host, paced in sorted(_by_host(paces, roster).items()):
        found += _uses(host, nics.get(host, {}), max(paced.values(), key=_volume), roster)
    return RecordedUses(tuple(found))


def _by_host(paces: CallPaces, roster: Roster) -> Mapping[str, Mapping[tuple[str, int], list[CallPace]]]:
    """Calls between hosts, by host, kind and size."""
    found: dict[str, dict[tuple[str, int], list[CallPace]]] = defaultdict(lambda: defaultdict(list))
    for pace in paces.compared:
        if pace.hosts > 1 and pace.bytes >= _LEAST_BYTES and _moved(pace):
            for host in {host for rank in pace.ranks if (host := roster.host_of(rank))}:
                found[host][pace.kind, pace.bytes].append(pace)
    return found


def _moved(pace: CallPace) -> float:
    """Bytes of one call over a link in ring order."""
    return next((volume for order, volume in volumes(pace.kind, pace.bytes, len(pace.ranks)) if order == "ring"), 0.0)


def _volume(paces: Sequence[CallPace]) -> float:
    return sum(_moved(pace) * pace.calls for pace in paces)


def _uses(host: str, lines: Mapping[str, float], paces: Sequence[CallPace], roster: Roster) -> list[LineUse]:
    rate = sum(_moved(pace) / pace.took_ns for pace in paces) * 1e9 / max(len(lines), 1)
    busy = max(min(pace.took_ns * pace.calls / pace.span_ns, 1.0) if pace.span_ns else 1.0 for pace in paces)
    ranks = tuple(rank for rank in sorted(roster.ranks) if roster.host_of(rank) == host)
    reached = {roster.host_of(rank) for pace in paces for rank in pace.ranks} - {host, None}
    peers = tuple(sorted(str(each) for each in reached))
    return [LineUse(host, nic, ranks, rate, busy, line, paces[0].source, peers, busy) for nic, line in lines.items()]
