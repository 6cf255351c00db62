"""Files that their processes still write, copied compressed: much of a preallocated file is zero."""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO

_CHUNK = 1 << 20


def compressed(stream: FileIO, most_bytes: int, head: bytes = b"") -> Iterator[bytes]:
    """The first `most_bytes` of a file as Zstandard; `head` was read of it before. Raises OSError when it cannot be read."""
    import zstandard  # loaded when there is something to pack: most collectors have nothing

    packer = zstandard.ZstdCompressor(level=1).compressobj()
    yield packer.compress(head)
    left = most_bytes - len(head)
    while left > 0 and (chunk := stream.read(min(_CHUNK, left))):
        left -= len(chunk)
        yield packer.compress(chunk)
    yield packer.flush()
