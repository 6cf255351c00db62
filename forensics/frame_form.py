"""The one form in which frames of any sampler are compared: function, file without its folders, line; Python's frames only.

Samplers write the same frame in many ways: with the absolute path or what is left below `sys.path`, with a qualified name or a
bare one, with the interpreter's own native frames around it or without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PlainFrame = tuple[str, str, int | None]
"""Function without its qualifiers, file name without folders, line."""

_NATIVE_FILE = re.compile(
    r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hh|hpp|inl|inc|rs|s|S|asm)$|\.(?:so|dylib|dll|pyd)(?:\.|$)|^\[.*\]$|^\?+$"
)
_NATIVE_NAME = re.compile(r"::|^_Z\w|^0x[0-9a-fA-F]+$|^\?+$")
_PYTHON_FILE = re.compile(r"\.pyw?$|^<|\.ipynb$")
# The outermost frames of Python code: what a program, a module run by name, a thread and a child process start with.
_ENTRIES = frozenset({"<module>", "_run_module_as_main", "_run_code", "_bootstrap"})
# Code of a module that is being imported is innermost, and no sign that a stack stands on its head.
_IMPORT = "<frozen importlib"


def is_native(name: str, filename: str | None, line: int | None) -> bool:
    """Whether a frame is of a compiled library: its file says so, or there is neither a Python file nor a line."""
    if not filename or _NATIVE_FILE.search(filename):
        return True
    if _PYTHON_FILE.search(filename):
        return False
    return line is None or bool(_NATIVE_NAME.search(name))


def function_name(name: str) -> str:
    """The last part of a qualified name: `Condition.wait` and `wait`, `f.<locals>.g` and `g` are the same."""
    return name.rsplit(".", 1)[-1]


def plain_frame(name: str, filename: str | None, line: int | None) -> PlainFrame:
    """The frame as it is compared."""
    return function_name(name), (filename or "").rsplit("/", 1)[-1], line


def is_upside_down(frames: Iterable[tuple[str, str | None, int | None]]) -> bool:
    """Whether a call path begins with its outermost frame: a program's entry comes first and does not come last."""
    own = [frame for frame in frames if not is_native(*frame)]
    if len(own) < 2 or (own[1][1] or "").startswith(_IMPORT):
        return False
    return function_name(own[0][0]) in _ENTRIES and function_name(own[-1][0]) not in _ENTRIES
