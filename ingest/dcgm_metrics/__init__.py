"""Metrics of dcgm-exporter in the text form of Prometheus: GPUs, and the last Xid of each (docs/formats/dcgm-metrics.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.pci import pci_address
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


def sniff(head: bytes, path: str) -> int:
    """Metrics and nothing else, some of DCGM; a log that quotes one is a log."""
    if _OF_DCGM.encode() not in head or b"\0" in head:
        return 0
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:-1] if line.strip()]
    metrics = [line for line in lines if not line.startswith("#")]
    return 85 if lines and all(_METRIC.fullmatch(line.rstrip()) for line in metrics) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Each GPU once, and its last Xid where there was one."""
    lines = Lines(artefact)
    gpus: dict[tuple[str | None, str], Mapping[str, str]] = {}
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
        code = integer(said["value"]) if said["name"] == _LAST_XID else None
        if code:
            message = f": {labels['err_msg']}" if labels.get("err_msg") else ""
            events.append(
                (number, host, pci_address(labels.get("pci_bus_id", "")) or _name(labels), code, f"last Xid {code}{message}")
            )
    if lines.problem is not None:
        yield lines.problem
    if not gpus:
        yield Problem("names no GPU", "line=1", fatal=True)
        return
    yield Batch("devices", _devices(gpus))
    if events:
        names = ("locator", "host", "device", "code", "text")
        yield Batch(
            "device_events",
            {**dict(zip(names, map(list, zip(*events, strict=True)), strict=True)), "kind": ["xid"] * len(events)},
        )


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


INGESTER = Ingester("dcgm_metrics", "dcgm_metrics", sniff, rows)
