"""Times of trace events: microseconds with decimals as whole nanoseconds, from their digits.

A double has no room for nanoseconds since 1970: it is off by some hundred of them.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LATEST_NS = 4 * 10**18  # of a century; with the base of the file it stays within 64 bits
_MOST_DIGITS = 19
_DIGITS = re.compile(r"(-?)(\d{1,40})\.(\d{1,400})")
_KEYS = {"ts": b'"ts"', "dur": b'"dur"'}
_USUAL = re.compile(rb"[ \t]?:[ \t]?(-?\d{1,15}\.\d{3})[,}\s]")
_NUMBERS = {name: re.compile(rb'"%s"\s{0,64}:\s{0,64}(-?[\d.eE+-]{1,500})' % name.encode()) for name in ("ts", "dur")}


class _Text(str):
    """A number as it is written."""

    __slots__ = ()


def nanoseconds(event: dict[str, Any], raw: bytes, name: str) -> int | None:
    """The time under a name of an event and its text; None for what is no time."""
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
