"""Ranks whose NIC reads as down: all of its ports do, although queue pairs of theirs are on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple, NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Belief, Evidence, Finding, Members
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.nic_users import NicUsers


class DownNic(NamedTuple):
    """A NIC of which no port is up."""

    nic: str
    evidence: Evidence


PortsDown = NewType("PortsDown", Mapping[int, DownNic])
"""By each rank that uses it."""

_DOWN = """
SELECT d.host, d.parent, min(d.state), min(s.path) FROM devices d JOIN sources s USING (source_id)
WHERE d.kind = 'port' AND d.host IS NOT NULL AND d.parent IS NOT NULL
GROUP BY d.host, d.parent HAVING count(d.state) = count(*) AND bool_and(upper(d.state) LIKE '%DOWN%') ORDER BY ALL
"""


@reduction
def ports_down(connection: DuckDBPyConnection, users: NicUsers) -> PortsDown:
    """Read the states; a NIC that nobody's queue pairs are on may well be without a cable."""
    found = {}
    for host, nic, state, path in rows_of(connection, "devices", _DOWN):
        for rank in users.by_nic.get((host, nic), ()):
            found[rank] = DownNic(nic, Evidence(f"the port of {nic} on {host}, which rank {rank} uses, reads {state}", path))
    return PortsDown(found)


def recorded_by_port(finding: Finding, down: PortsDown) -> Finding:
    """A finding about the NIC of its ranks whose port reads as down: a record of the fault, however short waits are so far."""
    if finding.members is not Members.EACH or not finding.ranks or not all(rank in down for rank in finding.ranks):
        return finding
    port = down[finding.ranks[0]].evidence
    return replace(finding, belief=Belief.DIRECT_RECORD, evidence=(*finding.evidence, port))
