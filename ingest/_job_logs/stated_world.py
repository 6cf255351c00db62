"""How many ranks the job has, as its programs and launchers print it; sizes of groups within the job are passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.config import config_rows
from forensics.ingest.interface import Batch

WORDS = (
    "world_size",
    "world size",
    "WORLD_SIZE",
    "Num processes: ",
    "nproc",
    "num_processes",
    "num-processes",
    "num_gpus",
    "-np ",
)
_STATED = re.compile(r"(?<![\w-])(?P<before>[\w-]{1,40}[ _-])?(?:world[_ ]size|WORLD_SIZE)[\"']?(?:=| ?: ?)(?P<size>\d{1,7})\b")
_WHOLE = re.compile(r"(?:using|with|the|total|global|INFO|and) ", re.IGNORECASE)
_COUNTED = re.compile(r"^\W{0,8}Num processes: (?P<size>\d{1,7})$")
_STARTER = re.compile(
    r"(?:^|[\s/])(?:torchrun|accelerate|deepspeed|mpirun|mpiexec|horovodrun|torch\.distributed\.(?:run|launch)) "
)
_OPTION = r" --?{name}[ =](?P<value>[^\s\\]{{1,64}})"
_OF_ALL = tuple(re.compile(_OPTION.format(name=name)) for name in ("num[_-]processes", "np"))
_OF_NODE = tuple(re.compile(_OPTION.format(name=name)) for name in ("nproc[_-]per[_-]node", "num_gpus"))
_NODES = re.compile(_OPTION.format(name="(?:nnodes|num_nodes)"))
_ELSEWHERE = (" --hostfile", " -H ", " --hosts", " --include", " --exclude")


class StatedWorld:
    """Collects the sizes that a file states."""

    def __init__(self) -> None:
        self._sizes: set[int] = set()

    def feed(self, line: str) -> None:
        """Take one line."""
        if len(self._sizes) > 1 or not mentions(line, WORDS):
            return
        for said in _STATED.finditer(line):
            if said["before"] is None or _WHOLE.fullmatch(said["before"]):
                self._sizes.add(int(said["size"]))
        if counted := _COUNTED.match(line):
            self._sizes.add(int(counted["size"]))
        if _STARTER.search(line) and (started := _started(line)):
            self._sizes.add(started)

    @property
    def size(self) -> int | None:
        """The one size that the file states."""
        return next(iter(self._sizes)) if len(self._sizes) == 1 else None

    def batches(self) -> Iterator[Batch]:
        """Each size, one row; where they differ, some of them is that of a group."""
        yield from config_rows((("log.world_size", str(size)) for size in sorted(self._sizes)), rank=None)


def _started(line: str) -> int | None:
    """How many ranks a command starts, where its options give numbers for all of them."""
    for option in _OF_ALL:
        if said := option.search(line):
            return int(said["value"]) if said["value"].isdigit() else None
    nodes = _NODES.search(line)
    for option in _OF_NODE:
        said = option.search(line)
        if said and said["value"].isdigit() and not mentions(line, _ELSEWHERE):
            each = int(said["value"])
            return each if nodes is None else each * int(nodes["value"]) if nodes["value"].isdigit() else None
    return None
