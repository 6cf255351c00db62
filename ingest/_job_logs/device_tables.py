"""Which number a device has on its host, by a table of nvidia-smi that somebody pasted with the log.

`nvidia-smi --query-gpu=index,...,pci.bus_id --format=csv` has one row a device below the names of its columns.
"""

from __future__ import annotations

import re

_COLUMN = "pci.bus_id"
WORDS = (_COLUMN,)
_ADDRESS = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.[0-7])?(?![\w:])")


class DeviceTables:
    """Reads tables; `is_open` while rows may follow."""

    def __init__(self) -> None:
        self._tables: list[dict[str, int]] = []
        self._columns: list[str] = []
        self.is_open = False

    def feed(self, line: str) -> None:
        """Take one line."""
        if _COLUMN in line and "index" in line and "--query" not in line:
            self._columns = [name.strip() for name in line.split(",")]
            self._tables.append({})
            self.is_open = True
        elif self.is_open:
            cells = dict(zip(self._columns, (cell.strip() for cell in line.split(",")), strict=False))
            index, address = cells.get("index", ""), bus_address(cells.get(_COLUMN, ""))
            self.is_open = index.isdecimal() and bool(address)
            if self.is_open:
                self._tables[-1][address] = int(index)

    def number(self, address: str) -> tuple[int, int] | None:
        """Number of a device and how many there are, where the whole of one host is listed, in one table or in equal ones."""
        table = self._tables[0] if self._tables else {}
        is_whole = sorted(table.values()) == list(range(len(table))) and all(other == table for other in self._tables)
        return (table[address], len(table)) if is_whole and address in table else None


def bus_address(text: str) -> str:
    """A PCI address as NCCL writes it: `8b000` for `0000:8b:00`; empty where there is none."""
    found = _ADDRESS.search(text)
    return f"{int(found[1] or '0', 16):x}{found[2]}{found[3]}0".lstrip("0").lower() if found else ""
