"""What shows that a job goes on where its recorder alone cannot tell: a second source, of all its ranks.

It changes nothing of what may be accused: a job of which somebody is accused is not healthy, whatever else goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.hardware.state import ports_read_twice
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.shim_logs import logged_motion
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLog

LEAST_PACKETS_PER_S = 10_000.0
"""Keep-alives, monitoring and a hung job's retries stay far below; training over a NIC of 100 Gb/s sends a million."""


def with_progress(
    connection: DuckDBPyConnection, motion: Liveness, logs: Mapping[int, ShimLog], ranks: Roster, factor: float
) -> Liveness:
    """Add to a decision that is open (`TOO_EARLY`, `UNSEEN`) what shows that the job goes on, if anything does."""
    if motion.motion not in (Motion.TOO_EARLY, Motion.UNSEEN):
        return motion
    found = _calls(logs, ranks, factor)
    # Traffic is not signed: it only goes with a recorder whose newest operation is as recent as its rhythm asks.
    if found is None and motion.motion is Motion.TOO_EARLY and motion.silence_ns is not None and motion.pause_ns is not None:
        found = _traffic(connection, ranks)
    return motion if found is None else replace(motion, progress=found)


def _calls(logs: Mapping[int, ShimLog], ranks: Roster, factor: float) -> str | None:
    """Every rank made calls up to the end of its log, and its process beat until the log was taken."""
    whole = bool(logs) and logs.keys() >= ranks.ranks.keys() and not any(log.ended for log in logs.values())
    if not whole or any(facts.heartbeat_gap_ns for facts in ranks.ranks.values()):
        return None
    found = logged_motion(logs.values(), factor)
    return found.reason if found is not None and found.motion is Motion.MOVING else None


def _traffic(connection: DuckDBPyConnection, ranks: Roster) -> str | None:
    """The NICs of every host of a job on several hosts carried traffic between two reads of their counters."""
    hosts = {facts.host for facts in ranks.ranks.values()}
    rates = dict.fromkeys(hosts, 0.0)
    for port in ports_read_twice(connection) if len(hosts) > 1 and None not in hosts else ():
        rates[port.host] = max(rates.get(port.host, 0.0), port.packets / port.seconds)
    least = min((rates[host] for host in hosts), default=0.0)
    if least < LEAST_PACKETS_PER_S:
        return None
    return f"NICs of all {len(hosts)} hosts carried at least {least:,.0f} packets a second between two reads of their counters"
