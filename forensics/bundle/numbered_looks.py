"""Stacks of a bundle that came without its manifest: the number of each is a moment where a look at the process has it too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact
from forensics.bundle.origin import is_below_number


def with_numbered_looks(artefacts: Sequence[Artefact]) -> list[Artefact]:
    """The artefacts; stacks that lie as in a bundle are numbered by its looks at the processes, which have dates inside."""
    paths = {each.path for each in artefacts}

    def is_numbered(path: str) -> bool:
        parts = tuple(path.split("/"))
        if not is_below_number(parts) or parts[-2] != "stacks":
            return False
        number = parts[-1].removesuffix(".json").rpartition(".")[2]
        return "/".join((*parts[:-2], "proc", f"{number}.json")) in paths

    return [replace(each, numbered=True) if not each.numbered and is_numbered(each.path) else each for each in artefacts]
