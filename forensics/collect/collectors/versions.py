"""Which libraries each rank has mapped, and the versions of the packages beside its torch, without importing anything.

One rank with another NCCL, plugin or driver library than its peers is a known cause of hangs, and it is on no log.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from forensics.bundle.layout import Status, node_path
from forensics.collect.permissions import why_denied
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target, visible_path

ID = "versions"
_LIBRARIES = re.compile(
    r"/lib(?:torch(?:_cpu|_cuda|_hip|_python)?|c10(?:_cuda)?|nccl(?:-net|-tuner|-profiler)?[\w-]*|rccl[\w-]*|cuda|cudart|"
    r"nvidia-ml|ibverbs|mlx5|efa|fabric|ucp|ucc|gdrapi|python3[\d.]*)\.so[\w.]*$|/libtorch[\w]*\.so[\w.]*$"
)
_DIST_INFO = re.compile(r"(?P<name>.+?)-(?P<version>[^-]+)\.dist-info")
_PACKAGES = re.compile(
    r"(?:torch|torchvision|triton|nvidia_nccl_cu\d+|nvidia_cuda_runtime_cu\d+|megatron_core|deepspeed|transformers|accelerate|"
    r"lightning|pytorch_lightning|transformer_engine(?:_cu\d+|_torch)?|flash_attn|apex|nvidia_resiliency_ext|torchtitan|torchdata|numpy)",
    re.IGNORECASE,
)


def collect_versions(context: Context, targets: Sequence[Target]) -> Iterator[Run]:
    """One file for the host, with the libraries and packages of each living rank."""
    ranks: dict[int, dict[str, Any]] = {}
    failures: list[tuple[Status, str]] = []
    for target in targets:
        if target.pid is None or target.state != "alive":
            continue
        try:
            ranks[target.rank] = rank_versions(context.procfs, target.pid)
        except PermissionError:
            failures.append((Status.PERMISSION, why_denied(context.procfs, target.pid, "read the memory map")))
        except OSError as error:
            failures.append(failure(error, f"memory map of rank {target.rank}"))
    if not ranks:
        status, reason = failures[0] if failures else (Status.NOT_FOUND, "no living rank")
        yield Run(ID, None, status, reason)
        return
    document = {"schema": "forensics.versions/1", "node": context.node, "ranks": ranks}
    written = context.staging.write_json(node_path(context.node, "versions.json"), document)
    reasons = "; ".join(reason for _, reason in failures) or None
    yield Run(ID, None, Status.PARTIAL if failures else Status.OK, reasons).stored(written)


def rank_versions(procfs: ProcFs, pid: int) -> dict[str, Any]:
    """Program, libraries and packages of one process."""
    mapped = sorted(path for path in procfs.mapped_files(pid) if _LIBRARIES.search(path))
    return {"exe": procfs.link(pid, "exe"), "libraries": mapped, "packages": _packages(procfs, pid, mapped)}


def _packages(procfs: ProcFs, pid: int, libraries: Sequence[str]) -> dict[str, str]:
    """Versions from the names of the dist-info folders beside the torch that is mapped."""
    folders = {str(PurePosixPath(path).parents[2]) for path in libraries if "/torch/lib/libtorch" in path}
    found: dict[str, str] = {}
    for folder in sorted(folders):
        for name in _names(visible_path(procfs, pid, folder)):
            match = _DIST_INFO.fullmatch(name)
            if match and _PACKAGES.fullmatch(match["name"]):
                found[match["name"].lower()] = match["version"]
    return found


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
