"""Makes fixtures/samples/shim_log: `python -m tests.native.shim_sample`.

The writer's smallest log has a megabyte; the sample keeps the entries in use, which is what another writer might have made.
"""

from __future__ import annotations

import tempfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from forensics.ingest.shim_log import layout
from tests.native.shim_jobs import HERE, RING, ROOT, compile_c, files, run

KEPT = {layout.CLOCKS: 8, layout.COMMS: 2, layout.PROXY_OPS: 4, layout.QUEUE_PAIRS: 1, layout.EPOCHS: 128}


def main() -> None:
    """Run the writer and store what it wrote, cut down."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compile_c(folder / "sample", [HERE / "sample.c", *RING])
        run([program], folder / "logs", None, FORENSICS_SHIM_BYTES="1048576", RANK="1", WORLD_SIZE="4", LOCAL_RANK="1")
        (path,) = files(folder / "logs")
        target = ROOT / "fixtures/samples/shim_log/one_of_everything.frx"
        target.write_bytes(smaller(path.read_bytes()))


def smaller(content: bytes) -> bytes:
    """The log with as few entries as are in use, rings of the smallest size that holds their records."""
    head = np.frombuffer(content[: layout.HEAD_BYTES], layout.HEAD).copy()
    before = head["sections"][0].copy()
    parts = []
    offset = 2 * layout.HEAD_BYTES
    for section in head["sections"][0][: int(head["section_count"][0])]:
        kept = kept_bytes(content, before, int(section["kind"]))
        section["offset"], section["count"] = offset, len(kept) // int(section["entry_bytes"])
        parts.append(kept.ljust(-(-len(kept) // 64) * 64, b"\0"))
        offset += len(parts[-1])
    head["file_bytes"] = offset
    head["checksum"] = 0
    head["checksum"] = zlib.crc32(head.tobytes())
    return b"".join([head.tobytes(), content[layout.HEAD_BYTES : 2 * layout.HEAD_BYTES], *parts])


def kept_bytes(content: bytes, sections: Any, kind: int) -> bytes:
    """Entries of one section."""
    if kind in KEPT:
        place = start(sections, kind)
        return content[place[0] : place[0] + KEPT[kind] * place[1]]
    rings, records = compacted(content, sections)
    return rings if kind == layout.RINGS else records


def start(sections: Any, kind: int) -> tuple[int, int, int]:
    """Offset, entry size and count of a section."""
    (found,) = [section for section in sections if section["kind"] == kind]
    return int(found["offset"]), int(found["entry_bytes"]), int(found["count"])


def compacted(content: bytes, sections: Any) -> tuple[bytes, bytes]:
    """Rings that were used, each with the smallest power of two of records."""
    begin, _, count = start(sections, layout.RINGS)
    records = start(sections, layout.RECORDS)[0]
    rings = np.frombuffer(content, layout.RING, count, begin)
    rings = rings[rings["thread"] > 0].copy()
    kept = []
    first = 0
    for ring in rings:
        size = 1 << max(3, (int(ring["head"]) - 1).bit_length())
        place = records + int(ring["first"]) * 64
        kept.append(content[place : place + size * 64])
        ring["first"], ring["records"] = first, size
        first += size
    return rings.tobytes(), b"".join(kept)


if __name__ == "__main__":
    main()
