"""Runs torchfrtrace on files in the order of their ranks: its reference is the first file, and folders have no order."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

_walk = os.walk


def main(folder: str, prefix: str, printed: str) -> None:
    """Analyse the dumps of a folder in this process; what is printed goes into the file `printed`."""
    descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(descriptor, sys.stderr.fileno())
    os.walk = in_order  # type: ignore[assignment]
    from torch.distributed.flight_recorder import fr_trace

    fr_trace.main([folder, "--allow-incomplete-ranks", "-p", prefix])


def in_order(top: str) -> Iterator[tuple[str, list[str], list[str]]]:
    for root, folders, files in _walk(Path(top)):
        yield str(root), folders, sorted(files, key=_rank)


def _rank(name: str) -> int:
    digits = re.search(r"\d+$", name)
    return int(digits.group()) if digits else -1
