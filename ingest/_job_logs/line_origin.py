"""Which rank wrote a line of a log that several ranks share: what launchers and torch put in front of it.

`[rank3]` (torch since 2.2) is the global rank, and so is `[1,3]<stderr>:` (mpirun --tag-output) or `[3]<stderr>:` (horovodrun).
`[default3]:` (torchrun --tee) is a local rank and `3: ` (srun --label) a task:
both are ranks only where the same file says so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from forensics.ingest._shared.values import rank_number

_STATED = re.compile(r"\[rank(\d{1,7})\]")
_TEE = re.compile(r"\[([A-Za-z_][\w-]{0,63}?)(\d{1,5})\]:")
_TAGGED = re.compile(r"\[(?:\d{1,7},)?(\d{1,7})\]<std(?:err|out)>: ?")
_TASK = re.compile(r" {0,6}(\d{1,7}): ?")
_STARTS = frozenset("[ 0123456789")
_MAX_LABELS = 1 << 17


@dataclass(frozen=True, slots=True)
class Origin:
    """What stands in front of one line: the global rank, or a label that several lines share, and where the text begins."""

    rank: int | None
    label: str | None
    text: int


class Origins:
    """Reads the front of each line, and remembers which labels went together with which ranks."""

    def __init__(self) -> None:
        self._ranks: dict[str, set[int]] = defaultdict(set)
        self._labels: set[str] = set()

    def feed(self, line: str) -> Origin:
        """Origin of one line."""
        label, text = _label(line)
        found = _STATED.search(line, 0, 512) if "[rank" in line else None
        tagged = _TAGGED.match(line)
        found, text = found or tagged, tagged.end() if tagged else text
        rank = rank_number(found[1]) if found else None
        if label is not None and len(self._labels) < _MAX_LABELS:
            self._labels.add(label)
            if rank is not None:
                self._ranks[label].add(rank)
        return Origin(rank, label, text)

    def ranks(self) -> Mapping[str, int]:
        """Global rank of each label, known when the whole file was read.

        A label that always went with one rank is that rank. Tasks without such a word are ranks when there are several, none
        is contradicted, and no launcher of its own labels ranks within them.
        """
        told = {label: next(iter(ranks)) for label, ranks in self._ranks.items() if len(ranks) == 1}
        tasks = [label for label in self._labels if label.startswith("task ")]
        numbers = {label: int(label.removeprefix("task ")) for label in tasks}
        whole = len(tasks) > 1 and len(tasks) == len(self._labels) and sorted(numbers.values())[0] == 0
        if whole and all(self._ranks.get(label, {number}) == {number} for label, number in numbers.items()):
            return numbers
        return told


def _label(line: str) -> tuple[str | None, int]:
    """The label in front of a line, and where the text behind it begins."""
    if line[:1] not in _STARTS:
        return None, 0
    task = _TASK.match(line)
    start = task.end() if task else 0
    tee = _TEE.match(line, start)
    if tee and tee[1] != "rank":
        where = f"task {int(task[1])} " if task else ""
        return f"{where}tee {tee[1]}{tee[2]}", tee.end()
    return (f"task {int(task[1])}", start) if task else (None, 0)
