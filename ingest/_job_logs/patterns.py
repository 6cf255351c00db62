"""Log lines that mean something, as data: the kind of event, how it reads, and what its subject is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_OCCURRENCES = 8
_LITERAL = re.compile(r"[\w :/=-]{4,}(?![?*+{])")


@dataclass(frozen=True, slots=True)
class LinePattern:
    """One understood line; `subject` is filled from the named groups of `regex`, those that did not match left empty.

    A regex that begins with one of some `words` is tried where they stand (`match_at`).
    """

    kind: str
    regex: re.Pattern[str]
    subject: str
    words: tuple[str, ...]

    def search(self, line: str) -> re.Match[str] | None:
        """The first match in a line."""
        if not self.words:
            return self.regex.search(line)
        found = [match for word in self.words if (match := match_at(self.regex, word, line))]
        return min(found, key=re.Match.start, default=None)


def match_at(regex: re.Pattern[str], word: str, line: str) -> re.Match[str] | None:
    """The first match of a regex where a word stands, at the first few places only.

    Tried at every place of a line that is nothing but such words, it would take the square of the line's length.
    """
    place = -1
    for _ in range(_OCCURRENCES):
        place = line.find(word, place + 1)
        if place < 0:
            return None
        if match := regex.match(line, place):
            return match
    return None


def mentions(line: str, words: Iterable[str]) -> bool:
    """Whether one of some words stands in a line; a plain loop, for it is asked a dozen times of each line."""
    for word in words:  # noqa: SIM110
        if word in line:
            return True
    return False


def pattern(kind: str, regex: str, subject: str, words: tuple[str, ...] = ()) -> LinePattern:
    """A pattern that may stand anywhere in a line; `words` are what it begins with where that is no literal."""
    found = _LITERAL.match(regex)
    own = (found[0],) if found and not _has_branches(regex) else ()
    return LinePattern(kind, re.compile(regex), subject, words or own)


def _has_branches(regex: str) -> bool:
    """Whether there is a `|` outside of all brackets; in a class of characters none of the patterns has brackets."""
    depth = 0
    for char in re.sub(r"\\.|\[[^\]]*\]", "", regex):
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            return True
    return False


def matches(patterns: Sequence[LinePattern], line: str) -> Iterator[tuple[LinePattern, re.Match[str], str | None]]:
    """The first pattern of each kind that the line matches, with its match and its subject."""
    found: set[str] = set()
    for known in patterns:
        for word in known.words:
            if word in line:
                break
        else:
            if known.words:
                continue
        if known.kind not in found and (match := known.search(line)):
            found.add(known.kind)
            groups = {name: value or "" for name, value in match.groupdict().items()}
            yield known, match, known.subject.format_map(groups).strip() or None


# slurmstepd says these into the log of its daemon and into the output of the job.
SLURM_CANCELLED = pattern(
    "job_cancelled",
    r"(?:JOB|STEP) (?P<job>\S+) ON \S+ CANCELLED AT \S+(?P<why> DUE (?:TO|to) [A-Za-z ]+)?",
    "job={job}{why}",
    ("JOB ", "STEP "),
)
SLURM_OUT_OF_MEMORY = pattern(
    "oom_kill", r"Detected \d+ oom[_-]kill event(?:s|\(s\))? in (?:step )?(?P<step>\S+?)(?: cgroup)?\. ", "{step}"
)
# Slurm's control group of a task, by its number within its node (`cgroup_g_task_addto` of src/interfaces/cgroup.c): the kernel
# names a process of it that it killed, systemd-oomd ends all of them.
_TASK_GROUP = r"/job_(?P<job>\d{1,12})/step_\w{1,12}/(?:user/)?task_(?P<task>\d{1,5})(?!\w)"
_POD_GROUP = r"[/-]pod(?P<uid>[\da-f]{8}(?:[_-][\da-f]{4}){3}[_-][\da-f]{12})"
TASK_OUT_OF_MEMORY = (
    pattern(
        "task_killed",
        rf"oom-kill:constraint=.{{1,600}}?,task_memcg=\S{{0,200}}?{_TASK_GROUP}.{{1,200}}?\bpid=(?P<pid>\d{{1,9}})\b",
        "job={job} task={task} pid={pid}",
    ),
    pattern(
        "task_killed",
        rf"Killed /\S{{0,200}}?{_TASK_GROUP} due to memory (?:pressure|used) ",
        "job={job} task={task}",
    ),
    # The kernel, of a process of a pod of Kubernetes.
    pattern(
        "pod_killed",
        rf"oom-kill:constraint=.{{1,600}}?,task_memcg=\S{{0,200}}?{_POD_GROUP}\S{{0,200}}?,.{{0,200}}?\bpid=(?P<pid>\d{{1,9}})\b",
        "uid={uid} pid={pid}",
    ),
)

# The type of an exception where its message, or the end of the line, follows.
EXCEPTION_TYPE = r"(?P<type>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit))(?:: |$)"
# What the driver says without an Xid.
FALLEN_OFF = r"NVRM: (?:The NVIDIA )?GPU (?P<device>[0-9a-fA-F:.]{7,16}\d).{0,80}?\bf[ae]ll(?:en)? off the bus"
# A rank that a line states, wherever it stands.
STATED_RANK = re.compile(r"(?<![A-Za-z_])(?:rank|RANK|Rank)[ _:=]{0,2}(\d{1,7})\b")
MISSED_BARRIER = r"Ranks? (?P<ranks>\d[\d, ]{0,4000}) failed to pass monitoredBarrier"
