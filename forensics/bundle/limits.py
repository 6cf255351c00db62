"""How much a bundle may ask of the machine that reads it; nothing else bounds what an unknown archive expands to."""

from __future__ import annotations

MAX_MEMBERS = 200_000
"""Files looked at in one input; 8,192 ranks with two dozen files each fit."""

MAX_MEMBER_BYTES = 8 << 30
"""Decompressed size of one file."""

MAX_ARCHIVE_BYTES = 64 << 30
"""Decompressed size of a compressed archive, which is spooled to an unnamed temporary file."""

MAX_RATIO = 500
"""Decompressed over stored bytes, looked at beyond `RATIO_FREE_BYTES`; repetitive JSON stays well below 200."""

RATIO_FREE_BYTES = 64 << 20
"""Size up to which the ratio does not matter: a small file may compress as well as it likes."""

MAX_EXTENDED_HEADER_BYTES = 1 << 20
"""Largest PAX or GNU extended header of a tar: names and a few attributes."""

MAX_MANIFEST_BYTES = 256 << 20
"""Largest bundle.json, collectors.jsonl or SHA256SUMS."""

ZSTD_WINDOW_BYTES = 1 << 27
"""Largest zstd window, which is the decoder's memory; `zstd --long` writes 2^27."""
