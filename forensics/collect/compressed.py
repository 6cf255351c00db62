"""Files that their processes still write, copied compressed: much of a preallocated file is zero."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from io import FileIO

from forensics.bundle.layout import Status
from forensics.collect.record import Run, now_ns
from forensics.collect.staging import Staging

_CHUNK = 1 << 20


def copied(staging: Staging, run: Run, stream: FileIO, member: str, name: str, most_bytes: int, head: bytes = b"") -> Run:
    """The run that copied a file called `name`: partial where the file is larger than `most_bytes`, else as given.

    `head` was read of it before. Raises OSError when it cannot be read.
    """
    size = os.fstat(stream.fileno()).st_size
    written = staging.write_stream(member, _compressed(stream, most_bytes, head))
    if size > most_bytes:
        run = replace(run, status=Status.PARTIAL, reason=f"{name}: cut at {most_bytes} bytes", truncated=True)
    return replace(run.stored(written), captured_ns=now_ns())


def _compressed(stream: FileIO, most_bytes: int, head: bytes) -> Iterator[bytes]:
    """The first bytes of a file as Zstandard."""
    import zstandard  # loaded when there is something to pack: most collectors have nothing

    packer = zstandard.ZstdCompressor(level=1).compressobj()
    yield packer.compress(head)
    left = most_bytes - len(head)
    while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield packer.compress(chunk)
    yield packer.flush()
