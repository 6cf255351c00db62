"""What `ethtool -S` prints of an interface, once or several times in one text.

Upstream: do_gnicstats in ethtool.c of ethtool 6; names of mlx5 by the page of its counters in the documentation of Linux
(networking/device_drivers/ethernet/mellanox/mlx5). The output names neither interface nor time: the command in front of it or
the name of the file has the one, a line of `date` the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from forensics.ingest._shared.dump_times import time_in

_BEGIN = re.compile(r"\s{0,8}NIC statistics:\s*")
_COMMAND = re.compile(r"\bethtool\s{1,4}(?:-S|--statistics)\s{1,4}([A-Za-z][\w.:@-]{0,31})\s*$")
_VALUE = re.compile(r"\s{1,16}([A-Za-z\[][\w .:\[\]-]{0,63}): (\d{1,20})\s*")
_NAMED = re.compile(r"ethtool[-_.](?:S[-_.])?((?:en|eth|ib|rdma|bond|roce)[A-Za-z0-9]{1,14})(?![A-Za-z0-9])")
_LONGEST = 160
_HEAD = 8
# The same events under the names of sysfs, so that ports are compared whichever tool read them.
_OF_SYSFS = {
    "rx_packets_phy": "port_rcv_packets",
    "tx_packets_phy": "port_xmit_packets",
    "rx_symbol_err_phy": "symbol_error",
    "rx_crc_errors_phy": "port_rcv_errors",
    "link_down_events_phy": "link_downed",
}


@dataclass(slots=True)
class Reading:
    """One read of one interface; `time_ns` is that of the line above it."""

    interface: str
    time_ns: int | None
    values: dict[str, int] = field(default_factory=dict)


def is_ethtool(head: str) -> bool:
    """Whether statistics of an interface begin within the first lines."""
    lines = [line for line in head.splitlines()[: _HEAD + 1] if line.strip()]
    begins = [number for number, line in enumerate(lines[:-1]) if len(line) <= _LONGEST and _BEGIN.fullmatch(line)]
    return bool(begins) and _VALUE.fullmatch(lines[begins[0] + 1][:_LONGEST]) is not None


def readings(lines: Iterable[tuple[int, str]], path: str) -> Iterator[Reading]:
    """Each read in file order; one of which nothing shows the interface is left out."""
    named = _NAMED.search(path.rsplit("/", 1)[-1])
    interface, time_ns = named[1] if named else None, None
    reading: Reading | None = None
    for _, line in lines:
        if len(line) > _LONGEST:
            continue
        if value := _VALUE.fullmatch(line):
            if reading is not None and (number := int(value[2])) < 1 << 63:
                name = value[1].strip()
                reading.values.setdefault(_OF_SYSFS.get(name, name), number)
            continue
        if reading is not None:
            yield reading
            reading = None
        if command := _COMMAND.search(line):
            interface = command[1]
        elif _BEGIN.fullmatch(line):
            reading = Reading(interface, time_ns) if interface else None
        else:
            time_ns = time_in(line) or time_ns
    if reading is not None:
        yield reading
