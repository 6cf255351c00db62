"""One file of evidence, wherever it lies: a member of a bundle, a file of a directory, a loose file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import BinaryIO

from forensics.bundle.streams import first_bytes
from forensics.vocabulary import GUESSED


@dataclass(frozen=True, slots=True)
class Shard:
    """What an artefact gave where it was read: `reading` opens the record of it, `tables` the Parquet file of each table."""

    reading: Callable[[], BinaryIO]
    tables: Mapping[str, Callable[[], BinaryIO]]


@dataclass(frozen=True, slots=True)
class Artefact:
    """A readable artefact with what is known of its origin before its content is looked at.

    `path` is its name for people and for evidence lines. `rank` comes from the manifest, else from the path, and
    `rank_method` says which (`manifest`, `path`, `guessed` for a bare number, or None). `sample` counts repeated captures of
    the same thing. `pid` and `is_child` are set where the manifest tells. `captured_ns` is CLOCK_REALTIME (ns) at capture,
    from the manifest. `numbered` is set when `sample` is the manifest's or the bundle's layout's, and not a number that the
    file's name happens to have. `modified_ns` is the date of a file that no manifest describes.
    `lines_before` are those of the file in front of a part of it that is read by itself; None for a whole file.
    `shard` is set where only its columns are there; `open` then raises OSError, and size and digest are those it had.
    `summary` is the file in which a section stands for it; `open` gives that section, and digest and size are those it had.
    `newest_ns` is set where only the end of a history is to be read: so many ns before its last sign of life.
    `stored_bytes` is the size in the container; `open` gives the bytes, decompressed and bounded.
    """

    path: str
    stored_bytes: int
    open: Callable[[], BinaryIO]
    sha256: str | None = None
    host: str | None = None
    rank: int | None = None
    rank_method: str | None = None
    pid: int | None = None
    is_child: bool | None = None
    sample: int | None = None
    collector: str | None = None
    captured_ns: int | None = None
    numbered: bool = False
    modified_ns: int | None = None
    lines_before: int | None = None
    shard: Shard | None = None
    summary: str | None = None
    newest_ns: int | None = None

    @property
    def has_stated_rank(self) -> bool:
        """Whether a word or a manifest, and not a bare number, says of which rank it is."""
        return self.rank is not None and self.rank_method != GUESSED

    def begin(self, most: int) -> bytes:
        """So many of its first bytes; empty where it cannot be read: its own reading warns of that."""
        try:
            with self.open() as stream:
                return first_bytes(stream, most)
        except OSError:
            return b""
