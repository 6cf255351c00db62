"""Stacks of a bundle that came without its manifest: the number of each is a moment where a look at the process has it too."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from forensics.bundle.artefact import Artefact

# Both are taken at one time, and the look at the process has its date inside (docs/bundle.md).
_STACKS = re.compile(r"(?P<rank>(?:.*/)?\d{1,7}/)stacks/(?:child-\d+\.)?(?P<number>\d{1,4})\.json")


def with_numbered_looks(artefacts: Sequence[Artefact]) -> list[Artefact]:
    """The artefacts; stacks that lie as in a bundle are numbered by its looks at the processes."""
    paths = {each.path for each in artefacts}

    def is_numbered(artefact: Artefact) -> bool:
        found = _STACKS.fullmatch(artefact.path)
        return found is not None and f"{found['rank']}proc/{found['number']}.json" in paths

    return [replace(each, numbered=True) if not each.numbered and is_numbered(each) else each for each in artefacts]
