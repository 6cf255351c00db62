"""The forms of nvidia-smi for readers, as the texts of its XML: `-q`, the table without options, and the line of a lost GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from forensics.ingest.nvidia_smi.document import MAX_GPUS, MAX_TEXT, MAX_TEXTS, SmiGpu, SmiProcess

_LINK = "pci/pci_gpu_link_info"
# Where the XML has another name than the text in lower case with underscores.
_SAME = {
    "pci/gpu_link_info/pcie_generation/current": f"{_LINK}/pcie_gen/current_link_gen",
    "pci/gpu_link_info/pcie_generation/max": f"{_LINK}/pcie_gen/max_link_gen",
    "pci/gpu_link_info/link_width/current": f"{_LINK}/link_widths/current_link_width",
    "pci/gpu_link_info/link_width/max": f"{_LINK}/link_widths/max_link_width",
    "pci/replays_since_reset": "pci/replay_counter",
    "gpu_uuid": "uuid",
    "utilization/gpu": "utilization/gpu_util",
    "utilization/memory": "utilization/memory_util",
    "temperature/gpu_current_temp": "temperature/gpu_temp",
    "temperature/memory_current_temp": "temperature/memory_temp",
    "temperature/gpu_t.limit_temp": "temperature/gpu_temp_tlimit",
    "temperature/gpu_slowdown_temp": "temperature/gpu_temp_slow_threshold",
    "gpu_power_readings/instantaneous_power_draw": "gpu_power_readings/instant_power_draw",
    "clocks/graphics": "clocks/graphics_clock",
    "clocks/sm": "clocks/sm_clock",
    "clocks/memory": "clocks/mem_clock",
    "max_clocks/graphics": "max_clocks/graphics_clock",
    "max_clocks/sm": "max_clocks/sm_clock",
    "max_clocks/memory": "max_clocks/mem_clock",
    "remapped_rows/correctable_error": "remapped_rows/remapped_row_corr",
    "remapped_rows/uncorrectable_error": "remapped_rows/remapped_row_unc",
    "remapped_rows/pending": "remapped_rows/remapped_row_pending",
    "remapped_rows/remapping_failure_occurred": "remapped_rows/remapped_row_failure",
    "retired_pages/single_bit_ecc": "retired_pages/multiple_single_bit_retirement/retired_count",
    "retired_pages/double_bit_ecc": "retired_pages/double_bit_retirement/retired_count",
    "retired_pages/pending_page_blacklist": "retired_pages/pending_retirement",
}
_REASON = re.compile(r"(clocks_(?:throttle|event)_reason)s/(?:\w+/)?(\w+)$")
_PCI = r"([\da-fA-F]{4,8}:[\da-fA-F]{2}:[\da-fA-F]{2}\.\d)"
_GPU = re.compile(rf"GPU {_PCI}\s*$")
_ATTACHED = re.compile(r"Attached GPUs +: (\d{1,4})\s*$")
_ENTRY = re.compile(r"( *)(\S.{0,80}?)(?: +: (.*))?$")
# Newer drivers put the number of the GPU in front of its address.
_LOST = re.compile(rf"Unable to determine the device handle for (?:GPU|gpu) ?(?:\d{{1,3}}: )?{_PCI}: *(.{{0,120}})")
# Not where a container, or the user, may not see it.
_GONE = re.compile(r"(?:unknown error|(?:the )?gpu is lost|gpu requires reset|timeout)", re.IGNORECASE)
_NAMED = re.compile(rf"\| +(\d{{1,3}}) +(\S.*?) +(?:On|Off|N/A|ERR!) *\| *{_PCI} *\S* *\| *(\S+) *\|")
_STATE = re.compile(
    r"\| *(?:N/A|\d+%|ERR!) +(\d+C|ERR!|N/A) +(P\d+|ERR!) +(\d+W|N/A|ERR!) */ +(\d+W|N/A|ERR!) *"
    r"\| *(\d+MiB|ERR!|N/A) */ +(\d+MiB|ERR!|N/A) *\| *(\d+%|ERR!|N/A) "
)
_STATES = (
    *("temperature/gpu_temp", "performance_state", "power_readings/power_draw", "power_readings/power_limit"),
    *("fb_memory_usage/used", "fb_memory_usage/total", "utilization/gpu_util"),
)
_RUNS = re.compile(r"\| +(\d{1,3}) +\S+ +\S+ +(\d{1,9}) +(C|G|C\+G|M\+C) +(\S.*?) +(\d+MiB|N/A) *\|")
_UNIT = re.compile(r"(\d+)(C|W|MiB|%)$")


def is_text(head: str) -> bool:
    """Whether it begins as one of these forms."""
    return "==NVSMI LOG==" in head or "| NVIDIA-SMI " in head or _LOST.search(head) is not None


def read_texts(lines: Iterable[tuple[int, str]]) -> Iterator[SmiGpu]:
    """GPUs in the order of the text; each is complete as far as the text goes."""
    found: dict[str, SmiGpu] = {}
    current: SmiGpu | None = None
    path: list[tuple[int, str]] = []
    attached = 0
    for number, whole in lines:
        line = whole[:MAX_TEXT]
        if len(found) >= MAX_GPUS:
            break
        if match := _GPU.match(line):
            current, path = SmiGpu(len(found), match[1], number), []
            found[match[1]] = current
        elif current is None and (match := _ATTACHED.match(line)):
            attached = int(match[1])
        elif match := _LOST.search(line):
            found[match[1]] = SmiGpu(-1, match[1], number, {"state": "GPU is lost" if _GONE.match(match[2]) else match[2]})
        elif line.startswith("|"):
            current = _tabled(found, current, number, line)
        elif current is not None and line.startswith(" "):
            _entry(current, path, number, line)
    # Of some that were asked for (`-i 4`) the order is no number.
    yield from (replace(gpu, index=-1) for gpu in found.values()) if len(found) < attached else found.values()


def _entry(gpu: SmiGpu, path: list[tuple[int, str]], number: int, line: str) -> None:
    """A line of `-q`: its indent tells of what it is a part."""
    match = _ENTRY.match(line.rstrip())
    if match is None:
        return
    indent, key, value = len(match[1]), match[2].lower().replace(" ", "_"), match[3]
    while path and path[-1][0] >= indent:
        path.pop()
    path.append((indent, key))
    names = [name for _, name in path]
    if value is None or len(gpu.texts) >= MAX_TEXTS:
        return
    if names[0] == "processes":
        _process(gpu, number, key, value.strip())
        return
    whole = "/".join(names)
    reason = _REASON.search(whole)
    gpu.texts.setdefault(f"{reason[1]}s/{reason[1]}_{reason[2]}" if reason else _SAME.get(whole, whole), value.strip())


def _process(gpu: SmiGpu, number: int, key: str, value: str) -> None:
    if key == "process_id" and len(gpu.processes) < MAX_TEXTS:
        gpu.processes.append(SmiProcess(number, {"pid": value}))
    elif gpu.processes:
        name = {"name": "process_name", "used_gpu_memory": "used_memory"}.get(key, key)
        gpu.processes[-1].texts.setdefault(name, value)


def _tabled(found: dict[str, SmiGpu], current: SmiGpu | None, number: int, line: str) -> SmiGpu | None:
    """A line of the table: which GPU, its state below, or a process."""
    if match := _NAMED.match(line):
        gpu = SmiGpu(int(match[1]), match[3], number, {"product_name": match[2]})
        if match[4].isdecimal() or match[4] == "ERR!":
            gpu.texts["ecc_errors/volatile/double_bit/total"] = match[4]
        found[match[1]] = gpu
        return gpu
    if (match := _STATE.match(line)) and current is not None:
        current.texts |= {name: _UNIT.sub(r"\1 \2", text) for name, text in zip(_STATES, match.groups(), strict=True)}
        if match[2] == match[7] == "ERR!":
            current.texts["state"] = "GPU is lost"  # what the table shows of a GPU that does not answer
    elif (match := _RUNS.match(line)) and match[1] in found and len(found[match[1]].processes) < MAX_TEXTS:
        texts = {"pid": match[2], "type": match[3], "process_name": match[4], "used_memory": _UNIT.sub(r"\1 \2", match[5])}
        found[match[1]].processes.append(SmiProcess(number, texts))
    return current
