"""What `nvidia-bug-report.sh` gathered on a host, each under the command that printed it: lines of its kernel, and its GPUs.

Upstream: the script as it comes with drivers 450 to 580: sections between rules of `_`, each below `*** FILE` or a command.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from io import BytesIO

from forensics.bundle.artefact import Artefact
from forensics.ingest import SNIFF_BYTES

MOST_BYTES = 1 << 26
_HEADING = b"Start of NVIDIA bug report log file"
_RULE = re.compile(rb"(?m)^_{20,120}\r?$")
_HOST = re.compile(rb"(?m)^uname: Linux (?P<host>[A-Za-z0-9][\w.-]{0,252}) ")
_NAME = re.compile(rb"\s{0,16}(?:\*\*\* )?(?P<name>[^\r\n]{1,200}?):?\r?\n")
_PLACED = re.compile(rb"^\*\*\* ls: .*$", re.MULTILINE)
# What is of this start of the host, not of those before.
_KERNEL = re.compile(rb"\S{0,40}\bdmesg\b|\S{0,40}journalctl(?: -k)? -b(?: -?0)?(?=$| (?!-?\d))|/var/log/kern\.log")
_GPUS = re.compile(rb"\S{0,40}nvidia-smi (?:-q|--query)\b")


def parts_of_report(artefact: Artefact) -> tuple[Artefact, ...]:
    """The sections that are read, as files of their host; nothing where it is no such report."""
    if artefact.stored_bytes > MOST_BYTES or _HEADING not in artefact.begin(SNIFF_BYTES):
        return ()
    content = artefact.begin(MOST_BYTES)
    found = _HOST.search(content)
    host = artefact.host or (found["host"].decode() if found else None)
    return tuple(
        replace(
            artefact, path=f"{artefact.path}/{name}", host=host, open=partial(BytesIO, text), stored_bytes=len(text),
            sha256=None, lines_before=line,
        )
        for name, text, line in _sections(content)
    )  # fmt: skip


def _sections(content: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Name, text and lines above it: the kernel's own buffer, a journal only without one, and all that is queried of GPUs."""
    kernels: list[tuple[str, bytes, int]] = []
    begin = 0
    for rule in [*_RULE.finditer(content), None]:
        end = rule.start() if rule else len(content)
        if (title := _NAME.match(content, begin, end)) and _KERNEL.match(title["name"]):
            kernels.append(("kernel.log", _PLACED.sub(b"", content[title.end() : end]), content.count(b"\n", 0, title.end())))
        elif title and _GPUS.match(title["name"]):
            yield "nvidia-smi.txt", content[title.end() : end], content.count(b"\n", 0, title.end())
        begin = rule.end() if rule else end
    yield from kernels[:1]
