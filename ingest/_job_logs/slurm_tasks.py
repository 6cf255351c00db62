"""Which tasks ran on a node that Slurm lost: those that its lists of the other nodes leave out.

Upstream: `_print_exit_status` of src/srun/libsrun/launch.c prints the tasks of each host that ended alike, `tasks 0-7: Killed`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from itertools import chain

WORDS = ("srun: error: ",)
_ENDED = re.compile(r"srun: error: (?P<host>[\w.-]{1,253}): tasks? (?P<tasks>\d{1,7}(?:[,-]\d{1,7}){0,200}): ")
_LARGEST_NODE = 64
_MOST = 1 << 17


class SlurmTasks:
    """Collects the lists of ended tasks over a file."""

    def __init__(self) -> None:
        self._by_host: dict[str, set[int]] = defaultdict(set)

    def feed(self, line: str) -> None:
        """Take one line."""
        if WORDS[0] in line and (ended := _ENDED.search(line)):
            for part in ended["tasks"].split(","):
                first, _, last = part.partition("-")
                self._by_host[ended["host"]] |= {*range(int(first), min(int(last or first), int(first) + _LARGEST_NODE) + 1)}

    def of_node(self, host: str) -> frozenset[int]:
        """The tasks of a host without a list, where the lists of all others are equally large blocks and leave one such out.

        One task a node may be a launcher of several ranks. What lies behind the last list is not known to be there.
        """
        blocks = [tasks for tasks in self._by_host.values() if tasks]
        if host in self._by_host or not blocks or (each := len(blocks[0])) < 2:
            return frozenset()
        known = [*chain.from_iterable(blocks)]
        missing = {*range(max(known))} - {*known} if max(known) < _MOST else set[int]()
        whole = all(len(tasks) == each and _is_block(tasks, each) for tasks in (*blocks, missing))
        return frozenset(missing) if whole and len(known) == len({*known}) else frozenset()


def _is_block(tasks: set[int], each: int) -> bool:
    """As many numbers in a row as a node has, from where one begins."""
    return bool(tasks) and min(tasks) % each == 0 and max(tasks) - min(tasks) + 1 == len(tasks)
