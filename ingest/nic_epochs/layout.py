"""Layout 1 of a file of NIC epochs, field by field as on docs/formats/nic-epochs.md. All numbers are little-endian."""

from __future__ import annotations

from typing import Final

import numpy as np

MAGIC: Final = b"FRXEPOC\n"
MAJOR: Final = 1
MINOR: Final = 0
DIRECTIONS: Final = ("send", "recv")
WIDTHS: Final = (1, 2, 4, 8)

HEAD: Final = np.dtype(
    {
        "names": ["magic", "major", "minor", "text_bytes", "file_bytes", "runs", "checksum"],
        "formats": ["S8", "<u2", "<u2", "<u4", "<u8", "<u4", "<u4"],
        "offsets": [0, 8, 10, 12, 16, 24, 28],
        "itemsize": 32,
    }
)
"""The first 32 bytes."""

RUN: Final = np.dtype(
    {
        "names": ["queue_pair", "direction", "width", "first_epoch", "count", "offset"],
        "formats": ["<u4", "u1", "u1", "<i8", "<u8", "<u8"],
        "offsets": [0, 4, 5, 8, 16, 24],
        "itemsize": 32,
    }
)
"""One run of epochs."""
