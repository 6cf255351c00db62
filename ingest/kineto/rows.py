"""Events of a trace that are kept, one by one: of which kind each is, and its columns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from forensics.ingest.kineto import columns
from forensics.ingest.kineto.columns import TraceColumns
from forensics.ingest.kineto.times import nanoseconds

_MOST_DIGITS = 19
_CATEGORIES = {
    "user_annotation": columns.ANNOTATION, "gpu_user_annotation": columns.DEVICE_ANNOTATION, "kernel": columns.KERNEL,
    "Kernel": columns.KERNEL, "gpu_memcpy": columns.COPY, "gpu_memset": columns.COPY, "Memcpy": columns.COPY,
    "Memset": columns.COPY,
}  # fmt: skip
UPDATES = ("aten::_fused_ad", "aten::_fused_sgd", "aten::_foreach_addcdiv", "aten::addcdiv")
"""How the names of operators begin that only optimizers call; native/trace/events.c has the same."""
_LAUNCHES = re.compile(r"(?:cu|hip).*(?:Launch|Memcpy|Memset)", re.DOTALL)


class Rows:
    """Kept events one by one, with their distinct texts."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int, int, int, int, int]] = []
        self._names: dict[str, int] = {}
        self._tracks: dict[str, int] = {}
        self._details: list[bytes] = []

    def keep(self, event: dict[str, Any], raw: bytes) -> None:
        """Keep what is an event of a known kind with a begin and an end."""
        kind = kind_of(event)
        begin, duration = (nanoseconds(event, raw, "ts"), nanoseconds(event, raw, "dur")) if kind else (None, None)
        if begin is None or duration is None or duration < 0:
            return
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        detail = len(self._details) if "Collective name" in args else -1
        if detail >= 0:
            self._details.append(raw)
        name = self._names.setdefault(event["name"], len(self._names))
        track = self._tracks.setdefault(f"{event.get('pid', '')}/{event.get('tid', '')}", len(self._tracks))
        external = _number(args.get("External id", args.get("external id")))
        self._rows.append((kind, name, track, begin, duration, external, _number(args.get("correlation")), detail))

    def mark(self) -> tuple[int, int]:
        """A place to go back to."""
        return len(self._rows), len(self._details)

    def back(self, mark: tuple[int, int]) -> None:
        """Forget the events that were kept since then."""
        del self._rows[mark[0] :], self._details[mark[1] :]

    def columns(self) -> TraceColumns:
        """Everything that was kept."""
        table = np.array(self._rows, dtype=np.int64).reshape(-1, 8).T
        kinds, names, tracks, begins, durations, externals, correlations, details = table
        return TraceColumns(
            kinds.astype(np.uint8), names.astype(np.int32), tracks.astype(np.int32), begins, durations, externals,
            correlations, details.astype(np.int32), list(self._names), list(self._tracks), self._details,
        )  # fmt: skip


def kind_of(event: dict[str, Any]) -> int:
    """Which kind an event is; 0 for all that is not kept."""
    name, category = event.get("name"), event.get("cat")
    if event.get("ph") != "X" or not isinstance(name, str) or not isinstance(category, str):
        return 0
    if category in ("cpu_op", "Operator"):
        if name == "record_param_comms":
            return columns.CALL
        if name.startswith(UPDATES):
            return columns.UPDATE
        return columns.GRADIENT if name.startswith("autograd::engine::evaluate_function") else 0
    if category in ("cuda_runtime", "cuda_driver", "Runtime"):
        return columns.LAUNCH if _LAUNCHES.match(name) else 0
    return _CATEGORIES.get(category, 0)


def _number(value: Any) -> int:
    """Digits, with or without quotes, as the native reader takes them; -1 for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else -1
    return value if type(value) is int and 0 <= value < 10 ** (_MOST_DIGITS - 1) else -1
