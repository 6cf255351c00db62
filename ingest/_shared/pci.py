"""Addresses of devices on the PCI bus as the kernel writes them; NVIDIA's tools give the domain eight digits."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"([\da-f]{4,8}):([\da-f]{2}):([\da-f]{2})\.(\d)", re.IGNORECASE)


def pci_address(text: str) -> str | None:
    """The address, or None for what is none: `00000000:1B:00.0` is `0000:1b:00.0`."""
    found = _ADDRESS.fullmatch(text)
    return f"{int(found[1], 16):04x}:{found[2]}:{found[3]}.{found[4]}".lower() if found else None
