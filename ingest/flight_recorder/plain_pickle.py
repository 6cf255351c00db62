"""The opcodes of plain data, run in Python: slower than the C unpickler, but it can be looked at after it failed.

It takes what native/pickle/opcodes.c takes, and texts, numbers, booleans and None as keys: hashes of integers and of tuples
are known beforehand, so that many chosen ones fill a dictionary in quadratic time.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable
from typing import Any, NoReturn

_KEYS = frozenset({str, int, float, bool, type(None)})
_MOST_MEMO = 1 << 20
_RUNS = frozenset(b"coiRbPQ\x81\x82\x83\x84\x92\x93")


class ForbiddenPickle(pickle.UnpicklingError):
    """The pickle names a class, a function or an outside object; a dump of plain data never does."""


class PlainPickle:
    """Runs a pickle up to `at`; `levels` are the open marks from the outermost on, each with the values read since."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0
        self.levels: list[list[Any]] = [[]]
        self._memo: dict[int, Any] = {}

    def load(self) -> Any:
        """The value; UnpicklingError or EOFError says why there is none."""
        run = _OPCODES
        while (opcode := self._byte()) != 0x2E:
            found = run.get(opcode)
            if found is None:
                self._refuse(opcode)
            found(self)
        return self._pop()

    def _refuse(self, opcode: int) -> NoReturn:
        if opcode in _RUNS:
            raise ForbiddenPickle("the pickle wants to run something: it is no dump of plain data and was refused")
        raise pickle.UnpicklingError(f"opcode {opcode:#04x} is not one of plain data")

    def _byte(self) -> int:
        try:
            value = self._content[self.at]
        except IndexError:
            raise EOFError("Ran out of input") from None
        self.at += 1
        return value

    def _take(self, size: int) -> bytes:
        taken = self._content[self.at : self.at + size]
        if len(taken) != size:
            raise EOFError("pickle data was truncated")
        self.at += size
        return taken

    def _number(self, width: int) -> int:
        return int.from_bytes(self._take(width), "little")

    def _push(self, value: Any) -> None:
        self.levels[-1].append(value)

    def _pop(self) -> Any:
        if not self.levels[-1]:
            raise pickle.UnpicklingError("unpickling stack underflow")
        return self.levels[-1].pop()

    def _drop(self) -> None:
        """An item, or a mark with nothing above it."""
        if self.levels[-1]:
            self.levels[-1].pop()
        else:
            self._marked()

    def _last(self) -> Any:
        if not self.levels[-1]:
            raise pickle.UnpicklingError("unpickling stack underflow")
        return self.levels[-1][-1]

    def _marked(self) -> list[Any]:
        if len(self.levels) == 1:
            raise pickle.UnpicklingError("could not find MARK")
        return self.levels.pop()

    def _text(self, width: int) -> None:
        self._push(self._take(self._number(width)).decode("utf-8", "surrogatepass"))

    def _long(self, width: int) -> None:
        size = self._number(width)
        if size > 8:
            raise pickle.UnpicklingError("an integer beyond 64 bits")
        self._push(int.from_bytes(self._take(size), "little", signed=True))

    def _remember(self, number: int) -> None:
        value = self._last()
        if number > _MOST_MEMO + len(self._content):
            raise pickle.UnpicklingError("a memo far larger than the pickle")
        self._memo[number] = value

    def _recall(self, number: int) -> None:
        if number not in self._memo:
            raise pickle.UnpicklingError(f"Memo value not found at index {number}")
        self._push(self._memo[number])

    def _tuple(self, size: int) -> None:
        level = self.levels[-1]
        if len(level) < size:
            raise pickle.UnpicklingError("unpickling stack underflow")
        value = tuple(level[len(level) - size :])
        del level[len(level) - size :]
        level.append(value)

    def _append(self, items: list[Any]) -> None:
        target = self._last()
        if items and type(target) is not list:
            raise pickle.UnpicklingError("items for what is no list")
        if items:
            target.extend(items)

    def _set(self, items: list[Any]) -> None:
        target = self._last()
        if not items:
            return
        if type(target) is not dict or len(items) % 2:
            raise pickle.UnpicklingError("pairs for what is no dictionary, or half a pair")
        for key in items[::2]:
            if type(key) not in _KEYS:
                raise pickle.UnpicklingError(f"unhashable or no plain key: '{type(key).__name__}'")
        target.update(zip(items[::2], items[1::2], strict=True))

    def _set_one(self) -> None:
        value = self._pop()
        self._set([self._pop(), value])

    def _frame(self) -> None:
        if self._number(8) > len(self._content) - self.at:
            raise EOFError("pickle exhausted before end of frame")

    def _protocol(self) -> None:
        if self._byte() > pickle.HIGHEST_PROTOCOL:
            raise pickle.UnpicklingError("unsupported pickle protocol")


_OPCODES: dict[int, Callable[[PlainPickle], None]] = {
    ord("("): lambda run: run.levels.append([]),
    ord(")"): lambda run: run._push(()),
    ord("0"): lambda run: run._drop(),
    ord("2"): lambda run: run._push(run._last()),
    ord("G"): lambda run: run._push(struct.unpack(">d", run._take(8))[0]),
    ord("J"): lambda run: run._push(int.from_bytes(run._take(4), "little", signed=True)),
    ord("K"): lambda run: run._push(run._byte()),
    ord("M"): lambda run: run._push(run._number(2)),
    ord("N"): lambda run: run._push(None),
    ord("X"): lambda run: run._text(4),
    ord("]"): lambda run: run._push([]),
    ord("a"): lambda run: run._append([run._pop()]),
    ord("e"): lambda run: run._append(run._marked()),
    ord("h"): lambda run: run._recall(run._byte()),
    ord("j"): lambda run: run._recall(run._number(4)),
    ord("q"): lambda run: run._remember(run._byte()),
    ord("r"): lambda run: run._remember(run._number(4)),
    ord("s"): lambda run: run._set_one(),
    ord("t"): lambda run: run._push(tuple(run._marked())),
    ord("u"): lambda run: run._set(run._marked()),
    ord("}"): lambda run: run._push({}),
    0x80: lambda run: run._protocol(),
    0x85: lambda run: run._tuple(1),
    0x86: lambda run: run._tuple(2),
    0x87: lambda run: run._tuple(3),
    0x88: lambda run: run._push(True),
    0x89: lambda run: run._push(False),
    0x8A: lambda run: run._long(1),
    0x8B: lambda run: run._long(4),
    0x8C: lambda run: run._text(1),
    0x8D: lambda run: run._text(8),
    0x94: lambda run: run._remember(len(run._memo)),
    0x95: lambda run: run._frame(),
}
