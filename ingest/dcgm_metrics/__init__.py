"""Metrics of dcgm-exporter in the text form of Prometheus: GPUs, their readings, and the last Xid of each.

docs/formats/dcgm-metrics.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.clock_reasons import by_mask
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.dcgm_readings import DCGM_READINGS
from forensics.ingest._shared.pci import pci_address
from forensics.ingest._shared.rows import add_row
from forensics.ingest._shared.values import integer
from forensics.ingest.interface import Batch, Ingester, Item, Problem

MAX_GPUS = 65_536
_METRIC = re.compile(
    r"(?P<name>[A-Za-z_:]\w{0,120})(?:\{(?P<labels>[^\n]{0,4000})\})? (?P<value>[-+.\deE]{1,32}|NaN|[-+]?Inf)(?: -?\d{1,16})?"
)
_LABEL = re.compile(r'(\w{1,64})="((?:[^"\\]|\\.){0,300})"')
_OF_DCGM = "DCGM_FI_"
_LAST_XID = "DCGM_FI_DEV_XID_ERRORS"
_GPU = re.compile(r"\d{1,4}")
_BLANK = 1e12
_NUMBER = re.compile(r"-?\d{1,12}(?:\.\d{1,9})?(?:[eE][-+]?\d{1,2})?")
_REASONS = frozenset({"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"})


def sniff(head: bytes, path: str) -> int:
    """Metrics and nothing else, some of DCGM; a log that quotes one is a log."""
    if _OF_DCGM.encode() not in head or b"\0" in head:
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:-1] if line.strip()]
    metrics = [line for line in lines if not line.startswith("#")]
    return 85 if lines and all(_METRIC.fullmatch(line.rstrip()) for line in metrics) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Each GPU once with the newest of each reading, why its clocks are held down, and its last Xid where there was one."""
    lines = Lines(artefact)
    gpus: dict[tuple[str | None, str], Mapping[str, str]] = {}
    readings: dict[tuple[str | None, str], dict[str, int]] = defaultdict(dict)
    events: list[tuple[Any, ...]] = []
    for number, line in lines:
        said = _METRIC.fullmatch(line.rstrip()) if line.startswith(_OF_DCGM) else None
        labels = dict(_LABEL.findall(said["labels"] or "")) if said else {}
        host = labels.get("Hostname") or artefact.host
        if said is None or not _GPU.fullmatch(labels.get("gpu", "")):
            continue
        if len(gpus) == MAX_GPUS:
            yield Problem(f"more than {MAX_GPUS} GPUs; the rest was left out", f"line={number}")
            break
        gpus.setdefault((host, labels["gpu"]), labels)
        if reading := _reading(said["name"], said["value"]):
            readings[host, labels["gpu"]].update((reading,))
        events += ((number, host, *event) for event in _events(said["name"], said["value"], labels))
    if lines.problem is not None:
        yield lines.problem
    if not gpus:
        yield Problem("names no GPU", "line=1", fatal=True)
        return
    yield Batch("devices", _devices(gpus))
    if readings:
        yield Batch("counters", _counters(readings))
    if events:
        names = ("locator", "host", "device", "kind", "code", "text")
        yield Batch("device_events", dict(zip(names, map(list, zip(*events, strict=True)), strict=True)))


def _reading(metric: str, value: str) -> tuple[str, int] | None:
    """Counter and value in its unit, of metrics that are readings; what DCGM could not read is blank, a huge number."""
    known = DCGM_READINGS.get(metric)
    number = float(value) if known and _NUMBER.fullmatch(value) else _BLANK
    return (known[0], round(number * known[1])) if known and abs(number) < _BLANK else None


def _events(metric: str, value: str, labels: Mapping[str, str]) -> Iterator[tuple[str, str, int | None, str]]:
    """Device, kind, code and text of what a metric tells beside readings."""
    code = integer(value)
    if not code:
        return
    if metric == _LAST_XID:
        message = f": {labels['err_msg']}" if labels.get("err_msg") else ""
        yield pci_address(labels.get("pci_bus_id", "")) or _name(labels), "xid", code, f"last Xid {code}{message}"
    elif metric in _REASONS:
        yield from ((_name(labels), "throttle", None, reason) for reason in by_mask(code))


def _counters(readings: Mapping[tuple[str | None, str], Mapping[str, int]]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = defaultdict(list)
    for (host, gpu), found in readings.items():
        for counter, value in found.items():
            add_row(columns, {"host": host, "device": f"GPU-{int(gpu)}", "counter": counter, "sample": 0, "value": value})
    return columns


def _devices(gpus: Mapping[tuple[str | None, str], Mapping[str, str]]) -> dict[str, list[Any]]:
    labels = list(gpus.values())
    return {
        "host": [host for host, _ in gpus],
        "device": [_name(each) for each in labels],
        "kind": ["gpu"] * len(gpus),
        "pci": [pci_address(each.get("pci_bus_id", "")) for each in labels],
        "uuid": [each.get("UUID") for each in labels],
        "model": [each.get("modelName") for each in labels],
    }


def _name(labels: Mapping[str, str]) -> str:
    """As readers of nvidia-smi call it."""
    return f"GPU-{int(labels['gpu'])}"


INGESTER = Ingester("dcgm_metrics", "dcgm_metrics", sniff, rows, most=85)
