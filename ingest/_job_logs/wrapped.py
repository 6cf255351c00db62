"""Lines copied from a terminal: what is longer than it is wide lies on several lines, each but the last exactly as wide.

A mail folds them between words instead, so that none is wider than 80 columns, and so does a narrow window of which somebody
took a picture.

Only lines of watchdogs, NCCL and launchers are put together again: there a cut word or number is a fact lost. Lines of one
width by chance (rulers, tables, progress) are left as they are.
"""

from __future__ import annotations

import re
from itertools import pairwise

_NARROWEST, _WIDEST, _OF_A_MAIL = 60, 512, 80
# What was read from a picture of a window may be narrower than a terminal.
_OF_A_PICTURE = 40
_LEAST_FOLDS = 3
_OPEN = (b"WorkNCCL(", b"WorkHCCL(")
_OF_A_TRACEBACK = re.compile(rb'^ *File "|Traceback \(most(?: recent)?$')
_CUT = re.compile(
    rb"Watchdog|WorkNCCL|\[PG |\[Rank |\[rank\d|NCCL (?:INFO|WARN)|exitcode|monitoredBarrier|running collective|FingerPrint"
    rb"|coordination_service|/job:\w+/replica:|Barrier timed out|at the barrier"
)
_BEGINS = re.compile(
    rb"\[|\s\s|$|[$#] |\d{1,7}(?:: |\|)|[A-Za-z][\w.-]{0,62} {0,40}\| "
    rb"|[\w.-]+@[\w.-]+:|\d{4}-\d\d|[\w.-]+:\d+:\d+ \[|\(\w+ pid=|Traceback |[=-]{8}"
    rb"|[A-Z]\w*(?:Error|Exception)\b"
    # Records that a shipper of logs wrote, and what glog, syslog and logging put in front.
    rb"|\{ ?\"|\"\d{4}-\d\d|[EWIF]\d{4} \d\d:|[A-Z][a-z]{2} [ \d]\d \d\d:|(?:ERROR|WARNING|INFO|DEBUG)\b"
)


def unwrapped(block: bytes) -> bytes:
    """The lines put together; empty lines stand in for those that were taken away, so that numbers stay."""
    lines = block.split(b"\n")
    if width := _folded(lines):
        return _joined(lines, width)
    widths = [*map(len if block.isascii() else _width, lines)]
    width = max(widths)
    if not _NARROWEST <= width <= _WIDEST or widths.count(width) < 2:
        return block
    done: list[bytes] = []
    place = 0
    while place < len(lines):
        end = _end(lines, place, width) if _CUT.search(lines[place]) else place + 1
        done += [b"".join(lines[place:end]), *[b""] * (end - place - 1)]
        place = end
    return b"\n".join(done)


def _folded(lines: list[bytes]) -> int:
    """The width at which a mail folded the lines; 0 where nothing shows that one did, as in what a terminal cut."""
    width = max((_width(line) for line in lines if b" " in line.strip()), default=0)
    if not _OF_A_PICTURE <= width <= _OF_A_MAIL:
        return 0
    folds = [line for line, after in pairwise(lines) if _CUT.search(line) and _is_fold(line, after, width)]
    least = 1 if any(map(_is_open, folds)) else _LEAST_FOLDS
    # A terminal cuts all of them at one width.
    as_wide = sum(_width(line) == width for line in folds)
    return width if len(folds) >= least and as_wide * min(2, least) < len(folds) else 0


def _is_open(line: bytes) -> bool:
    """Whether the description of some work ends on a later line."""
    return any(work in line for work in _OPEN) and line.count(b"(") > line.count(b")")


def _is_fold(line: bytes, following: bytes, width: int) -> bool:
    """Whether the first word of the next line, which is none of its own, had no place in this one."""
    word = following.split(b" ", 1)[0]
    return bool(word) and not _BEGINS.match(following) and _width(line) + 1 + _width(word) > width


def _joined(lines: list[bytes], width: int) -> bytes:
    done: list[bytes] = []
    place = 0
    while place < len(lines):
        end = place + 1
        if _CUT.search(lines[place]) or _OF_A_TRACEBACK.search(lines[place]):
            while end < len(lines) and _is_fold(lines[end - 1], lines[end], width):
                end += 1
        done += [b" ".join(lines[place:end]), *[b""] * (end - place - 1)]
        place = end
    return b"\n".join(done)


def _end(lines: list[bytes], place: int, width: int) -> int:
    """Behind the last part of the line that begins at `place`."""
    end = place + 1
    while end < len(lines) and _goes_on(lines[end - 1], lines[end], width):
        end += 1
    return end


def _goes_on(line: bytes, following: bytes, width: int) -> bool:
    """Whether a line was cut; one that ends like a message may have that length by chance."""
    return _width(line) == width and not line.endswith((b".", b")", b":", b"}")) and not _BEGINS.match(following)


def _width(line: bytes) -> int:
    """Columns: those who draw bars use characters of several bytes."""
    return len(line) if line.isascii() else len(line.decode("utf-8", "replace"))
