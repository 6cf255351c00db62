"""State, rate and counters of the InfiniBand and RoCE ports in /sys/class/infiniband; two reads make a difference.

Nothing is reset. Reading `hw_counters` may ask the firmware, which on a sick NIC can take for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from forensics.bundle.layout import Status, node_path
from forensics.collect.record import Run, now_ns
from forensics.collect.target import Context

ID = "ib.counters"
_PORT_FACTS = ("state", "phys_state", "rate", "link_layer")
_DEVICE_FACTS = ("fw_ver", "node_guid", "hca_type", "board_id")
_PCIE_FACTS = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


def collect_counters(context: Context, sample: int) -> Iterator[Run]:
    """One read of all ports."""
    root = context.sysfs / "class/infiniband"
    if not _entries(root):
        yield Run(ID, None, Status.NOT_FOUND, f"no InfiniBand or RoCE device ({root} is missing or empty)", sample=sample)
        return
    errors: list[str] = []
    document = {
        "schema": "forensics.ib/1",
        "node": context.node,
        "time_ns": now_ns(),
        "devices": read_devices(root, errors),
    }
    written = context.staging.write_json(node_path(context.node, f"ib/counters-{sample}.json"), document)
    reason = "; ".join(sorted(set(errors))[:8]) or None
    yield Run(ID, None, Status.PARTIAL if errors else Status.OK, reason, sample=sample).stored(written)


def read_devices(root: Path, errors: list[str]) -> dict[str, Any]:
    """State and counters of all devices below `class/infiniband`; what may not be read is added to the errors."""
    return {device.name: _device(device, errors) for device in _entries(root)}


def _device(device: Path, errors: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {name: _text(device / name, errors) for name in _DEVICE_FACTS}
    facts["pci"] = _link_name(device / "device")
    facts["numa_node"] = _number(_text(device / "device/numa_node", errors))
    facts["pcie"] = {name: _text(device / "device" / name, errors) for name in _PCIE_FACTS}
    facts["ports"] = {port.name: _port(port, errors) for port in _entries(device / "ports")}
    return facts


def _port(port: Path, errors: list[str]) -> dict[str, Any]:
    facts: dict[str, Any] = {name: _text(port / name, errors) for name in _PORT_FACTS}
    facts["netdev"] = _text(port / "gid_attrs/ndevs/0", errors)
    for folder in ("counters", "hw_counters"):
        values = {entry.name: _number(_text(entry, errors)) for entry in _entries(port / folder)}
        facts[folder] = {name: value for name, value in values.items() if value is not None}
    return facts


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _text(path: Path, errors: list[str]) -> str | None:
    try:
        return path.read_text("utf-8", "replace").strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:  # many counters are simply not supported by a device
        if isinstance(error, PermissionError):
            errors.append(f"{path.parent.name}: permission denied")
        return None


def _link_name(path: Path) -> str | None:
    try:
        return path.readlink().name
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdecimal() else None
