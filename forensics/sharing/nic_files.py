"""Files of NIC epochs without secrets and names: the description is written anew, runs and their values are carried over."""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
import orjson

from forensics.ingest.nic_epochs import layout
from forensics.sharing.json_text import redact_json
from forensics.sharing.left_out import LeftOutError
from forensics.sharing.scrub import Scrub

_STEP = 8


def redact_epochs(content: bytes, scrub: Scrub) -> bytes:
    """The same capture; only bytes that a run names are carried over. Raises LeftOutError for a damaged head."""
    head, text, runs = _parts(content)
    shown = b"".join(redact_json([text], scrub))
    shown = shown.ljust(-(-len(shown) // _STEP) * _STEP)
    values = io.BytesIO()
    first = layout.HEAD.itemsize + len(shown) + runs.nbytes
    moved = _fields(runs)
    for place, run in enumerate(runs):
        begin, size = int(run["offset"]), int(run["count"]) * int(run["width"])
        moved[place]["offset"] = first + values.tell()
        values.write(content[begin : begin + size])
        if begin + size > len(content):  # cut: what follows would move into the hole
            break
    head = _fields(head)
    head["text_bytes"], head["file_bytes"] = len(shown), max(first + values.tell(), _end(moved))
    begin = head.tobytes()[:-4]
    head["checksum"] = zlib.crc32(begin + shown + moved.tobytes())
    return bytes(head.tobytes() + shown + moved.tobytes() + values.getvalue())


def _fields(source: Any) -> Any:
    """A copy of the fields; bytes between them are zero."""
    made = np.zeros(np.shape(source), source.dtype)
    for name in made.dtype.names or ():
        made[name] = source[name]
    return made


def _end(runs: Any) -> int:
    return max((int(run["offset"]) + int(run["count"]) * int(run["width"]) for run in runs), default=0)


def _parts(content: bytes) -> tuple[Any, bytes, Any]:
    """Head, description and table of runs, whose checksum holds."""
    if len(content) < layout.HEAD.itemsize:
        raise LeftOutError("cut inside its head")
    head = np.frombuffer(content, layout.HEAD, 1)[0]
    begin = layout.HEAD.itemsize
    table = begin + int(head["text_bytes"])
    end = table + int(head["runs"]) * layout.RUN.itemsize
    if int(head["major"]) != layout.MAJOR or end > len(content):
        raise LeftOutError("its layout is not known, or it is cut inside its tables")
    if zlib.crc32(content[begin:end], zlib.crc32(content[: begin - 4])) != int(head["checksum"]):
        raise LeftOutError("its head or tables were overwritten: the checksum does not match")
    text = content[begin:table].rstrip()
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise LeftOutError("its description is not JSON") from error
    return head, text, np.frombuffer(content, layout.RUN, int(head["runs"]), table)
