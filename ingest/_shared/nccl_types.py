"""ncclDataType_t by number: name and size (nccl.h of NCCL 2.14 to 2.31)."""

from __future__ import annotations

from typing import Final

DTYPES: Final = (
    *("int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16"),
    *("float8_e4m3fn", "float8_e5m2"),
)
"""Names."""
DTYPE_BYTES: Final = (1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1)
"""Bytes of an element."""
