"""Why clocks of a GPU are held down, by the bits of the driver's mask: `nvmlClocksEventReason*` of nvml.h."""

from __future__ import annotations

from collections.abc import Iterator

_BITS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clocks_setting",
}


def by_mask(mask: int) -> Iterator[str]:
    """Names of the reasons, as nvidia-smi calls them."""
    return (reason for bit, reason in _BITS.items() if mask & bit)
