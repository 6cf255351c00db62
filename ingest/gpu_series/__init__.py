"""Readings of GPUs over time with a column for each GPU, as dashboards export them (docs/formats/gpu-series.md).

Upstream: wandb/sdk/internal/system/assets/gpu_nvidia.py of wandb/wandb; the CSV of a panel of grafana/grafana, whose columns
are the legend: labels of dcgm-exporter, or whatever somebody chose.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import Lines
from forensics.ingest._shared.dcgm_readings import DCGM_READINGS
from forensics.ingest._shared.rows import add_row
from forensics.ingest.interface import Batch, Ingester, Item, Problem

_LEAST_GPUS, _MOST_COLUMNS = 2, 4096
_LONG_HEAD = 4000
"""Bytes: names of so many GPUs fill what is looked at first."""
_LOOKS = 5
"""Newest rows that are kept: how it ended is asked, and a job that hangs is idle for longer."""
_TIME = re.compile(r"(?i)\W?(?:relative )?(?:_?time|timestamp|date|_?step)\b.*")
# Weights & Biases: run, number and reading; the least and the most of the points that it drew as one stand beside them.
_OF_WANDB = re.compile(r"(?:(?P<host>.{1,200}) - )?system/gpu\.(?P<gpu>\d{1,4})\.(?P<reading>gpu|temp|powerWatts)")
_DRAWN = re.compile(r"__(?:MIN|MAX)$")
_LABELS = re.compile(r"(?P<metric>\w{0,80})\{(?P<labels>.{1,2000})\}")
_LABEL = re.compile(r'(\w{1,64})="?([^",}]{0,253})"?')
# `n-07:3`, `n-07 GPU 3`, `GPU 3`, `gpu3`. `gpu-3` and `n-3` may be hosts.
_HOST = r"(?P<{0}>(?=[\w.-]{{0,253}}[a-zA-Z])[\w.-]{{1,253}})(?::\d{{4,5}})?"
_LEGEND = re.compile(
    rf"{_HOST.format('joined')}:(?P<number>\d{{1,2}})"
    rf"|(?:{_HOST.format('apart')}[ /:]{{1,3}})?(?i:gpu)[ :#]{{0,2}}(?P<gpu>\d{{1,2}})"
)
_PORT = re.compile(r":\d{1,5}$")
_HOSTS = ("Hostname", "hostname", "node", "instance", "host")
_OF_BOTH = {"gpu": "DCGM_FI_DEV_GPU_UTIL", "temp": "DCGM_FI_DEV_GPU_TEMP", "powerWatts": "DCGM_FI_DEV_POWER_USAGE"}
# Counter of a reading, and factor to its unit.
_READINGS: Mapping[str, tuple[str, int]] = {
    **{of_wandb: DCGM_READINGS[metric] for of_wandb, metric in _OF_BOTH.items()},
    **{metric: DCGM_READINGS[metric] for metric in _OF_BOTH.values()},
}
_BY_WORD = (("util", "gpu"), ("temperature", "temp"), ("power", "powerWatts"))
_NUMBER = re.compile(r"(-?\d{1,9}(?:[.,]\d{1,9})?) ?(?:%|°?C|W)?")
_BUSY_ONCE = "utilization_most_percent"


class _Column(NamedTuple):
    host: str | None
    gpu: int
    counter: str
    factor: int


def sniff(head: bytes, path: str) -> int:
    """A head of times and GPUs, and a row of numbers below it, unless that is further down."""
    lines = head.decode("utf-8-sig", "replace").splitlines() if b"\0" not in head else []
    if len(lines) == 1 and len(head) >= _LONG_HEAD:
        return 86 if _columns(_cells(lines[0])[:-1], path) else 0
    columns = _columns(_cells(lines[0]), path) if len(lines) > 1 else {}
    return 86 if columns and _row(_cells(lines[1]), columns) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The newest readings of each GPU, and the most that it was busy in the whole series."""
    lines = Lines(artefact)
    columns: Mapping[int, _Column] = {}
    looks: deque[Mapping[int, int]] = deque(maxlen=_LOOKS)
    most: dict[int, int] = {}
    for number, line in lines:
        cells = _cells(line)
        if not columns:
            columns = _columns(cells, artefact.path)
            continue
        if found := _row(cells, columns):
            looks.append(found)
            most |= {at: max(value, most.get(at, value)) for at, value in found.items()}
        elif line.strip():
            yield Problem("not a row of numbers; left out", f"line={number}")
    if lines.problem is not None:
        yield lines.problem
    if not looks:
        yield Problem("holds no readings of GPUs", "line=1", fatal=True)
        return
    seen = sorted({(column.host or artefact.host or "", column.gpu) for column in columns.values()})
    hosts, names = [host or None for host, _ in seen], [f"GPU-{gpu}" for _, gpu in seen]
    yield Batch("devices", {"host": hosts, "device": names, "kind": ["gpu"] * len(seen)})
    yield Batch("counters", _counters(artefact.host, columns, looks, most))


def _counters(
    host: str | None, columns: Mapping[int, _Column], looks: Sequence[Mapping[int, int]], most: Mapping[int, int]
) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = defaultdict(list)
    for at, column in columns.items():
        same = {"host": column.host or host, "device": f"GPU-{column.gpu}"}
        for sample, look in enumerate(looks):
            if at in look:
                add_row(found, {**same, "counter": column.counter, "sample": sample, "value": look[at]})
        if at in most and column.counter == "utilization_percent":
            add_row(found, {**same, "counter": _BUSY_ONCE, "sample": 0, "value": most[at]})
    return found


def _cells(line: str) -> list[str]:
    return next(csv.reader([line.rstrip("\r\n")]), [])


def _columns(cells: Sequence[str], path: str) -> Mapping[int, _Column]:
    """The GPU and the reading of each column but the first; empty where one is of neither, or two are of the same."""
    if not 1 + _LEAST_GPUS <= len(cells) <= _MOST_COLUMNS or not _TIME.fullmatch(cells[0].strip()):
        return {}
    kept = {at: cell.strip() for at, cell in enumerate(cells) if at and not _DRAWN.search(cell)}
    found = {at: column for at, cell in kept.items() if (column := _column(cell, path)) is not None}
    named = {column[:3] for column in found.values()}
    if not len(found) == len(kept) == len(named) or len({gpu[:2] for gpu in named}) < _LEAST_GPUS:
        return {}
    # The only run is no host.
    is_one_run = _OF_WANDB.fullmatch(next(iter(kept.values()))) and len({column.host for column in found.values()}) == 1
    return {at: column._replace(host=None) for at, column in found.items()} if is_one_run else found


def _column(cell: str, path: str) -> _Column | None:
    if said := _OF_WANDB.fullmatch(cell):
        return _Column(said["host"], int(said["gpu"]), *_READINGS[said["reading"]])
    if said := _LABELS.fullmatch(cell):
        labels = dict(_LABEL.findall(said["labels"]))
        host = next((_PORT.sub("", labels[name]) for name in _HOSTS if labels.get(name)), None)
        reading, gpu = _READINGS.get(said["metric"]) or _of_name(path), labels.get("gpu", "")
        return _Column(host, int(gpu), *reading) if reading and gpu.isdecimal() and len(gpu) < 5 else None
    legend, reading = _LEGEND.fullmatch(cell), _of_name(path)
    if legend is None or reading is None:
        return None
    return _Column(legend["joined"] or legend["apart"], int(legend["number"] or legend["gpu"]), *reading)


def _of_name(path: str) -> tuple[str, int] | None:
    """The reading that a file is of by its name, which Grafana takes from the panel; None where nothing says that of GPUs."""
    name = path.rsplit("/", 1)[-1].lower()
    words = [reading for word, reading in _BY_WORD if word in name] if "gpu" in name else []
    return _READINGS[words[0]] if len(words) == 1 else None


def _row(cells: Sequence[str], columns: Mapping[int, _Column]) -> Mapping[int, int]:
    """Values of a row by column; a GPU that nothing is known of at that time is left out."""
    found: dict[int, int] = {}
    for at, column in columns.items():
        cell = cells[at].strip() if at < len(cells) else ""
        said = _NUMBER.fullmatch(cell)
        if cell and said is None and cell.lower() not in ("nan", "null", "undefined"):
            return {}
        if said is not None:
            found[at] = round(float(said[1].replace(",", ".")) * column.factor)
    return found


INGESTER = Ingester("gpu_series", "gpu_table", sniff, rows, most=86)
