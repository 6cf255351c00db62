"""What a saved session of a shell tells of processes: environments that it prints, and ranks noted behind its commands.

`cat /proc/41877/environ` above `RANK=13`, or `py-spy dump --pid 41877   # rank 13`, in a file of whatever kind; and what is
noted in words: "rank 13 is pid 41877".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from forensics.bundle.claims import claim
from forensics.ingest._shared.process_ranks import ProcessRank
from forensics.ingest._shared.values import rank_number

SCANNED_BYTES = 1 << 20
"""What people type and paste is short."""
_TELLING = re.compile(
    rb"/proc/\d{1,9}/environ|#[ #]{0,8}(?i:local[ _-]?)?(?i:rank)[ :=#]{0,2}\d"
    rb"|(?i:rank)[ #]?\d{1,7}[^\n]{0,8}(?i:pid|process)|(?i:pid|process)[ :#=]{0,2}\d{2,9}[^\n]{0,12}(?i:rank)"
)
_MARKS = (b"/environ", b"#", b"pid", b"PID", b"Pid", b"rocess ")
"""One of these is in all that tells: bytes are found a hundred times faster than patterns."""
_PRINTED = re.compile(r"/proc/(\d{1,9})/environ\b")
_VARIABLE = re.compile(r"(?:export )?([A-Za-z_][A-Za-z0-9_]{0,127})=(\S{0,400})")
_NOTED = re.compile(
    r".{0,160}?\b(?:py-spy (?:dump|record)|pystack remote|gdb|strace|cat|ls)\b.{0,80}?"
    r"(?:(?:-p|--pid)[ =]?|/proc/|remote )(?P<pid>\d{2,9})\b[^#\n]{0,120}"
    r"#[ #]{0,8}(?P<local>local[ _-]?)?rank[ :=#]{0,2}(?P<rank>\d{1,7})\b[^#\n]{0,40}",
    re.IGNORECASE,
)
_IN_WORDS = (
    # "pid 41877 is rank 13" in front of the other: in a list of these, a rank stands before the next process.
    re.compile(
        r"\b(?:pid|process)[ :#=]{0,2}(?P<pid>\d{2,9})(?: is| =| ->|:| \() ?(?:global )?rank[ #]?(?P<rank>\d{1,7})\b(?![.:]\d)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?<![\w-])(?<!local )rank[ #]?(?P<rank>\d{1,7})(?: is|:|,| =| has| ->| \() ?(?:the )?"
        r"(?:pid|process)(?: id)?[ :#=]{0,2}(?P<pid>\d{2,9})\b(?![.:]\d)",
        re.IGNORECASE,
    ),
)


def processes_in(content: bytes, host: str | None) -> Iterator[ProcessRank]:
    """Each process of which the text tells one rank; what it says twice in two ways it does not tell."""
    if not any(mark in content for mark in _MARKS) or not _TELLING.search(content, 0, SCANNED_BYTES):
        return
    lines = content[:SCANNED_BYTES].decode("utf-8", "replace").splitlines()
    noted: dict[tuple[int, bool], set[int]] = defaultdict(set)
    processes: dict[int, set[int]] = defaultdict(set)
    for line in lines:
        said = _NOTED.fullmatch(line) if "#" in line else None
        rank = rank_number(said["rank"]) if said else None
        if said and rank is not None:
            noted[int(said["pid"]), said["local"] is not None].add(rank)
        for pid, rank in _in_words(line):
            noted[pid, False].add(rank)
            processes[rank].add(pid)
    for pid, variables in _environments(lines).items():
        if (stated := claim(variables)) is not None:
            noted[pid, False].add(stated.rank)
    for (pid, is_local), ranks in sorted(noted.items()):
        if len(processes[min(ranks)]) > 1:
            continue  # of two jobs, or of a rank and its children
        if len(ranks) == 1 and is_local:
            yield ProcessRank("command", host, pid, local_rank=min(ranks))
        elif len(ranks) == 1:
            yield ProcessRank("environment", host, pid, rank=min(ranks))


def _in_words(line: str) -> Iterator[tuple[int, int]]:
    """Processes and ranks that a line puts together in words."""
    said = next((found for form in _IN_WORDS if (found := list(form.finditer(line)))), [])
    for each in said:
        if (rank := rank_number(each["rank"])) is not None:
            yield int(each["pid"]), rank


def _environments(lines: list[str]) -> Mapping[int, Mapping[str, str]]:
    """Variables printed below a command that reads the environment of one process, up to the first line of something else."""
    found: dict[int, dict[str, str]] = defaultdict(dict)
    pid: int | None = None
    for line in lines:
        asked = set(_PRINTED.findall(line))
        if asked:
            pid = int(asked.pop()) if len(asked) == 1 else None
        elif pid is not None and (said := _VARIABLE.fullmatch(line.strip())):
            found[pid][said[1]] = said[2]
        elif line.strip():
            pid = None
    return found
