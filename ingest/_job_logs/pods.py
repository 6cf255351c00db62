"""What Kubernetes prints of the pods of a job: `kubectl describe pod`, `get pods`, `get events`, training operator, Volcano,
DLRover's master, and Vertex AI of its replicas.

Upstream: staging/src/k8s.io/kubectl/pkg/describe of kubernetes/kubernetes, the training operator of Kubeflow,
pkg/controllers/job/job_controller.go of volcano-sh/volcano.
What is printed of a pod stands anywhere in a log: its place there shows nothing of the time. A pod that was killed, but not for
its memory, may have been asked to end.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from forensics.ingest._job_logs import pod_rows, supervised
from forensics.ingest._job_logs.ended import DESCRIBED, Ended
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared.prompts import is_command
from forensics.ingest._shared.values import rank_number

WORDS = (
    *pod_rows.WORDS,
    *supervised.WORDS,
    "kubectl ",
    "global_ranks=[",
    "Error pod ",
    "Name:    ",
    "Last State:",
    "OOMKilled",
    " exited with code ",
    "Event:PodFailed",
    " to Failed][",
    " exited with a non-zero status of ",
    "The node was low on resource: ",
    "Pod ephemeral local storage usage exceeds",
    "first failed job: ",
    "Gracefully stopping",
    "Aborting on container exit",
)
_LONGEST_BLOCK = 256
_POD = re.compile(r"Error pod (?P<pod>[\w.-]{1,253}) container \S{1,253} exitCode: (?P<code>\d{1,3})")
_FAILED = re.compile(
    r"\bPod: [a-z0-9-]{1,63}\.(?P<operator>[a-z0-9][\w.-]{0,252}) exited with code (?P<exited>\d{1,3})\b"
    r"|\bPod:(?P<volcano>[a-z0-9][\w.-]{0,252}), Event:PodFailed, ExitCode:(?P<code>\d{1,3})\b"
    r"|\bThe replica (?P<replica>[a-z][\w-]{0,62}(?: \d{1,5})?) exited with a non-zero status of (?P<status>\d{1,3})\b"
)
# DLRover's master does not say with which code.
_STATUS = re.compile(r"\]\[(?P<pod>[a-z0-9][\w.-]{0,252})\]\[status_update\]\[\w{1,20} to Failed\]\[")
# Docker Compose kills those containers that do not end by themselves when it is asked to stop, or ends with the first of them.
_STOPPING = ("Gracefully stopping", "Aborting on container exit")
_SERVICE = re.compile(
    r"^(?P<service>rank_?(?P<rank>\d{1,5})(?:-1)?|[A-Za-z][\w.-]{0,62}-\d{1,5}) exited with code (?P<code>\d{1,3})\b"
)
# The controller of JobSets, of the job of one slice or worker.
_FIRST_JOB = re.compile(r"first failed job: (?P<job>[a-z0-9][\w.-]{0,252}?)\)")
_ROW = re.compile(r"^(?P<pod>[a-z0-9][\w.-]{0,252}) +\d{1,3}/\d{1,3} +OOMKilled +\d{1,9}\b")
# What is shown below is the log of one pod, whose agent says which ranks it started.
_SHOWN = re.compile(
    r"^[^\n]{0,120}?(?:^|[$#%>] ?)kubectl (?:[^\n|;]{0,200}? )?logs (?:-\S{1,80} (?:[a-z][\w-]{0,62} )?)*"
    r"(?:pods?/)?(?P<pod>[a-z0-9][\w.-]{0,252})"
)
_STARTED = re.compile(r"\bglobal_ranks=\[(\d{1,7})\]")
_NAMED = re.compile(r"^Name: {4,40}(?P<pod>[a-z0-9][\w.-]{0,252})$")
_STATE = re.compile(r"^ {2,12}(?:Last )?State: {1,20}Terminated$")
_REASON = re.compile(r"^ {2,12}(?:Reason: {1,20}(?P<reason>\w{1,40})|Exit Code: {1,20}(?P<code>\d{1,3}))$")
# The kubelet ends a pod that holds more than it asked for, when its node runs out, and one that holds more than its limit.
EVICTED = r"(?:The node was low on resource: (?:memory|ephemeral-storage)\b|Pod ephemeral local storage usage exceeds )"
_EVICTED = re.compile(rf"^Message: {{1,20}}{EVICTED}")
_EVENT = re.compile(
    r"^(?:\S{1,12} (?:\(\S{1,12} ago\) )?)? {0,40}Warning {1,12}Evicted {1,20}pod/(?P<pod>[a-z0-9][\w.-]{0,252}) {1,80}"
    + EVICTED
)
_SETTING = re.compile(r"^ {2,12}(?P<name>[\w./-]{1,80}): {1,40}(?P<value>\S{1,80})$")


class Pods:
    """Reads them; `ranks` are those of pods with one process, as their description or their agent tells; `rows` has states."""

    def __init__(self) -> None:
        self.ranks: dict[str, int] = {}
        self.rows = pod_rows.PodRows()
        self._supervised = supervised.Supervised()
        self._pod: str | None = None
        self._shown: str | None = None
        self._reason: str | None = None
        self._devices: str | None = None
        self._ended: set[str] = set()
        self._is_stopping = False
        self._lines = 0

    @property
    def is_open(self) -> bool:
        """Whether a description goes on."""
        return self._pod is not None

    def feed(self, number: int, line: str) -> Iterator[Ended]:
        """What this line completes."""
        self._lines += 1
        if self._lines > _LONGEST_BLOCK:
            self._pod = None
        if not self.is_open and not mentions(line, WORDS):
            return
        self.rows.feed(number, line)
        yield from self._supervised.feed(line)
        if shown := _SHOWN.match(line):
            self._shown = shown["pod"]
        elif "kubectl " in line and is_command(line):
            self._shown = None
        elif self._shown is not None and (started := _STARTED.search(line)):
            self.ranks[label(self._shown)] = int(started[1])
        if said := _NAMED.match(line):
            self._pod, self._reason, self._devices, self._lines = said["pod"], None, None, 0
        elif self._pod is not None:
            yield from self._described(self._pod, line)
        if evicted := _EVENT.match(line):
            yield from self._end(evicted["pod"], 128 + signal.SIGKILL, DESCRIBED)
        if row := _ROW.match(line):
            self._pod = None
            yield from self._end(row["pod"], 128 + signal.SIGKILL, DESCRIBED)
        elif error := _POD.search(line):
            yield from self._end(error["pod"], int(error["code"]), " by=mpi")
        elif (status := _STATUS.search(line)) and status["pod"] not in self._ended:
            self._ended.add(status["pod"])
            yield Ended(None, f"pod={status['pod']}{DESCRIBED}", label(status["pod"]))
        elif job := _FIRST_JOB.search(line):
            yield from self._end(job["job"], None, DESCRIBED)
        elif mentions(line, _STOPPING):
            self._is_stopping = True
        elif service := _SERVICE.match(line):
            yield from self._stopped(service, int(service["code"]))
        elif failed := _FAILED.search(line):
            code = int(failed["exited"] or failed["code"] or failed["status"])
            pod = failed["operator"] or failed["volcano"] or failed["replica"].replace(" ", "-")
            yield from self._end(pod, code, " by=mpi") if code else ()

    def _stopped(self, service: re.Match[str], code: int) -> Iterator[Ended]:
        """A container that a signal ended before another one failed; several have no order, as when somebody kills them all."""
        if code > 128 and not self._is_stopping:
            # A fault of memory is the container's own; who killed it is not stated.
            how = code if code == 128 + signal.SIGKILL else 128 - code
            name = service["service"]
            yield Ended(rank_number(service["rank"] or ""), f"exitcode={how} service={name}{DESCRIBED}", f"service {name}")
        self._is_stopping = self._is_stopping or 0 < code <= 128

    def _described(self, pod: str, line: str) -> Iterator[Ended]:
        if _EVICTED.match(line):
            yield from self._end(pod, 128 + signal.SIGKILL, DESCRIBED)
        elif _STATE.match(line):
            self._reason = "unknown"
        elif self._reason and (found := _REASON.match(line)):
            self._reason = found["reason"] or self._reason
            code = int(found["code"] or 0)
            if code and (code != 128 + signal.SIGKILL or self._reason == "OOMKilled"):
                yield from self._end(pod, code, DESCRIBED)
            self._reason = None if found["code"] else self._reason
        elif setting := _SETTING.match(line):
            self._devices = setting["value"] if setting["name"] == "nvidia.com/gpu" else self._devices
            rank = rank_number(setting["value"]) if setting["name"] == "RANK" and self._devices == "1" else None
            if rank is not None:
                self.ranks[label(pod)] = rank

    def _end(self, pod: str, code: int | None, how: str) -> Iterator[Ended]:
        if pod not in self._ended:
            self._ended.add(pod)
            yield Ended(None, f"exitcode={'unknown' if code is None else code} pod={pod}{how}", label(pod))


def label(pod: str) -> str:
    """What lines of the pod are labelled with."""
    return f"pod {pod}"
