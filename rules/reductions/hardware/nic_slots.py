"""The PCIe links of NICs: one with fewer lanes, or of a lower generation, than its peers moves less than its line.

Peers are NICs of the same line rate. A link that is narrower than theirs and still carries the line costs nothing, and one that
is like theirs is how the machines were built.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.hardware.causes import Oddity, Sign

# Bytes per second of a lane, by generation: what is left of the symbols after their coding.
_LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
# A text may not say of which host it is: then its path stands for the host.
_LINKS = """
WITH nics AS (SELECT source_id, device FROM devices WHERE kind = 'nic'),
readings AS (
    SELECT coalesce(s.host, s.path) AS place, s.host, c.device, c.counter, arg_max(c.value, c.sample) AS value,
        arg_max(s.path, c.sample) AS path
    FROM counters c JOIN sources s USING (source_id) SEMI JOIN nics USING (source_id, device)
    WHERE c.counter IN ('pcie_gen', 'pcie_width', 'pcie_gen_max', 'pcie_width_max') GROUP BY ALL
), rates AS (
    SELECT coalesce(d.host, s.host, s.path) AS place, parent, max(rate_bytes_per_s) AS rate
    FROM devices d JOIN sources s USING (source_id) WHERE d.kind = 'port' GROUP BY ALL
)
SELECT r.host, r.device, max(r.path), max(rates.rate),
    max(value) FILTER (counter = 'pcie_gen'), max(value) FILTER (counter = 'pcie_width'),
    max(value) FILTER (counter = 'pcie_gen_max'), max(value) FILTER (counter = 'pcie_width_max')
FROM readings r LEFT JOIN rates ON rates.place = r.place AND rates.parent = r.device
GROUP BY r.place, r.host, r.device ORDER BY r.place, r.device
"""
_USERS = """
SELECT DISTINCT coalesce(q.host, s.host, r.host), q.nic, coalesce(q.rank, s.rank) AS of_rank
FROM queue_pairs q JOIN sources s USING (source_id)
LEFT JOIN (SELECT rank, max(host) AS host FROM ranks GROUP BY rank) r ON r.rank = coalesce(q.rank, s.rank)
WHERE q.nic IS NOT NULL AND coalesce(q.rank, s.rank) IS NOT NULL ORDER BY ALL
"""
# What drivers say when they start, the last time: it includes what lies above the slot.
_SAID = """
SELECT host, device, try_cast(regexp_extract(text, '([0-9.]+) Gb/s available', 1) AS DOUBLE) AS gbits, source,
    coalesce(host, path) AS place
FROM device_event WHERE kind = 'pcie_link' AND gbits > 0
QUALIFY row_number() OVER (PARTITION BY place, device ORDER BY time_ns DESC NULLS LAST, locator DESC) = 1
ORDER BY gbits, place, device
"""
_LEAST_PEERS, _LESS = 3, 0.9
_Usual = Mapping[tuple[float | None, float], tuple[int, float]]
"""By line and rate of a link: how many peers it has, and the median rate of these."""


@dataclass(frozen=True, slots=True)
class NicSlot:
    """The PCIe link of a NIC: generation and lanes now, and the most that the NIC has; `line` is what its port can move
    (bytes per second, None not known)."""

    host: str | None
    nic: str
    source: str
    line: float | None
    generation: int
    lanes: int
    most_generation: int
    most_lanes: int

    @property
    def rate(self) -> float:
        """Bytes per second that the link carries."""
        return _LANE[self.generation] * self.lanes

    @property
    def most(self) -> float:
        """Bytes per second that it would carry at its best."""
        return _LANE[self.most_generation] * self.most_lanes


def nic_slots(connection: DuckDBPyConnection) -> tuple[NicSlot, ...]:
    """PCIe links of all NICs of which generation and lanes were read."""
    found = rows_of(connection, "counters", _LINKS)
    return tuple(
        NicSlot(host, nic, f"{path}#{nic}", rate, now, lanes, most or now, most_lanes or lanes)
        for host, nic, path, rate, now, lanes, most, most_lanes in found
        if now in _LANE and lanes and (most or now) in _LANE
    )


def slot_signs(connection: DuckDBPyConnection) -> dict[int, list[Sign]]:
    """By rank, its NICs whose PCIe link carries less than their line and than the links of their peers."""
    slots = nic_slots(connection)
    usual = _usual_rates(slots)
    signs = {(slot.host, slot.nic): sign for slot in slots if (sign := _narrow(slot, usual))}
    found: dict[int, list[Sign]] = defaultdict(list)
    for host, nic, rank in rows_of(connection, "queue_pairs", _USERS) if signs else ():
        if sign := signs.get((host, nic)):
            found[rank].append(sign)
    return found


def odd_slot(connection: DuckDBPyConnection) -> tuple[str, str | None, str] | None:
    """The one NIC of four or more whose PCIe link is narrower than it has to be, by sysfs, else by what drivers said when they
    started: its name, its host and what tells it."""
    slots = nic_slots(connection)
    usual = _usual_rates(slots)
    narrow = [(slot, sign) for slot in slots if (sign := _narrow(slot, usual))]
    if len(narrow) == 1 and len(slots) > _LEAST_PEERS:
        ((slot, sign),) = narrow
        return slot.nic, slot.host, f"{sign.statement} ({sign.source})"
    said = rows_of(connection, "device_events", _SAID, kinds=("pcie_link",))
    # A host alone may have a NIC of another kind.
    if len(said) <= _LEAST_PEERS or len({row[-1] for row in said}) == 1 or said[0][2] > _LESS * said[1][2]:
        return None
    (host, device, gbits, source, _), least = said[0], said[1][2]
    return (
        f"NIC {device}",
        host,
        f"PCIe to it carries {gbits:.0f} Gb/s, to {len(said) - 1} others {least:.0f} or more ({source})",
    )


def _usual_rates(slots: Sequence[NicSlot]) -> _Usual:
    """Of links with peers: those of thousands of NICs have a few lines and rates, and each pair of these is compared once."""
    by_line: dict[float | None, list[float]] = defaultdict(list)
    for slot in slots:
        by_line[slot.line].append(slot.rate)
    found: dict[tuple[float | None, float], tuple[int, float]] = {}
    for line, rates in by_line.items():
        for rate in set(rates) if len(rates) > 1 else ():
            others = sorted(rates)
            others.remove(rate)
            found[line, rate] = len(others), median(others)
    return found


def _narrow(slot: NicSlot, usual_rates: _Usual) -> Sign | None:
    peers, usual = usual_rates.get((slot.line, slot.rate), (0, slot.most))
    needed = min(usual, slot.line or usual)
    if slot.rate >= min(needed, slot.most):
        return None
    nic = f"{slot.nic} of {slot.host}" if slot.host else slot.nic
    own = f"the PCIe link of {nic} has {slot.lanes} lanes of generation {slot.generation}"
    best = f"at its best {slot.most_lanes} of generation {slot.most_generation}"
    said = (
        f"{own} ({best}) and carries {slot.rate / 1e9:.1f} GB/s",
        f"its line {slot.line / 1e9:.1f} GB/s" if slot.line else "",
        f"the links of {peers} other NICs of its line rate carry {usual / 1e9:.1f} GB/s (median)" if peers else "",
    )
    return Sign(Oddity.NARROW_NIC, "; ".join(filter(None, said)), slot.source, needed / slot.rate)
