"""Which rank wrote a line of a log that several ranks share, by what launchers and torch put in front of it.

`[rank3]` (torch since 2.2) is the global rank, and so is `[1,3]<stderr>:` (mpirun --tag-output) or `[3]<stderr>:` (horovodrun),
and `(PID:7, Device:0, RankID:3)` in an error of torch_npu.
`(Worker_TP2 pid=77)` of vLLM shows a place in a parallel layout (`_shared/process_titles.py`).
`[default3]:` (torchrun --tee) is a local rank, `3: ` (srun --label) a task, `(worker pid=9, ip=10.0.0.1)` (Ray) a process,
`[pod/job-worker-3/pytorch]` (kubectl logs --prefix) and `host unit[9]:` (journald) may be several processes:
all of them are ranks only where the same file says so.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from forensics.ingest._job_logs.front import front
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.config import config_rows
from forensics.ingest._shared.process_ranks import ProcessRank, process_rank_batches
from forensics.ingest._shared.process_titles import place_of, server_title, world_ranks
from forensics.ingest._shared.values import rank_number
from forensics.ingest.interface import Batch

_STATED = re.compile(r"\[rank(\d{1,7})\]")
_FRONTS = re.compile(rb"\n\[rank(\d{1,7})\]:")
_OF_NPU = re.compile(r"\(PID:\d{1,9}, Device:-?\d{1,4}, RankID:(\d{1,7})\)")
_OWN = re.compile(r"(?:(?<![A-Za-z_])RANK[=:] ?|distributed init \(rank |GLOBAL_RANK: |(?<!cal )Process index: )(\d{1,7})\b")
OWN_WORDS = (" RANK=", " RANK: ", "distributed init (rank ", "Process index: ")
_OWN_MENTIONED = ("RANK", *OWN_WORDS[2:])
# What Composer prints of each process that ended: all that it wrote, between two rules.
_SECTION = re.compile(r"-{6,40}(?P<edge>Begin|End) global rank (?P<rank>\d{1,7}) STD(?:OUT|ERR)-{6,40}\s*")
_TASK = re.compile(r"task (\d{1,7})")
_RANKS = rb"(?: ?\[([A-Za-qs-z_][\w-]{0,63}?\d{1,5})\]:)?(?: ?\[rank(\d{1,7})\])?"
_TASKS = re.compile(rb"\n {0,6}(\d{1,7})(?::(?=[ \[])|\|(?= ))" + _RANKS)
_BOXES = re.compile(rb"\n\[(\d{1,4})\]:?(?= [^\s\[])")
_LOCALS = re.compile(rb"\n()(?=\[[A-Za-qs-z])" + _RANKS)
_CONTAINER = (
    rb"\n(?:\[pod/([\w.-]{1,253})/[\w.-]{1,253}\] (?:\d{4}-\d\d-\d\dT\S{9,26} )?|([A-Za-z][\w.-]{0,62}-\d{1,5}) {1,40}\| ?)?"
)
_ACTORS = re.compile(_CONTAINER + rb"\(([\w.:-]{0,80} ?pid=\d{1,9}(?:, ip=[\w.:]{1,45})?)\) ?\[rank(\d{1,7})\]")
_WORKERS = re.compile(_CONTAINER + rb"\((Worker(?:_[A-Z]{2,8}\d{1,5}){1,6} pid=\d{1,9})\) ")
_PODS = re.compile(
    rb"\n(?:\[pod/([\w.-]{1,253})/[\w.-]{1,253}\]|([A-Za-z][\w.-]{0,62}-\d{1,5}) {1,40}\|)[^\n]{0,80}?"
    rb" rank (\d{1,7})/(\d{1,7})\b"
)
# What a program prints of itself right behind the number of its task.
_COUNTED = re.compile(rb"\n {0,6}(\d{1,7}): (?:\[[^\]\n]{1,60}\] ?)?[Rr]ank (\d{1,7})/(\d{1,7})\b")
_RANKED_WORKERS = re.compile(rb"\n[^\n(]{0,64}\(VllmWorker rank=(\d{1,7}) pid=")
_SERVERS = re.compile(_CONTAINER + rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d((?: (?:[A-Z]{2,8}_)?[A-Z]{2,8}\d{1,5}){1,6})\]")
_SHARED = re.compile(r"(?:pod|service|unit) (?!.* (?:actor|tee) )")
_OF_PROCESS = re.compile(r"(?:^| )(?:actor|tee|task|box) ")
_POD = re.compile(r"pod [\w.-]{1,253}")
_LOCAL = re.compile(r"tee [A-Za-z_][\w-]{0,62}?(\d{1,5})")
_BOX = re.compile(r"box (\d{1,4})")
_MAX_LABELS = 1 << 17


@dataclass(frozen=True, slots=True)
class Origin:
    """Who wrote one line: the global rank, or a label that several lines share; its time, and a host that stands in front.

    `bare` is the line without times, streams and levels; its text begins at `text`, behind the labels, and what the process
    itself wrote at `process`, behind those of containers and units.
    """

    rank: int | None
    label: str | None
    bare: str
    text: int
    host: str | None = None
    time_ns: int | None = None
    process: int = 0

    @property
    def unlabelled(self) -> str:
        """The line without what a runtime of containers puts in front; what a process writes in front of its lines stays."""
        whole = self.label is not None and not _OF_PROCESS.search(self.label)
        return self.bare[self.text if whole else self.process :]

    def stated(self, rank: str | None) -> Origin:
        """The same with the rank of the job that its text states, if any."""
        known = rank_number(rank or "")
        return self if known is None else replace(self, rank=known)


class Origins:
    """Reads the front of each line, and remembers which labels went together with which ranks."""

    def __init__(self) -> None:
        self._ranks: dict[str, set[int]] = defaultdict(set)
        self._labels: set[str] = set()
        self._offsets: set[int] = set()
        self._section: int | None = None
        self._fronts: set[bytes] = set()
        self._workers: set[bytes] = set()

    def feed(self, line: str) -> Origin:
        """Origin of one line."""
        found = front(line)
        stated = _STATED.search(line, 0, 512) if found.rank is None and "[rank" in line else None
        stated = _OF_NPU.search(line, 0, 512) if "RankID:" in line else stated
        # What a process prints of its environment tells of all its lines.
        stated = stated or (_OWN.search(line) if found.labels and mentions(line, _OWN_MENTIONED) else None)
        rank = rank_number(stated[1]) if stated else found.rank
        label = " ".join(f"{kind} {_plain(name)}" for kind, name in found.labels) or None
        self.note(label, rank)
        if line.startswith("------") and (edge := _SECTION.fullmatch(line)):
            self._section = rank_number(edge["rank"]) if edge["edge"] == "Begin" else None
        rank = self._section if rank is None and label is None else rank
        return Origin(rank, label, found.bare, found.text, found.host, found.time_ns, found.process)

    def survey(self, block: bytes) -> None:
        """Note tasks, local ranks and actors that stand at the very front of lines, whatever the lines say."""
        lines = b"\n" + block
        self._fronts |= {*_FRONTS.findall(lines)} if len(self._fronts) < _MAX_LABELS else set()
        self._workers |= {*_RANKED_WORKERS.findall(lines)} if len(self._workers) < _MAX_LABELS else set()
        for task, local, rank in {*_TASKS.findall(lines), *_LOCALS.findall(lines)}:
            names = ([f"task {int(task)}"] if task else []) + ([f"tee {local.decode()}"] if local else [])
            self.note(" ".join(names) or None, rank_number(rank.decode()) if rank else None)
        for task, rank, size in {*_COUNTED.findall(lines)}:
            self.note(f"task {int(task)}", int(rank) if int(rank) < int(size) else None)
        for box in {*_BOXES.findall(lines)}:
            self.note(f"box {int(box)}", None)
        for *outer, actor, rank in {*_ACTORS.findall(lines)}:
            self.note(f"{_container(*outer)}actor {actor.decode()}", rank_number(rank.decode()))
        for *outer, worker in {*_WORKERS.findall(lines)}:
            self.note(f"{_container(*outer)}actor {worker.decode()}", None)
        for *outer, axes in {*_SERVERS.findall(lines)}:
            self.note(f"{_container(*outer)}actor {server_title(axes.decode())}", None)
        for pod, service, rank, size in {*_PODS.findall(lines)}:
            if int(rank) < int(size):
                name = f"pod {pod.decode()}" if pod else f"service {service.decode()}"
                self.note(name, rank_number(rank.decode()))

    @property
    def fronts(self) -> frozenset[int]:
        """Ranks that torch put at the very front of lines."""
        return frozenset(map(int, self._fronts))

    @property
    def workers(self) -> frozenset[int]:
        """Ranks of the workers of a server that wrote anything, where their fronts show these."""
        return frozenset(map(int, self._workers))

    @property
    def servers(self) -> frozenset[str]:
        """Labels of the processes of a server that wrote anything."""
        return frozenset(label for label in self._labels if place_of(label.rpartition("actor ")[2]))

    def batches(self) -> Iterator[Batch]:
        """That tasks of srun are ranks, where several state ranks of their own, each its own number; and the ranks of pods."""
        stated = {label: ranks for label, ranks in self._ranks.items() if _TASK.fullmatch(label)}
        if len(stated) > 1 and all(ranks == {int(label.rpartition(" ")[2])} for label, ranks in stated.items()):
            yield from config_rows([("log.tasks", "ranks")], rank=None)
        pods = {label.removeprefix("pod "): rank for label, rank in self.ranks().items() if _POD.fullmatch(label)}
        yield from process_rank_batches(ProcessRank("log", host=pod, rank=rank) for pod, rank in sorted(pods.items()))

    def note(self, label: str | None, rank: int | None) -> None:
        """Remember what went together."""
        if label is not None and len(self._labels) < _MAX_LABELS:
            self._labels.add(label)
            if rank is not None:
                self._ranks[label].add(rank)

    def note_local(self, local_rank: int, rank: int) -> None:
        """Remember the rank that a launcher says a local rank is."""
        self._offsets.add(rank - local_rank)

    def ranks(self, one_node: bool = False, world: int | None = None) -> Mapping[str, int]:
        """Global rank of each label, known when the whole file was read.

        Of `one_node`, local ranks are as far from those of the job as that of which both are known; all numbers of a job of
        `world` ranks are the ranks.

        A label of one process that always went with one rank is that rank. Pods are ranks where each went with one and these
        are all ranks from 0. Tasks without such a word are ranks when there are several, none is contradicted, and no launcher
        of its own labels ranks within them.
        """
        reported = {label: next(iter(ranks)) for label, ranks in self._ranks.items() if len(ranks) == 1}
        places = {label: place for label in self._labels if (place := place_of(label.rpartition("actor ")[2]))}
        reported = {**world_ranks(places), **reported}
        shared = [label for label in self._labels if _SHARED.match(label)]
        if len(shared) < 2 or sorted(reported.get(label, -1) for label in shared) != list(range(len(shared))):
            reported = {label: rank for label, rank in reported.items() if label not in shared}
        boxes = self._numbered(_BOX)
        if boxes and sorted(boxes.values()) == list(range(world or 0)):
            reported = {**boxes, **reported}
        if one_node:
            reported = {**self._by_local_rank(reported, world), **reported}
        numbers = self._numbered(_TASK)
        whole = len(numbers) > 1 and len(numbers) == len(self._labels) and min(numbers.values()) == 0
        if whole and all(self._ranks.get(label, {number}) == {number} for label, number in numbers.items()):
            return numbers
        return reported

    def _numbered(self, kind: re.Pattern[str]) -> dict[str, int]:
        return {label: int(found[1]) for label in self._labels if (found := kind.fullmatch(label))}

    def _by_local_rank(self, reported: Mapping[str, int], world: int | None) -> Mapping[str, int]:
        numbers = self._numbered(_LOCAL)
        offsets = self._offsets | {reported[label] - number for label, number in numbers.items() if label in reported}
        if not offsets and sorted(numbers.values()) == list(range(world or 0)):
            return numbers
        return {label: number + offset for offset in offsets for label, number in numbers.items()} if len(offsets) == 1 else {}


def _container(pod: bytes, service: bytes) -> str:
    """The label of a container in front of that of a process, if there is one."""
    return f"pod {pod.decode()} " if pod else f"service {service.decode()} " if service else ""


def _plain(name: str) -> str:
    """`03` of a padded task is task 3."""
    return str(int(name)) if name.isdecimal() else name
