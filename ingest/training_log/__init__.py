"""Logs of a rank or of its launcher: exceptions, lost peers, watchdog timeouts, exits (docs/formats/training-log.md).

NCCL's own lines among them are read as in a log of NCCL alone (docs/formats/nccl-log.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.front import front
from forensics.ingest._job_logs.stage_times import is_record, is_table
from forensics.ingest._job_logs.tracebacks import TRACEBACK
from forensics.ingest.interface import LAST_RESORT, Ingester, Item

_RANK = re.compile(r"\[rank(\d{1,7})\]")
# Lines of torch, NCCL, Slurm and MLPerf's logging (mlperf_logging/mllog/mllog.py), which stand in logs alone.
_OF_LOGS = re.compile(
    r"ProcessGroupNCCL\.cpp:\d+\]|NCCL (?:INFO|WARN) |slurmstepd: |srun: error: |Not all ranks joining collective|:::MLLOG \{"
)
# The output of a job of PBS and its kin is called by the name and number of the job (`train.o4711`).
_LOG_NAME = re.compile(
    r"(?:^|[/._-])(?:log|logs|out|err|stdout|stderr|output|slurm)(?:[/._-]|\d|$)|\.[oe]\d{2,10}(?:[.-]\d{1,6})?(?:$|\.(?:gz|zst|bz2|xz)$)",
    re.IGNORECASE,
)
# A runtime of containers writes a line a record; some trainers print dictionaries of Python.
_RECORD = re.compile(rb"""\{(?:'\w+': |"\w+": ?"[^"\n]{0,80}", ?"\w+": ?"|"(?:log|message|msg)": ?")""")
_OTHER_NAME = re.compile(r"\.(?:py|pyc|sh|json|jsonl|ya?ml|xml|csv|toml|cfg|ini|html)$", re.IGNORECASE)
# A name without an ending, or of a text, that is not one of those that come with programs.
_PASTED_NAME = re.compile(
    r"(?:^|/)(?!(?:readme|licen[cs]e|notice|changelog|requirements|makefile)\b)(?:[^/.]+|[^/]+\.(?:te?xt|md|markdown))(?:\.(?:gz|zst|bz2|xz))?$",
    re.IGNORECASE,
)
# A table of ranks and the step that each is at, whatever the file is called.
_OF_RANKS = re.compile(
    r"(?i)(?:[^,\t]{0,80}[,\t]){0,16}(?:global[ _]?)?rank[,\t](?:[^,\t]{0,80}[,\t]){0,16}"
    r"(?:last[ _])?(?:step|iter(?:ation)?)(?:[,\t]|$)"
)
_MOST = 5
_FIRST = 4


def sniff(head: bytes, path: str) -> int:
    """Text that is called like a log or reads like one; low, so that every other format goes first.

    Other text may be a pasted log all the same: it is tried last, and counts as one where something of a log is in it.
    """
    if not head or b"\0" in head or head[:1] == b"\x80":
        return 0
    if head[:1] == b"{" and not _RECORD.match(head):
        return _MOST if is_table(head.partition(b"\n")[0].rstrip().decode("utf-8", "replace")) else 0
    sample = head.decode("utf-8", "replace")
    if sample.count("\ufffd") > 1 + len(sample) // 50:
        return 0
    named = _LOG_NAME.search(path) and not _OTHER_NAME.search(path)
    if named or TRACEBACK in sample or _RANK.search(sample) or _OF_LOGS.search(sample):
        return _MOST
    lines = [line.rstrip() for line in sample.splitlines()[:_FIRST]]
    if lines and (is_table(lines[0]) or any(is_record(_unlabelled(line)) for line in lines if line[-1:] == "}")):
        return _MOST  # times that somebody exported, whatever the file is called
    if lines and _OF_RANKS.match(lines[0]):
        return _MOST
    return LAST_RESORT if _PASTED_NAME.search(path) else 0


def _unlabelled(line: str) -> str:
    found = front(line)
    return found.bare[found.text :]


def rows(artefact: Artefact) -> Iterator[Item]:
    """What the lines tell. Their patterns take a tenth of a second to compile: not where there is no log."""
    from forensics.ingest._job_logs import reading

    return reading.rows(artefact)


INGESTER = Ingester("training_log", "training_log", sniff, rows, _MOST)
