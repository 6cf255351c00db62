"""Files of stage vectors without secrets and names: texts are written anew, numbers are carried over."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import orjson

from forensics.ingest.interface import Problem
from forensics.ingest.stage_vectors.sections import Section, sections
from forensics.recorder import layout
from forensics.sharing.left_out import LeftOutError
from forensics.sharing.scrub import Scrub

_SLOTS_FIELDS = slice(4, 7)
_TEXT_BYTES_FIELD = 11


def redact_stages(content: bytes, scrub: Scrub) -> bytes:
    """The same sections. Raises LeftOutError where not even the first one can be read."""
    made = bytearray()
    for item in sections(content):
        if isinstance(item, Problem):
            if item.fatal:
                raise LeftOutError(item.message)
            break
        made += b"".join(_section(content, len(made), item, scrub))
    return bytes(made)


def _section(content: bytes, place: int, section: Section, scrub: Scrub) -> Iterator[bytes]:
    fields = list(layout.HEADER.unpack_from(content, place))
    text = _header_text(section, scrub)
    fields[_TEXT_BYTES_FIELD] = len(text)
    yield layout.HEADER.pack(*fields).ljust(layout.HEADER_BYTES, b"\0")
    yield text.ljust(layout.TEXT_BYTES, b"\0")
    names = b"".join(_names(content[place + layout.NAMES_OFFSET :], min(fields[-1], layout.NAMES), scrub))
    yield names.ljust(layout.SLOTS_OFFSET - layout.NAMES_OFFSET, b"\0")
    start = place + layout.SLOTS_OFFSET
    _, slot, slots = fields[_SLOTS_FIELDS]
    yield content[start : start + slot * slots]


def _header_text(section: Section, scrub: Scrub) -> bytes:
    """What the reader takes of the header's text; too long a one goes without the role."""
    texts = {"host": section.host, "role": section.role, "device": section.device}
    found = {key: scrub.text(value) for key, value in texts.items() if value is not None}
    made = orjson.dumps(found)
    return made if len(made) <= layout.TEXT_BYTES else orjson.dumps({"host": found.get("host", "")[:64]})


def _names(table: bytes, count: int, scrub: Scrub) -> Iterator[bytes]:
    room = layout.NAME.size - struct.calcsize("<HH")
    for at in range(count):
        flags, size, raw = layout.NAME.unpack_from(table, at * layout.NAME_BYTES)
        name = scrub.text(raw[: min(size, room)].decode("utf-8", "replace")).encode()[:room].decode("utf-8", "ignore").encode()
        yield layout.NAME.pack(flags, len(name), name)
