"""Links of GPUs by `nvidia-smi nvlink --status` and `dcgmi nvlink --link-status`: how many there are, how many are up, errors.

Upstream: `Link 3: <inactive>` or its rate below `GPU 0: model (UUID: ...)`; `D` (down), `X` (disabled), `U` (up) and `_` (none)
below `gpuId 0:` of DCGM 2 to 4; `Link 3: CRC Errors: 12` of `nvlink -e`, counted since the driver was loaded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from forensics.ingest.nvidia_smi.document import MAX_GPUS, MAX_TEXT

_GPU = re.compile(r"GPU (\d{1,3}): \S.{0,100} \(UUID: \S{1,64}\)\s*$")
_LINK = re.compile(r"\s+Link \d{1,2}: (<inactive>|\d{1,4}(?:\.\d{1,6})? GB/s)\s*$")
_ERRORS = re.compile(r"\s+Link \d{1,2}: (?:Replay|Recovery|CRC|CRC FLIT|CRC Data) Error(?:s| Count): (\d{1,15})\s*$")
_DCGM_GPU = re.compile(r"\s*gpuId (\d{1,3}):\s*$")
_DCGM_LINKS = re.compile(r"\s+([UDX_](?: [UDX_]){0,63})\s*$")
_DCGM_TITLE = "NvLink Link Status"


def is_link_status(head: str) -> bool:
    """Whether it begins as one of the two: a GPU and below it its links."""
    lines = [line for line in head.splitlines() if line.strip()]
    named = any(_GPU.match(line) for line in lines[:4]) and any(_LINK.match(line) or _ERRORS.match(line) for line in lines)
    return named or (_DCGM_TITLE in head and any(_DCGM_GPU.match(line) for line in lines))


def read_links(lines: Iterable[tuple[int, str]]) -> Mapping[int, Mapping[str, int]]:
    """Readings of each GPU by its number: links that are up, and all that it has, or errors of all of its links."""
    errors: dict[int, int] = {}
    found: dict[int, list[bool]] = defaultdict(list)
    number: int | None = None
    for _, whole in lines:
        line = whole[:MAX_TEXT]
        if match := _GPU.match(line) or _DCGM_GPU.match(line):
            number = int(match[1]) if len(found) < MAX_GPUS else None
        elif number is not None and (match := _LINK.match(line)):
            found[number].append(match[1] != "<inactive>")
        elif number is not None and (match := _ERRORS.match(line)):
            errors[number] = errors.get(number, 0) + int(match[1])
        elif number is not None and (match := _DCGM_LINKS.match(line)):
            found[number] += [state == "U" for state in match[1].split() if state != "_"]
        elif line.strip() and not line[0].isspace():
            number = None  # switches follow
    up = {gpu: {"nvlinks_up": sum(links), "nvlinks": len(links)} for gpu, links in sorted(found.items())}
    return {
        gpu: {**up.get(gpu, {}), **({"nvlink_errors": errors[gpu]} if gpu in errors else {})} for gpu in sorted({*up, *errors})
    }
