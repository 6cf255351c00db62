"""One frame in a stack dump as text: of py-spy, faulthandler, pystack or gdb."""

from __future__ import annotations

import re

from forensics.ingest._shared.frames import Frame

_PLACE = re.compile(r"(.+?)(?::(\d{1,9}))?")
_FAULTHANDLER_FRAME = re.compile(r'\s*File "(.+)", line (\d{1,9}|\?\?\?),? in (.+)')
_PYSTACK_FRAME = re.compile(r'\s*\((?:Python|C)\) File "(.+)", line (\d{1,9}), in (\S+)(?: \((.+)\))?\s*')
_GDB_FRAME = re.compile(r"#\d{1,5} +(?:0x[0-9a-f]+ in )?(?=\S)")
# What CPython's extension for gdb (Tools/gdb/libpython.py, 3.6 to 3.14) makes of a pointer to a frame: the whole line of
# `py-bt-full`, an argument of the interpreter's loop in `bt`.
_GDB_PYTHON = re.compile(r"\bFrame 0x[0-9a-f]{1,16}, for file ([^,]{1,400}), line (\d{1,9}), in ([^\s(]{1,200}) \(")


def frame(line: str) -> Frame | None:
    """A frame of either form; without an indent only what names a Python file and its line."""
    if match := _FAULTHANDLER_FRAME.fullmatch(line):
        return match[3], match[1], int(match[2]) if match[2].isdecimal() else None
    if match := _PYSTACK_FRAME.fullmatch(line):
        return match[3], match[4] if match[1] == "???" else match[1], int(match[2]) or None
    if match := _GDB_FRAME.match(line):
        return _native(line[match.end() :].rstrip())
    text = line.strip()
    name, _, place = text.rpartition(" (")
    match = _PLACE.fullmatch(place[:-1])
    if not name or not text.endswith(")") or match is None:
        return None
    if not line[0].isspace() and not (match[1].endswith(".py") and match[2]):
        return None
    return name, match[1], int(match[2]) if match[2] and int(match[2]) else None


def _native(text: str) -> Frame:
    """A frame of gdb's as py-spy would name it: the function without arguments, the source or library without its folder.

    A frame of the interpreter whose Python frame gdb knows is that one.
    """
    if " for file " in text and (python := _GDB_PYTHON.search(text)):
        return python[3], python[1], int(python[2]) or None
    head, _, library = text.rpartition(" from ")
    source = None
    if not head:
        head, _, place = text.rpartition(" at ")
        source = _PLACE.fullmatch(place.rpartition("/")[2]) if head else None
    name = (head or text).replace("(anonymous namespace)", "{anonymous}").partition("(")[0].rstrip()
    if source is not None:
        return name or text, source[1], int(source[2]) if source[2] and int(source[2]) else None
    return name or text, library.rpartition("/")[2] if library != text else None, None
