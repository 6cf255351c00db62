"""Counters of the NICs of a live host, read again and again into one file (docs/formats/ib-counters.md, series).

The first line has the devices, as the collector describes them; each line after it the time and the counters that changed. Only
counters of traffic and of trouble are read: some of the others ask the firmware each time.
"""

from __future__ import annotations

import json
import select
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from forensics.collect.collectors.ib_counters import read_devices
from forensics.collect.interrupts import Interrupts
from forensics.collect.record import now_ns

SCHEMA = "forensics.ib-series/1"
COUNTED = frozenset(
    {
        "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "port_xmit_wait", "port_xmit_discards",
        "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "np_cnp_sent", "rp_cnp_handled",
        "np_ecn_marked_roce_packets", "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err",
        "roce_adp_retrans", "out_of_buffer",
    }
)  # fmt: skip
"""Traffic, waits, congestion, retransmissions and errors of the link."""
Values = dict[str, int]


@dataclass(frozen=True, slots=True)
class Sampling:
    """How often to read (s), and for how long (s, None until it is ended)."""

    interval_s: float
    seconds: float | None = None

    @property
    def reads(self) -> int | None:
        """How many; None without an end."""
        return None if self.seconds is None else 1 + max(1, round(self.seconds / self.interval_s))


def record(target: IO[str], root: Path, node: str, sampling: Sampling, interrupts: Interrupts) -> int:
    """Write the series until its end or a signal; returns the reads. Lines are written whole: a kill cuts one at most."""
    devices = read_devices(root, [])
    for facts in (port for device in devices.values() for port in device["ports"].values()):
        del facts["counters"], facts["hw_counters"]
    _write(target, {"schema": SCHEMA, "node": node, "time_ns": now_ns(), "interval_s": sampling.interval_s, "devices": devices})
    paths = {name: list(_counted(root, name)) for name in _ports(devices)}
    last: dict[str, Values] = {name: {} for name in paths}
    reads = 0
    while not interrupts.requested:
        changed = {name: found for name, each in paths.items() if (found := _changed(each, last[name]))}
        _write(target, {"time_ns": now_ns(), "ports": changed})
        reads += 1
        if reads == sampling.reads or select.select([interrupts.wake], [], [], sampling.interval_s)[0]:
            break
    return reads


def _write(target: IO[str], line: Mapping[str, Any]) -> None:
    target.write(json.dumps(line, separators=(",", ":")) + "\n")
    target.flush()


def _ports(devices: Mapping[str, Any]) -> Iterator[str]:
    for name, facts in devices.items():
        yield from (f"{name}/{port}" for port in facts["ports"])


def _counted(root: Path, port: str) -> Iterator[Path]:
    """Files of the counters that are read; a name that both folders have is taken from the first."""
    device, _, number = port.partition("/")
    seen = set[str]()
    for folder in ("counters", "hw_counters"):
        for name in sorted(COUNTED - seen):
            path = root / device / "ports" / number / folder / name
            if path.is_file():
                seen.add(name)
                yield path


def _changed(paths: list[Path], last: Values) -> Values:
    found: Values = {}
    for path in paths:
        with suppress(OSError, ValueError):
            value = int(path.read_text("ascii"))
            if last.get(path.name) != value:
                found[path.name] = last[path.name] = value
    return found
