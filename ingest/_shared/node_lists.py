"""Lists of nodes as Slurm writes them: `gpu-[03-05,9],login1`.

Upstream: src/common/hostlist.c of SchedMD/slurm.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

_MOST = 4096
_NUMBER = re.compile(r"\d{1,9}", re.ASCII)
_LIST = re.compile(r"(?P<stem>[A-Za-z0-9][\w.-]{0,252}?)\[(?P<numbers>\d[\d,-]{0,500})\]|(?P<node>[A-Za-z0-9][\w.-]{0,252})")


def hosts(text: str) -> Iterator[str]:
    """The nodes of `gpu-[03-05,9],login1`, as many as count."""
    yield from islice(_hosts(text), _MOST)


def _hosts(text: str) -> Iterator[str]:
    for part in _LIST.finditer(text):
        if part["node"]:
            yield part["node"]
        for span in part["numbers"].split(",") if part["numbers"] else ():
            first, _, last = span.partition("-")
            if _NUMBER.fullmatch(first) and _NUMBER.fullmatch(last or first):
                numbers = range(int(first), int(last or first) + 1)
                yield from (f"{part['stem']}{number:0{len(first)}d}" for number in numbers)
