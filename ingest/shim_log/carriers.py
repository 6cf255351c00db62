"""Which queue pair carries which flow in a shim log: both sides of the link that the hooks make (docs/formats/shim-log.md)."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest._shared.packed import coded_column
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.columns import communicators, numbers, words
from forensics.ingest.shim_log.file import ShimFile, Table, text

DIRECTIONS = ("send", "recv")
_ONE_FLOW = 1
_NO_DIRECTION = 255


def name(pair: np.void) -> str:
    """`device/number`, with the generation when the number was used before."""
    label = f"{text(pair['device']) or format(int(pair['context']), 'x')}/{int(pair['number'])}"
    return label if int(pair["generation"]) <= 1 else f"{label}.{int(pair['generation'])}"


def address(pair: np.void, gid: str, lid: str) -> str | None:
    """GID as an address, else LID."""
    raw = pair[gid].tobytes()
    if any(raw):
        return _address(raw)
    return f"lid {int(pair[lid])}" if pair[lid] else None


# Ranks of one job send to each other.
@lru_cache(maxsize=1 << 14)
def _address(gid: bytes) -> str:
    found = ipaddress.IPv6Address(gid)
    return f"::ffff:{found.ipv4_mapped}" if found.ipv4_mapped else str(found)


def carried(log: ShimFile, pairs: Table) -> dict[str, Any]:
    """The one flow of each queue pair as columns of `queue_pairs`; null where none or several were seen on it."""
    unknown = pairs["flows"] != _ONE_FLOW
    records = np.zeros(len(pairs), layout.PROXY)
    records["comm"] = np.where(unknown, layout.NO_COMM, pairs["flow_comm"])
    records["generation"] = pairs["flow_generation"]
    codes = np.where(unknown, _NO_DIRECTION, pairs["flow_direction"])
    names: dict[int, Any] = {**dict(enumerate(DIRECTIONS)), _NO_DIRECTION: None}
    return {
        "communicator": communicators(log, records),
        "channel": numbers(pairs["flow_channel"], unknown),
        "direction": words(codes, names),
        "peer": numbers(pairs["flow_peer"], unknown | (pairs["flow_peer"] < 0)),
    }


def carriers(log: ShimFile, states: Table) -> dict[str, Any]:
    """Queue pair and NICs of each flow as columns of `flows`; null where no queue pair was seen to carry it."""
    known = _by_flow(log.tables.get(layout.QUEUE_PAIRS))
    distinct, inverse = np.unique(_keys(states, "comm", "generation", "channel", "direction", "peer"), return_inverse=True)
    found = [known.get(key) for key in distinct.tolist()]
    stated = {
        "queue_pair": [None if pair is None else name(pair) for pair in found],
        "local_nic": [None if pair is None else text(pair["device"]) or None for pair in found],
        "remote_nic": [None if pair is None else address(pair, "remote_gid", "remote_lid") for pair in found],
    }
    return {column: coded_column(inverse, values) for column, values in stated.items()}


def _by_flow(pairs: Table | None) -> dict[int, np.void]:
    """The first queue pair of each flow; one that carries several flows is that of none."""
    if pairs is None:
        return {}
    used = pairs[(pairs["generation"] > 0) & (pairs["flows"] == _ONE_FLOW) & (pairs["flow_comm"] != layout.NO_COMM)]
    fields = ("flow_comm", "flow_generation", "flow_channel", "flow_direction", "flow_peer")
    found: dict[int, np.void] = {}
    for key, pair in zip(_keys(used, *fields).tolist(), used, strict=True):
        found.setdefault(key, pair)
    return found


def _keys(table: Table, comm: str, generation: str, channel: str, direction: str, peer: str) -> npt.NDArray[np.uint64]:
    """One number for each flow: slot and generation of its communicator, channel, direction, peer."""
    wide = [table[field].astype(np.int64).astype(np.uint64) for field in (comm, generation, channel, direction, peer)]
    key: npt.NDArray[np.uint64] = wide[0] << np.uint64(48) | wide[1] << np.uint64(40) | wide[2] << np.uint64(32)
    key |= (wide[3] & np.uint64(1)) << np.uint64(31) | (wide[4] & np.uint64(0x7FFFFFFF))
    return key
