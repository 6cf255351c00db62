"""Metrics of dcgm-exporter that are readings of GPUs. Upstream: `etc/default-counters.csv` of NVIDIA/dcgm-exporter."""

from __future__ import annotations

from collections.abc import Mapping

DCGM_READINGS: Mapping[str, tuple[str, int]] = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_percent", 1),
    "DCGM_FI_DEV_FB_USED": ("memory_used_bytes", 1 << 20),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_c", 1),
    "DCGM_FI_DEV_MEMORY_TEMP": ("memory_temperature_c", 1),
    "DCGM_FI_DEV_POWER_USAGE": ("power_mw", 1000),
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": ("power_limit_mw", 1000),
    "DCGM_FI_DEV_SM_CLOCK": ("clock_sm_mhz", 1),
    "DCGM_FI_DEV_MEM_CLOCK": ("clock_memory_mhz", 1),
}
"""Counter, and factor to its unit: mW, bytes, MHz, as of nvidia-smi."""
