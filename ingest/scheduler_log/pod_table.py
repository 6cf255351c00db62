"""Tables of pods with their nodes, as `kubectl get pods -o wide` prints them.

Upstream: pkg/printers/internalversion of kubernetes/kubernetes. Operators number the pods of a job; a pod that only launches
the others has no rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.pod_rows import killed, killed_in_another_job
from forensics.ingest._shared.config import config_rows
from forensics.ingest.interface import Batch

HEADER = re.compile(r"(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE +IP +NODE\b.*")
_NAME = r"[a-z0-9][a-z0-9.-]{0,252}"
_ROW = re.compile(
    rf"(?:{_NAME} +)??(?P<pod>{_NAME}) +\d{{1,3}}/\d{{1,3}} +(?P<status>[A-Z][\w:/-]{{0,60}}) +"
    rf"\d{{1,9}}(?: +\(\w{{1,12}} ago\))? +\w{{1,12}} +\S{{1,45}} +(?P<node>{_NAME})(?: .*)?"
)
_NUMBERED = re.compile(r"(?P<stem>.*?)-(?P<number>\d{1,6})")
_LAUNCHES = ("launcher", "driver", "submitter")
_MOST = 1 << 14


class PodTable:
    """Takes lines; of a table that names one node for each of several pods."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._states: dict[str, str] = {}
        self._killed: dict[str, tuple[int, str]] = {}
        self._is_inside = False

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if HEADER.match(line):
            self._is_inside = True
        elif self._is_inside and len(self._nodes) < _MOST and (row := _ROW.fullmatch(line.rstrip())):
            if not any(word in row["pod"] for word in _LAUNCHES):
                self._nodes[row["pod"]] = row["node"]
            self._states[row["pod"]] = row["status"]
            if row["status"] == "OOMKilled":
                self._killed[row["pod"]] = number, line
        else:
            self._is_inside = False

    def ends(self) -> Iterator[tuple[int, str, str, str]]:
        """(line, text, kind, subject) of each pod that the table says was killed for its memory, of the job that runs."""
        others = killed_in_another_job(self._states)
        for pod, (number, line) in self._killed.items():
            if pod not in others:
                yield number, line, "process_exit", killed(pod)

    def batches(self) -> Iterator[Batch]:
        """Nodes of pods as settings, and the pods in the order of their numbers, masters first."""
        for pod, node in self._nodes.items():
            yield from config_rows([("pod.node", node)], host=pod)
        numbered = {pod: said for pod in self._nodes if (said := _NUMBERED.fullmatch(pod))}
        if len(numbered) == len(self._nodes) > 1:
            order = sorted(numbered, key=lambda pod: ("master" not in pod, numbered[pod]["stem"], int(numbered[pod]["number"])))
            yield Batch("nodes", {"host": order, "node": list(range(len(order)))})
