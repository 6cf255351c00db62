"""The rank that a process states of itself in a file of its own, where no line has a label: once, when it starts.

`| distributed init (rank 3): env://` of detr and its heirs, Lightning's `GLOBAL_RANK: 3, MEMBER: 4/8`, `Process index: 3` of
accelerate, `rank=3 world_size=8` of people's own, an environment with `RANK=3 LOCAL_RANK=1` in one line or as `env` and
`export -p` print it, and the configuration that wandb notes in debug.log. Whether the whole file is of that process, the other
files show.

The size beside a rank is noted too: where one process of each node prints its own, its log is of the others as well.

Without a LOCAL_RANK beside it a RANK may be that of a node: operators give it to the launcher in a pod. It is noted apart, for
the files of the case to show what it counts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.config import config_rows
from forensics.ingest.interface import Batch

WORDS = (
    *("world=", "world_size", "world size"),
    *("distributed init (rank ", "GLOBAL_RANK: ", "Process index: ", "LOCAL_RANK=", "RANK=", "] config: {"),
)
_STATED = re.compile(
    r"distributed init \(rank (?P<init>\d{1,7})\)|GLOBAL_RANK: (?P<member>\d{1,7}), MEMBER: "
    r"|^Process index: (?P<index>\d{1,7})$"
)
# In capitals it is a variable of whatever was started.
_OF_WORLD = re.compile(
    r"(?<![\w-])(?<!local )(?<!node )(?<!group )(?:global[ _])?[Rr]ank[ =:]{1,2}(?P<rank>\d{1,7})[,;]? ?"
    r"[Ww]orld(?:[_ ][Ss]ize)?[ =:]{1,2}(?P<size>\d{1,7})\b"
)
_ENVIRONMENT = re.compile(r"(?<![A-Z_])RANK=(?P<rank>\d{1,7})\b")
_VARIABLE = re.compile(r"(?:declare -x |export )?(?P<name>(?:LOCAL_)?RANK)=\"?(?P<rank>\d{1,7})\"?\s*")
_CONFIGURED = re.compile(r"\bwandb_init\.py:.{0,40}\] config: \{.*?'(?:RANK|rank|global_rank)': '?(?P<rank>\d{1,7})'?[,}]")


class OwnRanks:
    """Collects them over a file."""

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._worlds: set[str] = set()
        self._given: set[str] = set()
        self._variables: dict[str, set[str]] = defaultdict(set)

    def feed(self, line: str) -> None:
        """Take one line without a label or a rank in front."""
        if not mentions(line, WORDS):
            return
        if stated := _STATED.search(line):
            self._found.add(stated["init"] or stated["member"] or stated["index"])
        elif (of_world := _OF_WORLD.search(line)) and int(of_world["rank"]) < int(of_world["size"]):
            self._found.add(of_world["rank"])
            self._worlds.add(of_world["size"])
        elif variable := _VARIABLE.fullmatch(line):
            self._variables[variable["name"]].add(variable["rank"])
        elif reported := _ENVIRONMENT.search(line):
            (self._found if "LOCAL_RANK=" in line else self._given).add(reported["rank"])
        elif configured := _CONFIGURED.search(line):
            self._found.add(configured["rank"])

    def batches(self) -> Iterator[Batch]:
        """The one rank that is stated, or given to whatever started in the file."""
        found = self._found | (self._variables["RANK"] if len(self._variables["LOCAL_RANK"]) == 1 else set())
        if len(found) == 1:
            worlds = [("log.own_world", size) for size in sorted(self._worlds)]
            yield from config_rows([("log.own_rank", str(int(min(found)))), *worlds], rank=None)
        given = self._given | self._variables["RANK"]
        if not found and len(given) == 1:
            yield from config_rows([("log.given_rank", str(int(min(given))))], rank=None)
