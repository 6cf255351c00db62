"""Pickles with the opcodes that torch writes: protocol 2, strings and shared objects memoised, containers not."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import groupby
from typing import Any

HEAD = b"\x80\x02"
STOP = b"."


class Shared(dict[str, Any]):
    """A dictionary that is one object wherever it occurs, as a frame is for torch's unwinder."""


class Slot:
    """A place in a template that is filled with an integer (or None) for each entry."""


class Writer:
    """Writes values one after the other; the memo lives as long as the writer, which is one dump."""

    def __init__(self) -> None:
        self._memo: dict[object, bytes] = {}

    def value(self, value: Any) -> bytes:
        """The opcodes of a value without slots."""
        return b"".join(part for part in self.parts(value) if part is not None)

    def parts(self, value: Any) -> list[bytes | None]:
        """The opcodes of a value, cut where it has slots: each is a None."""
        pieces: list[bytes | None] = []
        self._write(value, pieces)
        joined: list[bytes | None] = []
        for is_slot, run in groupby(pieces, lambda piece: piece is None):
            pieces_of_run = list(run)
            joined += pieces_of_run if is_slot else [b"".join(filter(None, pieces_of_run))]
        return joined

    def _write(self, value: Any, out: list[bytes | None]) -> None:
        if isinstance(value, Slot):
            out.append(None)
        elif isinstance(value, str):
            text = value.encode()
            out.append(self._known(value) or b"X" + struct.pack("<I", len(text)) + text + self._remember(value))
        elif isinstance(value, dict):
            self._write_dict(value, out)
        elif isinstance(value, list):
            out.append(b"]")
            if value:
                out.append(b"(")
                for item in value:
                    self._write(item, out)
                out.append(b"e")
        elif isinstance(value, tuple):
            for item in value:
                self._write(item, out)
            out.append({1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(value)])
        else:
            out.append(scalar(value))

    def _write_dict(self, value: Mapping[str, Any], out: list[bytes | None]) -> None:
        known = self._known(id(value)) if isinstance(value, Shared) else None
        if known is not None:
            out.append(known)
            return
        out.append(b"}" + (self._remember(id(value)) if isinstance(value, Shared) else b"") + b"(")
        for key, item in value.items():
            self._write(key, out)
            self._write(item, out)
        out.append(b"u")

    def _known(self, key: object) -> bytes | None:
        return self._memo.get(key)

    def _remember(self, key: object) -> bytes:
        number = len(self._memo)
        short = number < 256
        self._memo[key] = b"h" + bytes([number]) if short else b"j" + struct.pack("<I", number)
        return b"q" + bytes([number]) if short else b"r" + struct.pack("<I", number)


def scalar(value: float | bool | None) -> bytes:
    """None, a boolean, an integer or a float."""
    if value is None:
        return b"N"
    if value is True or value is False:
        return b"\x88" if value else b"\x89"
    if isinstance(value, float):
        return b"G" + struct.pack(">d", value)
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)
