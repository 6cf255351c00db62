"""Rows of `kubectl get pods`: the pods of one job of which some run and others are in another state.

Upstream: printPod of pkg/printers/internalversion of kubernetes/kubernetes, for the order of columns and the words of states.
A listing shows what is now, of all jobs of a namespace, pods of former ones among them: a pod counts beside running pods that
are called alike, and one that came to its end in good order counts never.
"""

from __future__ import annotations

import re
import signal
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from forensics.ingest._job_logs.ended import DESCRIBED
from forensics.ingest._job_logs.event_owners import LAUNCHER
from forensics.ingest._job_logs.event_rows import Events
from forensics.ingest._job_logs.line_origin import Origin

_RUNS, _KILLED = "Running", "OOMKilled"
# What keeps a pod from its work; a pod of which the memory ran out is read as an end (pods.py).
_STATES = (
    *("Error", "CrashLoopBackOff", "Evicted", "Pending", "ContainerCreating", "ContainerStatusUnknown", "NodeLost", "Unknown"),
    *("ErrImagePull", "ImagePullBackOff", "RunContainerError", "CreateContainerError", "CreateContainerConfigError"),
    *("StartError", "UnexpectedAdmissionError", "NodeAffinity", "NodeShutdown", "Terminating"),
)
WORDS = (*(f" {state} " for state in (_RUNS, *_STATES)), " READY ")
# A log of a session has something in front of each line, also of the heading.
_HEADING = re.compile(r"^(?P<front>\S.{0,64}?)(?:NAMESPACE +)?NAME +READY +STATUS +RESTARTS +AGE\b")
_ROW = re.compile(
    r"^(?:[a-z0-9-]{1,63} +)?(?P<pod>[a-z0-9][\w.-]{0,252}) +\d{1,3}/\d{1,3} +(?P<state>[A-Z][A-Za-z]{2,40}) +"
    r"\d{1,9}(?: \(\S{1,12} ago\))? +\d\S{0,15}(?: |$)"
)
# Pods of one job differ in their number, those of a training operator in their role, and those of an indexed job end at random.
_ROLES = "master|worker|launcher|chief|ps|leader|head|server|node|replica"
_NAMED = re.compile(rf"(?P<job>.*?)-(?:(?:{_ROLES})-)?\d{{1,5}}(?:-[a-z0-9]{{5}})?")
_MOST = 1 << 12


class _Row(NamedTuple):
    line: int
    pod: str
    state: str
    text: str


class PodRows:
    """Collects the rows; the last one of a pod counts."""

    def __init__(self) -> None:
        self._by_job: dict[str, dict[str, _Row]] = {}
        self._front = ""

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if heading := _HEADING.match(line):
            self._front = heading["front"]
        found = _ROW.match(line.removeprefix(self._front))
        if found is None or (job := _job(found["pod"])) is None or len(self._by_job) >= _MOST:
            return
        rows = self._by_job.setdefault(job, {})
        if found["pod"] in rows or len(rows) < _MOST:
            rows[found["pod"]] = _Row(number, found["pod"], found["state"], line)

    def add_to(self, events: Events) -> None:
        """Each pod in another state than the running ones of its job; what is said of pods of other jobs shows nothing."""
        states = {row.pod: row.state for rows in self._by_job.values() for row in rows.values()}
        for pod in killed_in_another_job(states):
            events.set_aside("process_exit", killed(pod))
        for rows in self._by_job.values():
            running = sum(row.state == _RUNS for row in rows.values())
            for row in rows.values() if running else ():
                if row.state in _STATES:
                    subject = f"pod={row.pod} state={row.state} running={running}"
                    events.add(row.line, "pod_not_running", subject, row.text, None, Origin(None, LAUNCHER, "", 0))


def killed(pod: str) -> str:
    """The subject of the end of a pod that a listing says was killed for its memory."""
    return f"exitcode={128 + signal.SIGKILL} pod={pod}{DESCRIBED}"


def killed_in_another_job(states: Mapping[str, str]) -> frozenset[str]:
    """Pods killed for their memory that are called like no other one of a listing in which pods of something else run."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for pod in states:
        by_name[pod.partition("-")[0]].append(pod)
    alone = {pods[0] for pods in by_name.values() if len(pods) == 1 and states[pods[0]] == _KILLED}
    return frozenset(alone) if _RUNS in states.values() else frozenset()


def _job(pod: str) -> str | None:
    found = _NAMED.fullmatch(pod)
    return found["job"] if found else None
