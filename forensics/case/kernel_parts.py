"""Lines of a kernel in a ticket, below the command that printed them: those that the reader of a job's log does not know.

What both know stays with the log, which tells the ranks of the processes and devices that such lines name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from io import BytesIO

from forensics.bundle.artefact import Artefact
from forensics.ingest import SNIFF_BYTES, choose
from forensics.ingest._job_logs.events import PATTERNS
from forensics.ingest._job_logs.nodes import OF_KERNEL
from forensics.ingest._job_logs.patterns import matches
from forensics.ingest._shared.prompts import command_host

_KNOWN = tuple(each for each in PATTERNS if each.kind in OF_KERNEL)


def kernel_part(artefact: Artefact, lines: Sequence[bytes]) -> Iterator[Artefact]:
    """The part below its first line, a command or a fence, where a kernel wrote it: without what the log is read for."""
    below = choose(b"".join(lines[1:])[:SNIFF_BYTES], artefact.path) if len(lines) > 1 else None
    if below is None or below.name != "kernel_log":
        return
    texts = [line.decode("utf-8", "replace").rstrip() for line in lines]
    own = [False, *(not any(matches(_KNOWN, text)) for text in texts[1:])]
    if any(mine and text for mine, text in zip(own, texts, strict=True)):
        content = b"".join(line if mine else b"\n" for mine, line in zip(own, lines, strict=True))
        host = artefact.host or command_host(texts[0])
        yield replace(artefact, open=partial(BytesIO, content), stored_bytes=len(content), host=host)
