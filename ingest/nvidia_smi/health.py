"""GPUs that `dcgmi health -c` finds failed: `| -> 5 | Failure |` below `GPU`, or `| GPU ID: 5 | Failure |` before DCGM 2.

What is only warned of (a few replays of PCIe, a throttled clock) proves little, and neither does what all GPUs have.
Upstream: dcgmi/Health.cpp of NVIDIA/DCGM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from forensics.ingest.nvidia_smi.document import MAX_TEXT

_TITLE = re.compile(r"^\| Health [Mm]onitor (?:[Rr]eport|systems report) {2,120}\|", re.MULTILINE)
_ROW = re.compile(r"\| (?P<name>.{1,40}?)? *\| (?P<said>.{0,120}?) *\|\s*$")
_GPU = re.compile(r" {0,2}(?:-> |GPU ID: )(?P<gpu>\d{1,3})$")
_GROUP = re.compile(r"[A-Z]\w{1,15}s?$")
_STATE = re.compile(r"(?P<state>Healthy|Warning|Failure)\b")
_OF_GPUS = "GPU"
_MOST = 1_024


def is_health(head: str) -> bool:
    """Whether it begins with the table, or with that of what is watched."""
    return _TITLE.search(head) is not None


def failed_health(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """Line and number of each GPU that failed, and by what; nothing where no GPU of the table is in another state."""
    found: dict[int, tuple[int, str, str]] = {}
    group, gpu = _OF_GPUS, None
    for number, whole in lines:
        row = _ROW.match(whole[:MAX_TEXT])
        name = (row["name"] or "").rstrip() if row else ""
        said = _STATE.match(row["said"]) if row else None
        if _GROUP.match(name) and not said:
            group, gpu = name, None
        elif (of := _GPU.match(name)) and said and len(found) < _MOST:
            gpu = int(of["gpu"]) if group == _OF_GPUS else None
            found |= {} if gpu is None else {gpu: (number, said["state"], "")}
        elif gpu is not None and row and (what := _system(name, row["said"])) and not found[gpu][2]:
            found[gpu] = (*found[gpu][:2], what)
    failed = [(line, each, what) for each, (line, state, what) in found.items() if state == "Failure"]
    yield from failed if len(failed) < max(2, len(found)) else ()


def _system(name: str, said: str) -> str | None:
    """The system of a device that failed."""
    found = re.match(r"(?:Failure|Error)\b", said)
    system = re.match(r" *-> ([A-Za-z]\w{1,20} system)", name)
    if system and found:
        return system[1]
    older = re.match(r"([A-Za-z]\w{1,20} system): (?:Failure|Error)", said)
    return older[1] if older else None
