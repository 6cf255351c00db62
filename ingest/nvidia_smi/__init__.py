"""State, clocks, errors and processes of a host's GPUs by nvidia-smi, as XML or text (docs/formats/nvidia-smi.md)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import Lines, from_first_character, parse_json
from forensics.ingest._shared.pci import pci_address
from forensics.ingest._shared.values import integer
from forensics.ingest.interface import Batch, Ingester, Item, Problem
from forensics.ingest.nvidia_smi.diagnostics import MOST_BYTES, failed_in_document, failed_tests, is_diagnostics, is_document
from forensics.ingest.nvidia_smi.document import SmiGpu, SmiProcess, read_gpus
from forensics.ingest.nvidia_smi.health import failed_health, is_health
from forensics.ingest.nvidia_smi.nvlinks import is_link_status, read_links
from forensics.ingest.nvidia_smi.text import is_text, read_texts

_NUMBER = re.compile(r"(-?\d{1,15}(?:\.\d{1,6})?)\s*(%|C|W|MHz|MiB|us|x)?$")
_SCALES = {"W": 1_000.0, "MiB": float(1 << 20)}
_YES = {"Yes": 1, "No": 0}
_LINK = "pci/pci_gpu_link_info"
_POWER = ("gpu_power_readings", "power_readings")
# Counter and the paths where drivers keep it, the first that has a number counts.
_READINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("pcie_gen", (f"{_LINK}/pcie_gen/current_link_gen",)),
    ("pcie_gen_max", (f"{_LINK}/pcie_gen/max_link_gen",)),
    ("pcie_width", (f"{_LINK}/link_widths/current_link_width",)),
    ("pcie_width_max", (f"{_LINK}/link_widths/max_link_width",)),
    ("pcie_replays", ("pci/replay_counter",)),
    ("utilization_percent", ("utilization/gpu_util",)),
    ("memory_utilization_percent", ("utilization/memory_util",)),
    ("memory_bytes", ("fb_memory_usage/total",)),
    ("memory_used_bytes", ("fb_memory_usage/used",)),
    ("temperature_c", ("temperature/gpu_temp",)),
    ("memory_temperature_c", ("temperature/memory_temp",)),
    ("temperature_margin_c", ("temperature/gpu_temp_tlimit",)),
    ("temperature_slowdown_c", ("temperature/gpu_temp_slow_threshold",)),
    (
        "power_mw",
        tuple(f"{section}/{name}" for section in _POWER for name in ("power_draw", "average_power_draw", "instant_power_draw")),
    ),
    (
        "power_limit_mw",
        tuple(
            f"{section}/{name}" for section in _POWER for name in ("enforced_power_limit", "current_power_limit", "power_limit")
        ),
    ),
    ("power_limit_default_mw", tuple(f"{section}/default_power_limit" for section in _POWER)),
    ("power_limit_max_mw", tuple(f"{section}/max_power_limit" for section in _POWER)),
    ("clock_sm_mhz", ("clocks/sm_clock", "clocks/graphics_clock")),
    ("clock_sm_max_mhz", ("max_clocks/sm_clock", "max_clocks/graphics_clock")),
    ("clock_memory_mhz", ("clocks/mem_clock",)),
    ("clock_memory_max_mhz", ("max_clocks/mem_clock",)),
    ("retired_pages_single_bit", ("retired_pages/multiple_single_bit_retirement/retired_count",)),
    ("retired_pages_double_bit", ("retired_pages/double_bit_retirement/retired_count",)),
    ("retired_pages_pending", ("retired_pages/pending_retirement",)),
    ("remapped_rows_corrected", ("remapped_rows/remapped_row_corr",)),
    ("remapped_rows_uncorrected", ("remapped_rows/remapped_row_unc",)),
    ("remapped_rows_pending", ("remapped_rows/remapped_row_pending",)),
    ("remapped_rows_failed", ("remapped_rows/remapped_row_failure",)),
)
# Errors by memory are added up; drivers before Ampere give one total.
_PARTS = {
    "corrected": (("dram_correctable", "sram_correctable"), "single_bit/total"),
    "uncorrected": (
        ("dram_uncorrectable", "sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded"),
        "double_bit/total",
    ),
}
_PENDING = {
    "retired_pages_pending": "a page waits for its retirement",
    "remapped_rows_pending": "a row waits for its remapping",
    "remapped_rows_failed": "the remapping of a row failed",
}
_REASON = re.compile(r"clocks_(?:throttle|event)_reasons/clocks_(?:throttle|event)_reason_(\w+)$")
_REASON_TIME = re.compile(r"clocks_event_reasons_counters/clocks_event_reasons_counters_(\w+)$")
_SAME_REASON = {
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
}
_DRIVER = re.compile(rb"(?:<driver_version>|Driver Version *: *)(\d{1,4}(?:\.\d{1,4}){1,3})(?=<|\s)")
_HEAD = 4096
# What both forms print of a reading that the driver could not get; a board without a fan has `N/A`.
_UNREAD = re.compile(r"ERR!$|\[?Unknown Error\]?$")
_READ = {
    "temperature/gpu_temp": "temperature",
    "power_readings/power_draw": "power",
    "gpu_power_readings/power_draw": "power",
    "gpu_power_readings/instant_power_draw": "power",
    "fb_memory_usage/used": "memory in use",
    "utilization/gpu_util": "utilization",
    "ecc_errors/volatile/double_bit/total": "ECC errors",
}
_LOST = re.compile(r"\[?GPU (?:is lost|requires reset)\]?$", re.IGNORECASE)
# Bytes per second of one lane after its coding.
_LANE = {1: 250e6, 2: 500e6, 3: 984.6e6, 4: 1_969e6, 5: 3_938e6, 6: 7_563e6}


def sniff(head: bytes, path: str) -> int:
    """XML whose outermost element is nvidia-smi's; or one of its forms for readers."""
    if (
        head[:1] not in (b"<", b"{")
        and b"\0" not in head
        and any(is_form(head.decode("utf-8", "replace")) for is_form in (is_text, is_link_status, is_diagnostics, is_health))
    ):
        return 90
    if is_document(head):
        return 95
    return 95 if from_first_character(head)[:5] == b"<?xml" and b"<nvidia_smi_log" in head[:2048] else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """Devices, links, readings, throttle reasons and processes of each GPU, and a problem where the document ends early."""
    found = False
    with artefact.open() as stream:
        head = stream.read(_HEAD)
    text = head.decode("utf-8", "replace")
    if is_link_status(text):
        yield from _links(artefact)
        return
    if is_document(head):
        yield from _failed_in_document(artefact)
        return
    if is_diagnostics(text):
        yield from _failed(artefact, failed_tests(Lines(artefact)))
        return
    if is_health(text):
        yield from _failed(artefact, failed_health(Lines(artefact)), "health check of its")
        return
    driver = _DRIVER.search(head)
    yield from config_batches({"gpu.driver_version": driver[1].decode() if driver else None})
    is_xml = from_first_character(head).startswith(b"<")
    for gpu in read_gpus(artefact) if is_xml else read_texts(Lines(artefact)):
        if isinstance(gpu, Problem):
            yield gpu
            found = True
        else:
            yield from _gpu(artefact, gpu)
            found = True
    if not found:
        yield Problem("names no GPU", "line=1")


def _links(artefact: Artefact) -> Iterator[Batch]:
    """Counters alone: the devices themselves are described by the other forms."""
    lines = Lines(artefact)
    for number, readings in read_links(lines).items():
        yield _counters(artefact, f"GPU-{number}", readings)


def _failed_in_document(artefact: Artefact) -> Iterator[Batch | Problem]:
    """The tests of a document, which has one place, its beginning."""
    document = parse_json(artefact.begin(MOST_BYTES))
    if isinstance(document, Problem):
        yield document
    else:
        yield from _failed(artefact, ((1, number, test) for number, test in failed_in_document(document)))


def _failed(artefact: Artefact, tests: Iterable[tuple[int, int, str]], what: str = "test") -> Iterator[Batch]:
    """What DCGM's tests found, by line, GPU and name; one that passed proves little."""
    for line, number, test in tests:
        said = {
            "locator": line,
            "device": f"GPU-{number}",
            "kind": "test_failed",
            "text": f"DCGM's {what} {test or 'state'} failed",
        }
        yield Batch("device_events", {**{name: [value] for name, value in said.items()}, "time_ns": [artefact.captured_ns]})


def _gpu(artefact: Artefact, gpu: SmiGpu) -> Iterator[Batch]:
    readings = _readings(gpu.texts)
    device, lanes = f"GPU-{gpu.index if gpu.index >= 0 else gpu.address}", _LANE.get(readings.get("pcie_gen_max", 0))
    yield Batch("devices", {name: [value] for name, value in _device(gpu, device).items()})
    if lanes and (width := readings.get("pcie_width_max")):
        rate = round(lanes * width)
        yield Batch("links", {"device_a": [device], "device_b": ["host"], "kind": ["pcie"], "rate_bytes_per_s": [rate]})
    for process in gpu.processes:
        memory, pid = _number(process.texts.get("used_memory")), integer(process.texts.get("pid"))
        if memory is not None and pid is not None and _computes(process):
            readings[f"process_memory_bytes.{pid}"] = memory
    yield _counters(artefact, device, readings)
    yield from _events(artefact, device, gpu, readings)


def _device(gpu: SmiGpu, device: str) -> dict[str, Any]:
    return {
        "device": device,
        "kind": "gpu",
        "model": gpu.texts.get("product_name"),
        "uuid": gpu.texts.get("uuid"),
        "pci": pci_address((gpu.address or gpu.texts.get("pci/pci_bus_id", "")).strip()),
        "rank": None,
        "state": gpu.texts.get("performance_state"),
    }


def _readings(texts: Mapping[str, str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for counter, paths in _READINGS:
        values = (_number(texts.get(path)) for path in paths)
        value = next((value for value in values if value is not None), None)
        if value is not None:
            found[counter] = value
    for since in ("volatile", "aggregate"):
        found |= _errors(texts, since)
    for path, text in texts.items():
        match, value = _REASON_TIME.match(path), _number(text)
        if match and value is not None:
            found[f"throttled_us.{_SAME_REASON.get(match[1], match[1])}"] = value
    return found


def _errors(texts: Mapping[str, str], since: str) -> dict[str, int]:
    """ECC errors since the driver was loaded (volatile) or ever (aggregate)."""
    found = {}
    for kind, (parts, total) in _PARTS.items():
        values = [_number(texts.get(f"ecc_errors/{since}/{part}")) for part in parts]
        known = [value for value in values if value is not None]
        value = sum(known) if known else _number(texts.get(f"ecc_errors/{since}/{total}"))
        if value is not None:
            found[f"ecc_{since}_{kind}"] = value
    return found


def _number(text: str | None) -> int | None:
    """A whole number in the unit of its counter: watts become milliwatts, MiB bytes; None for what is not available."""
    if text is None or text in _YES:
        return _YES.get(text or "")
    match = _NUMBER.match(text)
    return round(float(match[1]) * _SCALES.get(match[2] or "", 1.0)) if match else None


def _computes(process: SmiProcess) -> bool:
    """Whether it has a compute context: types are C, G, C+G, and M+C below the MPS server."""
    return "C" in process.texts.get("type", "C")


def _counters(artefact: Artefact, device: str, readings: Mapping[str, int]) -> Batch:
    count = len(readings)
    return Batch(
        "counters",
        {
            "device": [device] * count,
            "counter": list(readings),
            "sample": [artefact.sample or 0] * count,
            "time_ns": [artefact.captured_ns] * count,
            "value": list(readings.values()),
        },
    )


def _events(artefact: Artefact, device: str, gpu: SmiGpu, readings: Mapping[str, int]) -> Iterator[Batch]:
    columns: dict[str, list[Any]] = defaultdict(list)
    for line, kind, code, text in _event_rows(gpu, readings):
        columns["locator"].append(line)
        columns["kind"].append(kind)
        columns["code"].append(code)
        columns["text"].append(text)
    count = len(columns["kind"])
    if count:
        yield Batch("device_events", {**columns, "device": [device] * count, "time_ns": [artefact.captured_ns] * count})


def _event_rows(gpu: SmiGpu, readings: Mapping[str, int]) -> Iterator[tuple[int, str, int | None, str]]:
    """(line, kind, code, text) of throttle reasons that are active, states that want a reset, and compute processes."""
    for path, text in gpu.texts.items():
        match = _REASON.match(path)
        if match and text == "Active":
            yield gpu.line, "throttle", None, match[1]
    for counter, meaning in _PENDING.items():
        if readings.get(counter):
            yield gpu.line, counter, None, meaning
    if lost := next((text for text in gpu.texts.values() if _LOST.match(text)), None):
        yield gpu.line, "gpu_lost", None, lost.strip("[]")
    elif unread := sorted({name for path, name in _READ.items() if _UNREAD.match(gpu.texts.get(path, ""))}):
        yield gpu.line, "reading_failed", None, ", ".join(unread)
    for process in gpu.processes:
        pid = integer(process.texts.get("pid"))
        if pid is not None and 0 <= pid < 1 << 31 and _computes(process):
            yield process.line, "process", pid, _program(process.texts.get("process_name", ""))


def _program(name: str) -> str:
    """The program without its arguments: newer drivers give whole command lines, which may hold anything."""
    words = name.split()
    return words[0].rpartition("/")[2][:64] if words else "unknown"


INGESTER = Ingester("nvidia_smi", "nvidia_smi", sniff, rows, most=95)
