"""One artefact without secrets and names, by what it is: text, JSON, an environment, or a binary format that we read and write.

A binary artefact of any other format is left out: what nobody can read nobody can vouch for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from forensics.bundle.artefact import Artefact
from forensics.bundle.redaction import pieces
from forensics.bundle.streams import chunks, first_bytes
from forensics.bundle.summaries import MAGIC as SUMMARY
from forensics.ingest import SNIFF_BYTES, choose
from forensics.ingest.nic_epochs import layout as nic_layout
from forensics.ingest.shim_log import layout as shim_layout
from forensics.recorder import layout as stage_layout
from forensics.sharing.environment import redact_environment
from forensics.sharing.json_text import is_json, redact_json
from forensics.sharing.left_out import LeftOutError
from forensics.sharing.nic_files import redact_epochs
from forensics.sharing.pickled import redact_pickle
from forensics.sharing.scrub import Scrub
from forensics.sharing.shim_logs import redact_shim_log
from forensics.sharing.stage_files import redact_stages

_MOST_BINARY = 1 << 30
_PICKLE = re.compile(rb"\x80[\x02-\x05]")
_WHOLE: tuple[tuple[bytes, Callable[[bytes, Scrub], bytes]], ...] = (
    (shim_layout.MAGIC, redact_shim_log),
    (stage_layout.MAGIC, redact_stages),
    (nic_layout.MAGIC, redact_epochs),
)
_ENCODED = (b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-16
_KNOWN_BINARY = (
    (b"SQLite format 3\0", "an SQLite database"),
    (b"PAR1", "a Parquet file"),
    (SUMMARY, "a summary of ranks: redact what it is made from"),
    (b"\x7fELF", "a program or core dump"),
    (b"PK\x03\x04", "a zip"),
    (b"BZh", "compressed by bzip2"),
    (b"\xfd7zXZ\0", "compressed by xz"),
)


def rewritten(artefact: Artefact, scrub: Scrub) -> Iterator[bytes]:
    """The content in pieces. Raises LeftOutError before the first piece where it is no format that can be rewritten.

    Raises OSError where the artefact breaks off; what was given before is sound.
    """
    with artefact.open() as stream:
        head = first_bytes(stream, SNIFF_BYTES)
    whole = _whole(head)
    if whole is not None:
        yield whole(_content(artefact), scrub)
        return
    _refuse_binary(head)
    with artefact.open() as stream:
        yield from _text_rewriter(head, artefact.path)(chunks(stream), scrub)


def _whole(head: bytes) -> Callable[[bytes, Scrub], bytes] | None:
    if _PICKLE.match(head):
        return redact_pickle
    return next((rewrite for magic, rewrite in _WHOLE if head.startswith(magic)), None)


def _refuse_binary(head: bytes) -> None:
    for magic, words in _KNOWN_BINARY:
        if head.startswith(magic):
            raise LeftOutError(f"{words}: it cannot be rewritten safely")
    ends = head.count(b"\0")
    if head.startswith(_ENCODED) or (ends and not _is_environment(head)):
        raise LeftOutError("binary, and no format that can be rewritten safely")


def _is_environment(head: bytes) -> bool:
    """Whether all that lies between zero bytes is `NAME=value`."""
    entries = [entry for entry in head.split(b"\0")[:-1] if entry]
    return bool(entries) and all(re.match(rb"[A-Za-z_][A-Za-z0-9_]*=", entry) for entry in entries)


def _text_rewriter(head: bytes, path: str) -> Callable[[Iterable[bytes], Scrub], Iterator[bytes]]:
    if is_json(head):
        return redact_json
    known = choose(head, path)
    if b"\0" in head or (known is not None and known.name == "process_environ"):
        return redact_environment
    return _redact_text


def _redact_text(chunks_: Iterable[bytes], scrub: Scrub) -> Iterator[bytes]:
    """A log, without the zero bytes of files that were cut in use: text of two bytes a letter could hide between them."""
    for piece in pieces(chunks_):
        if b"\0" in piece:
            scrub.found("zero_bytes")
            piece = piece.replace(b"\0", b"")
        yield scrub.text(piece.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def _content(artefact: Artefact) -> bytes:
    content = bytearray()
    with artefact.open() as stream:
        for chunk in chunks(stream):
            content += chunk
            if len(content) > _MOST_BINARY:
                raise LeftOutError(f"larger than {_MOST_BINARY} bytes")
    return bytes(content)
