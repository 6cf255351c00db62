"""Events of a trace that are kept, one by one: of which kind each is, and its columns."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np

from forensics.ingest.kineto import columns
from forensics.ingest.kineto.columns import TraceColumns

_MOST_DIGITS = 19
_CATEGORIES = {
    "user_annotation": columns.ANNOTATION, "gpu_user_annotation": columns.DEVICE_ANNOTATION, "kernel": columns.KERNEL,
    "Kernel": columns.KERNEL, "gpu_memcpy": columns.COPY, "gpu_memset": columns.COPY, "Memcpy": columns.COPY,
    "Memset": columns.COPY,
}  # fmt: skip
UPDATES = ("aten::_fused_ad", "aten::_fused_sgd", "aten::_foreach_addcdiv", "aten::addcdiv")
"""How the names of operators begin that only optimizers call; native/trace/events.c has the same."""
_LAUNCHES = re.compile(r"(?:cu|hip).*(?:Launch|Memcpy|Memset)", re.DOTALL)
_LATEST_NS = 4 * 10**18  # of a century; with the base of the file it stays within 64 bits
_DIGITS = re.compile(r"(-?)(\d{1,40})\.(\d{1,400})")
_KEYS = {"ts": b'"ts"', "dur": b'"dur"'}
_USUAL = re.compile(rb"[ \t]?:[ \t]?(-?\d{1,15}\.\d{3})[,}\s]")
_NUMBERS = {name: re.compile(rb'"%s"\s{0,64}:\s{0,64}(-?[\d.eE+-]{1,500})' % name.encode()) for name in ("ts", "dur")}


class Rows:
    """Kept events one by one, with their distinct texts."""

    def __init__(self) -> None:
        self.has_no_device = False
        """Whether the head of the file states so: then operators are kept."""
        self._rows: list[tuple[int, int, int, int, int, int, int, int]] = []
        self._names: dict[str, int] = {}
        self._tracks: dict[str, int] = {}
        self._details: list[bytes] = []

    def keep(self, event: dict[str, Any], raw: bytes) -> None:
        """Keep what is an event of a known kind with a begin and an end."""
        kind = self.kind_of(event)
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

    def kind_of(self, event: dict[str, Any]) -> int:
        """Which kind an event is; 0 for all that is not kept."""
        kind = kind_of(event)
        return 0 if kind == columns.OPERATOR and not self.has_no_device else kind

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
    """Which kind an event is; 0 for none."""
    name, category = event.get("name"), event.get("cat")
    if event.get("ph") != "X" or not isinstance(name, str) or not isinstance(category, str):
        return 0
    if category in ("cpu_op", "Operator"):
        if name == "record_param_comms":
            return columns.CALL
        if name.startswith(UPDATES):
            return columns.UPDATE
        return columns.GRADIENT if name.startswith("autograd::engine::evaluate_function") else columns.OPERATOR
    if category in ("cuda_runtime", "cuda_driver", "Runtime"):
        return columns.LAUNCH if _LAUNCHES.match(name) else 0
    return _CATEGORIES.get(category, 0)


def _number(value: Any) -> int:
    """Digits, with or without quotes, as the native reader takes them; -1 for anything else."""
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else -1
    return value if type(value) is int and 0 <= value < 10 ** (_MOST_DIGITS - 1) else -1


class _Text(str):
    """A number as it is written."""

    __slots__ = ()


def nanoseconds(event: dict[str, Any], raw: bytes, name: str) -> int | None:
    """The time under a name of an event and its text, from its digits; None for what is no time.

    Microseconds with decimals: a double has no room for nanoseconds since 1970, it is off by some hundred of them.
    """
    value = event.get(name)
    if type(value) is int:
        return value * 1000 if abs(value) * 1000 < _LATEST_NS else None
    if type(value) is not float or not abs(value) * 1000 <= 2 * _LATEST_NS:
        return None
    key = _KEYS[name]
    place = raw.find(key)
    usual = _USUAL.match(raw, place + len(key))
    if usual is not None and raw.find(key, usual.end()) < 0:
        return int(usual[1].replace(b".", b""))
    written = {text.decode() for text in _NUMBERS[name].findall(raw)}
    # The same name may stand in the arguments too. With an exponent it is no time, for either reader.
    return _exact(written.pop() if len(written) == 1 else _written(raw, name))


def _written(raw: bytes, name: str) -> str:
    try:
        event = json.loads(raw, parse_float=_Text, strict=False)
    except ValueError:
        return ""
    value = event.get(name)
    return value if isinstance(value, _Text) else ""


def _exact(written: str) -> int | None:
    """Rounded at the first digit beyond nanoseconds, half away from zero."""
    match = _DIGITS.fullmatch(written)
    if match is None or len((match[2] + match[3][:3]).lstrip("0")) > _MOST_DIGITS + 2:
        return None
    decimals = match[3].ljust(4, "0")
    value = int(match[2] + decimals[:3]) + (decimals[3] >= "5")
    return (-value if match[1] else value) if value < _LATEST_NS else None
