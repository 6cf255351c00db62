"""How many ranks the job has, as its programs and launchers print it; sizes of groups within the job are passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.config import config_rows
from forensics.ingest._shared.node_lists import hosts
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
    "MEMBER: ",
    "NODELIST=",
    "ntasks-per-node",
    "srun ",
)
EXPRESSIONS = {"anks": r"anks[ :=]{1,3}\d{1,7} ?(?:\.\.|-|\xe2\x80\x93|to)"}
_STATED = re.compile(
    r"(?<![\w-])(?P<before>\w[\w-]{0,39}[ _-])?(?:world[_ ]size|WORLD_SIZE)[\"']?(?:=| ?: ?| (?:is |of )?)(?P<size>\d{1,7})\b"
)
_HEADING = re.compile(
    r"^\W{0,16}(?i:node|host|machine|server|worker|box)[\w.:-]{0,64}(?: [^\n]{0,80}?)?[ (\[](?i:global )?(?i:rank)s[ :=]{1,3}"
    r"(?P<first>\d{1,7}) ?(?:\.\.\.?|-|\u2013|to) ?(?P<last>\d{1,7})(?: ?(?:of|/) ?(?P<size>\d{1,7}))?\W{0,40}$"
)
_MOST_NODES = 1 << 14
_WHOLE = re.compile(r"(?:using|with|the|total|global|INFO|and) |dist_", re.IGNORECASE)
_COUNTED = re.compile(r"^\W{0,8}Num processes: (?P<size>\d{1,7})$")
# Lightning's connection of all processes, on each of them.
_MEMBER = re.compile(r"\bGLOBAL_RANK: (?P<rank>\d{1,7}), MEMBER: (?P<member>\d{1,7})/(?P<size>\d{1,7})\b")
_STARTER = re.compile(
    r"(?:^|[\s/])(?:torchrun|accelerate|deepspeed|mpirun|mpiexec|horovodrun|torch\.distributed\.(?:run|launch)) "
)
_OPTION = r" --?{name}[ =](?P<value>[^\s\\]{{1,64}})"
_OF_ALL = tuple(re.compile(_OPTION.format(name=name)) for name in ("num[_-]processes", "np"))
_OF_NODE = tuple(re.compile(_OPTION.format(name=name)) for name in ("nproc[_-]per[_-]node", "num_gpus"))
_NODES = re.compile(_OPTION.format(name="(?:nnodes|num_nodes)"))
_LISTED = re.compile(r"\bSLURM_(?:JOB_|STEP_)?NODELIST=[\"']?(?P<nodes>[A-Za-z0-9][^\s\"';]{0,1000})")
# Slurm gives the nodes of a job tasks in a row, in the order of their names, unless an option says how.
_SRUN = re.compile(r"(?:^|[\s/])srun(?= )(?!.{0,2000} (?:-m|--distribution)[ =])")
_TASKS = re.compile(r" --ntasks-per-node[ =](?P<each>[1-9]\d{0,2})(?!\d)")
# A script of a shell may start a launcher, and some are modules.
_PROGRAM = re.compile(r" (?:\S{0,200}/)?python[\d.]{0,6} (?!.*(?:\.sh\b|launch|\.run\b))")
_ON = re.compile(r" (?:--nodelist[ =]|-w ?)[\"']?(?P<nodes>[A-Za-z0-9][^\s\"';]{0,1000})")
_ELSEWHERE = (" --hostfile", " -H ", " --hosts", " --include", " --exclude")


class StatedWorld:
    """Collects the sizes that a file states, and the ranks of nodes that stand above what each node printed."""

    def __init__(self) -> None:
        self._sizes: set[int] = set()
        self._each: set[int] = set()
        self._lists: set[str] = set()
        self._nodes: set[tuple[int, int]] = set()
        self._tasks: set[tuple[int, str]] = set()
        self._started: set[int] = set()

    def feed(self, line: str) -> None:
        """Take one line."""
        if len(self._sizes) > 1:
            return
        if "anks" in line and (heading := _HEADING.match(line)) and len(self._nodes) < _MOST_NODES:
            self._nodes.add((int(heading["first"]), int(heading["last"])))
            self._sizes |= {int(heading["size"])} if heading["size"] else set()
        if not mentions(line, WORDS):
            return
        for said in _STATED.finditer(line):
            if said["before"] is None or _WHOLE.fullmatch(said["before"]):
                self._sizes.add(int(said["size"]))
        if listed := _LISTED.search(line):
            self._lists.add(listed["nodes"])
        if counted := _COUNTED.match(line):
            self._sizes.add(int(counted["size"]))
        if (member := _MEMBER.search(line)) and int(member["rank"]) + 1 == int(member["member"]) <= int(member["size"]):
            self._sizes.add(int(member["size"]))
        if "srun " in line and _SRUN.search(line):
            tasks, on = _TASKS.search(line), _ON.search(line)
            is_starter = _STARTER.search(line) is not None
            self._started.add(int(tasks["each"]) if tasks and not is_starter and _PROGRAM.search(line) else 0)
            self._tasks |= {(int(tasks["each"]), on["nodes"])} if tasks and on and not is_starter else set()
        if _STARTER.search(line):
            each = _of_each_node(line)
            started = _started(line, each)
            self._sizes |= {started} if started else set()
            self._each |= {each} if each else set()

    @property
    def size(self) -> int | None:
        """The one size that the file states."""
        return next(iter(self._sizes)) if len(self._sizes) == 1 else None

    def batches(self) -> Iterator[Batch]:
        """Each size, the ranks of each node, and the nodes in order; where sizes differ, some of them is that of a group."""
        if len(self._started) == 1 and min(self._started) > 1 and not self._each:
            yield from config_rows([("log.tasks", "ranks")], rank=None)
        self._take_tasks()
        nodes = sorted(self._nodes)
        if len(nodes) > 1 and nodes[0][0] == 0 and all(before[1] + 1 == after[0] for before, after in pairwise(nodes)):
            self._sizes.add(nodes[-1][1] + 1)
        sizes = [("log.world_size", str(size)) for size in sorted(self._sizes)]
        yield from config_rows([*sizes, *(("log.per_node", str(each)) for each in sorted(self._each))], rank=None)
        names = list(hosts(self._lists.pop())) if len(self._lists) == 1 else []
        if len(names) > 1:
            yield Batch("nodes", {"host": names, "node": list(range(len(names)))})

    def _take_tasks(self) -> None:
        """Tasks that srun starts are the ranks, where they start no launcher, and there is more than one of them on a node."""
        if len(self._tasks) != 1 or self._each or self._sizes or self._lists:
            return
        ((each, listed),) = self._tasks
        names = [*hosts(listed)]
        if each > 1 and len(names) > 1 and names == sorted(names):
            self._each, self._sizes, self._lists = {each}, {each * len(names)}, {listed}


def _of_each_node(line: str) -> int | None:
    """How many ranks a command starts on each node."""
    said = next((found for option in _OF_NODE if (found := option.search(line))), None)
    return int(said["value"]) if said and said["value"].isdecimal() and not mentions(line, _ELSEWHERE) else None


def _started(line: str, each: int | None) -> int | None:
    """How many ranks a command starts, where its options give numbers for all of them."""
    for option in _OF_ALL:
        if said := option.search(line):
            return int(said["value"]) if said["value"].isdecimal() else None
    nodes = _NODES.search(line)
    if each is None or nodes is None:
        return each
    return each * int(nodes["value"]) if nodes["value"].isdecimal() else None
