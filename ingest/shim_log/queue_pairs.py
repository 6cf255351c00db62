"""Queue pairs of a shim log as rows of `queue_pairs`, `wr_samples`, `captures` and `nic_epochs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.ingest.interface import Batch
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.carriers import address, carried, name
from forensics.ingest.shim_log.clock import Clock
from forensics.ingest.shim_log.columns import lengths, numbers, texts, times
from forensics.ingest.shim_log.file import ShimFile, Table, text
from forensics.ingest.shim_log.flows import last_tick, pairs
from forensics.ingest.shim_log.rings import Ring

_UNKNOWN = 255


def queue_pair_batches(log: ShimFile, clock: Clock, rings: Sequence[Ring]) -> Iterator[Batch]:
    """The map of queue pairs, their samples, their state now, and their epochs."""
    slots = log.tables.get(layout.QUEUE_PAIRS)
    used = np.flatnonzero(slots["generation"] > 0) if slots is not None else np.zeros(0, np.int64)
    if slots is None or not len(used):
        return
    yield Batch("queue_pairs", {**_map(clock, slots[used], used), **carried(log, slots[used])})
    for ring in rings:
        first, second, places = pairs(ring, layout.QP_STATE, layout.QP_RATE)
        if len(first):
            states, rates = log.typed(first, layout.QP), log.typed(second, layout.RATE)
            yield Batch("wr_samples", {"locator": numbers(places), **_samples(clock, slots, states, rates)})
    yield Batch("wr_samples", _now(clock, slots[used], used, last_tick(log, rings)))
    yield from _epochs(log, clock, slots)


def _map(clock: Clock, pairs_: Table, used: npt.NDArray[Any]) -> dict[str, Any]:
    remote = pairs_["remote_number"]
    return {
        "locator": numbers(used),
        "queue_pair": [name(pair) for pair in pairs_],
        "generation": numbers(pairs_["generation"]),
        "nic": [text(pair["device"]) or None for pair in pairs_],
        "port": numbers(pairs_["port"], pairs_["port"] == 0),
        "number": numbers(pairs_["number"]),
        "remote_queue_pair": [str(int(number)) if number else None for number in remote],
        "gid": [address(pair, "gid", "lid") for pair in pairs_],
        "remote_nic": [address(pair, "remote_gid", "remote_lid") for pair in pairs_],
        "timeout": numbers(pairs_["timeout"], pairs_["timeout"] == _UNKNOWN),
        "retry_count": numbers(pairs_["retry_count"], pairs_["retry_count"] == _UNKNOWN),
        "created_ns": times(clock, pairs_["created"]),
        "connected_ns": times(clock, pairs_["connected"]),
        "ended": (pairs_["state"] == 2).tolist(),
    }


def _rate(clock: Clock, amount: npt.NDArray[Any], ticks: npt.NDArray[Any]) -> Any:
    """Bytes per second; null without a window."""
    per_tick = clock.ns_per_tick
    none = (ticks == 0) | (per_tick is None)
    seconds = np.where(none, 1.0, ticks.astype(np.float64) * (per_tick or 1.0) / 1e9)
    return numbers(np.clip(amount.astype(np.float64) / seconds, 0, 9e17).astype(np.int64), none)


def _samples(clock: Clock, slots: Table, states: Table, rates: Table) -> dict[str, Any]:
    index = np.where(states["slot"] < len(slots), states["slot"], 0)
    same = (states["slot"] < len(slots)) & ((slots["generation"][index] & 0xFF) == states["generation"])
    names = {slot: name(slots[slot]) for slot in np.unique(index).tolist()}
    return {
        "time_ns": times(clock, states["time"]),
        "queue_pair": texts([names[slot] if known else None for slot, known in zip(index.tolist(), same, strict=True)]),
        "posted": numbers(states["posted_wrs"]),
        "completed": numbers(states["completed_wrs"]),
        "posted_bytes": numbers(states["posted_bytes"]),
        "completed_bytes": numbers(states["completed_bytes"]),
        "in_flight": numbers(states["in_flight"], (states["oldest"] == 0) & (states["in_flight"] > 0)),
        "unacknowledged": numbers(rates["tail"]),
        "oldest_ns": lengths(clock, states["oldest"], states["oldest"] == 0),
        "window_rate": _rate(clock, rates["window_bytes"], rates["window_ticks"]),
        "busy_ns": lengths(clock, rates["busy"]),
        "received_bytes": numbers(rates["received_bytes"]),
        "poll_gap_ns": lengths(clock, rates["poll_gap"]),
    }


def _now(clock: Clock, pairs_: Table, used: npt.NDArray[Any], now: int) -> dict[str, Any]:
    """The state pages; a locator below zero is -1 - slot. The error is that of the first bad completion."""
    newest = np.maximum(np.maximum(pairs_["last_post"], pairs_["last_completion"]), np.uint64(now))
    oldest = np.where(pairs_["oldest_post"] > 0, newest - np.minimum(pairs_["oldest_post"], newest), 0)
    fine = pairs_["error_status"] == 0
    posted, completed = pairs_["signaled_posted"], pairs_["signaled_completed"]
    blind = (pairs_["oldest_post"] == 0) & (posted > completed)  # never polled through us, or a count was lost
    return {
        "locator": numbers(-1 - used),
        "time_ns": times(clock, newest),
        "queue_pair": [name(pair) for pair in pairs_],
        "posted": numbers(pairs_["posted_wrs"]),
        "completed": numbers(pairs_["completed_wrs"]),
        "posted_bytes": numbers(pairs_["posted_bytes"]),
        "completed_bytes": numbers(pairs_["completed_bytes"]),
        "in_flight": numbers(posted - np.minimum(completed, posted), blind),
        "unacknowledged": numbers(pairs_["tail_wrs"]),
        "oldest_ns": lengths(clock, oldest, pairs_["oldest_post"] == 0),
        "window_rate": _rate(clock, pairs_["window_bytes"], pairs_["window_ticks"]),
        "busy_ns": lengths(clock, pairs_["busy"]),
        "received_bytes": numbers(pairs_["received_bytes"]),
        "poll_gap_ns": lengths(clock, pairs_["poll_gap"]),
        "error_status": numbers(pairs_["error_status"], fine),
        "vendor_error": numbers(pairs_["error_vendor"], fine),
        "error_ns": times(clock, pairs_["error_time"]),
    }


def _epochs(log: ShimFile, clock: Clock, slots: Table) -> Iterator[Batch]:
    """Bytes per epoch, one capture for each log; runs of neighbouring epochs."""
    bins, each, rate = log.tables.get(layout.EPOCHS), int(log.head["epoch_bins"]), clock.ns_per_tick
    if bins is None or rate is None or not 0 < each <= 1 << 16:
        return
    pairs_: list[str] = []
    firsts: list[int] = []
    values: list[list[int]] = []
    for slot in np.flatnonzero(slots["bins"] > 0).tolist():
        own = bins[slot * each : (slot + 1) * each]
        own = own[own["epoch"] > 0]
        own = own[np.lexsort((own["bytes"], own["epoch"]))]
        epochs, moved = own["epoch"].tolist(), own["bytes"].tolist()
        begins = [0, *(np.flatnonzero(np.diff(own["epoch"]) != 1) + 1).tolist()] if epochs else []
        pairs_ += [name(slots[slot])] * len(begins)
        firsts += [epochs[begin] for begin in begins]
        values += [moved[begin:end] for begin, end in pairwise([*begins, len(moved)])]
    if not pairs_:
        return
    length = round((1 << min(int(log.head["epoch_shift"]), 62)) * rate)
    yield Batch("captures", {"capture_id": [0], "epoch_ns": [length], "unit": ["bytes"], "clock": ["ticks >> epoch_shift"]})
    columns: dict[str, Any] = {"queue_pair": pairs_, "first_epoch": firsts, "values": values}
    columns |= {"capture_id": [0] * len(pairs_), "direction": ["send"] * len(pairs_)}
    yield Batch("nic_epochs", columns)
