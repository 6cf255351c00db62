"""What a scheduler says of a job: daemons and tables of Slurm, `kubectl get events` and `describe`, events of HTCondor.

docs/formats/scheduler-log.md. Upstream: src/slurmctld/job_mgr.c and src/slurmd/slurmstepd/req.c of SchedMD/slurm; the tables of
kubectl. Times of Slurm have no zone, those of kubectl are ages: both are unknown.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._job_logs.front import iso_time
from forensics.ingest._job_logs.patterns import SLURM_CANCELLED, SLURM_OUT_OF_MEMORY, matches, pattern
from forensics.ingest._job_logs.pods import EVICTED
from forensics.ingest._shared.config import config_rows
from forensics.ingest._shared.content import Lines, read_json
from forensics.ingest._shared.node_lists import hosts
from forensics.ingest._shared.process_ranks import ProcessRank, process_rank_batches
from forensics.ingest.interface import Batch, Ingester, Item, Problem
from forensics.ingest.scheduler_log import (
    accounts,
    batch_hosts,
    condor_events,
    container_table,
    down_nodes,
    event_records,
    kube_nodes,
    lost_by_job,
    pod_ends,
    pod_table,
)

MAX_EVENTS = 200_000
MAX_TEXT = 4096
SNIFFED_BYTES = 4096

_SLURM = re.compile(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{3})?\] ")
_EVENTS = re.compile(r"(?:NAMESPACE +)?LAST SEEN +TYPE +REASON +OBJECT +MESSAGE")
_DESCRIBED = re.compile(r"Name: +(?P<name>[\w.-]+)\s*$")
_SLURM_WORD = re.compile(r"JobId=|StepId=|slurmd|slurmctld|slurmstepd|Nodes? \S+ not responding|launch task|error: ")

_SLURM_EVENTS = (
    pattern("node_failed", r"Nodes? (?P<host>\S+?) not responding, setting DOWN", "{host}"),
    pattern("node_not_responding", r"Nodes? (?P<host>\S+?) not responding(?!, setting)", "{host}"),
    pattern(
        "job_cancelled",
        r"(?:requeue job|Killing) (?P<job>JobId=\S+) (?:due to failure of|on failed) node (?P<host>\S+)",
        "{job} node failure {host}",
        ("requeue job ", "Killing "),
    ),
    pattern("job_cancelled", r"Time limit exhausted for (?P<job>JobId=\S+)", "{job} time limit"),
    pattern("job_cancelled", r"REQUEST_KILL_JOB (?P<job>JobId=\S+)", "{job} on request"),
    pattern(
        "job_cancelled",
        r"[Pp]reempted (?P<job>JobId=\S+) (?:has been|had to be) \w+",
        "{job} preemption",
        ("Preempted ", "preempted "),
    ),
    *pod_ends.PATTERNS,
    SLURM_CANCELLED,
    SLURM_OUT_OF_MEMORY,
)
_EVENT = re.compile(
    r"(?:Normal|Warning)\s+(?P<reason>[A-Z]\w{1,60})\s+(?P<object>(?:pod|node|job\S*|\w+)/[\w.-]+)\s+(?P<message>.*)"
)
# Reasons of events of kubelet, scheduler and controllers that end pods; "Killing" is every ordinary stop as well.
_REASONS = {
    "OOMKilling": "oom_kill",
    "SystemOOM": "oom_kill",
    "Evicted": "pod_evicted",
    "TaintManagerEviction": "pod_evicted",
    "Preempted": "pod_evicted",
    "Preempting": "pod_evicted",
    "Killing": "pod_stopped",
    "NodeNotReady": "node_failed",
    "NodeNotSchedulable": "node_failed",
    "FailedMount": "mount_failed",
}
# One of these stands in every line that is understood, and such a line is no shorter ("Name: a").
_WORDS = (
    *("Name: ", "Node", "JobId=", "CANCELLED", "oom", "Normal", "Warning"),
    *("Reason: ", "Exit Code: ", "Finished: ", "low on resource: ", "usage exceeds "),
    "first failed job: ",
    *down_nodes.WORDS,
    *lost_by_job.WORDS,
)
_SHORTEST = 7
_MOST_ABOVE = 10
"""Lines that other commands may have printed above a listing of nodes."""
_STATE = re.compile(r"\s+Reason: +(?P<reason>OOMKilled|Evicted|ContainerCannotRun|DeadlineExceeded)\s*$")
_LOW = re.compile(rf"Message: +{EVICTED}")
_EXIT = re.compile(r"\s+Exit Code: +(?P<code>\d{1,3})\s*$")
# "Tue, 04 Nov 2025 09:01:13 +0000", two lines below the code of the container that ended then.
_FINISHED = re.compile(r"\s+Finished: +(?P<when>\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4})\s*$")
_LONGEST_STATE = 4


# An indexed Job numbers its pods, and the rank may be that number.
_INDEX = re.compile(r".{0,200}\bjob-completion-index(?:=|: +)(?P<index>\d{1,7})\s*$")
_BY_INDEX = re.compile(r"\s+RANK: .{0,80}job-completion-index'\]\)\s*$")
_STATED = re.compile(r"\s+RANK: +(?P<rank>\d{1,7})\s*$")
# The training operator of Kubeflow gives torchrun of a pod its node and how many processes to start.
_OF_NODE = re.compile(r"\s+PET_(?P<name>NODE_RANK|NPROC_PER_NODE): +(?P<value>\d{1,5})\s*$")
_DEVICES = re.compile(r"\s+nvidia\.com/gpu: +(?P<count>\d{1,4})\s*$")


class _PodRanks:
    """The rank of each described pod with one device, one process: its index, or as its environment has it; or its node."""

    def __init__(self) -> None:
        self._ranks: dict[str, int] = {}
        self._nodes: dict[str, dict[str, int]] = defaultdict(dict)
        self._index: int | None = None
        self._devices: int | None = None

    def feed(self, line: str, pod: str) -> None:
        """Take one line of the description of a pod."""
        if _DESCRIBED.match(line):
            self._index = self._devices = None
        elif index := _INDEX.match(line):
            self._index = int(index["index"])
        elif devices := _DEVICES.match(line):
            self._devices = int(devices["count"])
        elif self._devices == 1 and self._index is not None and _BY_INDEX.match(line):
            self._ranks[pod] = self._index
        elif self._devices == 1 and (stated := _STATED.match(line)):
            self._ranks[pod] = int(stated["rank"])
        elif node := _OF_NODE.match(line):
            self._nodes[pod][node["name"]] = int(node["value"])

    def batches(self) -> Iterator[Batch]:
        """Rows of `process_ranks`: pods are hosts."""
        rows = [ProcessRank("environment", pod, rank=rank) for pod, rank in self._ranks.items()]
        rows += [
            ProcessRank("environment", pod, node=said["NODE_RANK"], per_node=said["NPROC_PER_NODE"])
            for pod, said in self._nodes.items()
            if len(said) == 2
        ]
        yield from process_rank_batches(rows)


def sniff(head: bytes, path: str) -> int:
    """Lines with the time and words of a Slurm daemon, its tables of nodes, or the tables of kubectl."""
    if b"\0" in head:
        return 0
    if event_records.is_document(head):
        return 50
    lines = [line for line in head.decode("utf-8", "replace").splitlines()[:50] if line.strip(" `\t")]
    slurm = [line for line in lines if _SLURM.match(line)]
    if lines and 2 * len(slurm) > len(lines) and any(_SLURM_WORD.search(line) for line in slurm):
        return 50
    if lines and condor_events.EVENT.match(lines[0]):
        return 50
    named = any(map(_DESCRIBED.match, lines[:2]))
    described = named and any(re.match(r"(?:Node|Namespace|Status): ", x) for x in lines)
    is_of_nodes = any(map(_heads_nodes, lines[:2])) or any(map(accounts.HEADER.fullmatch, lines[:3]))
    is_of_nodes = is_of_nodes or any(map(down_nodes.LISTING.fullmatch, lines[:_MOST_ABOVE]))
    is_of_nodes = is_of_nodes or (named and any(map(kube_nodes.DESCRIBED.match, lines)))
    # Below the command that printed it.
    is_of_pods = any(_EVENTS.match(line) or pod_table.HEADER.match(line) for line in lines[:2])
    return 50 if described or is_of_nodes or is_of_pods else 0


def _heads_nodes(line: str) -> bool:
    """Whether a table of nodes, jobs or containers begins with the line, or one of them is described below it."""
    found = down_nodes.HEADER.fullmatch(line) or down_nodes.BEGIN.match(line) or down_nodes.JOBS.fullmatch(line)
    found = (
        found
        or down_nodes.STATES.fullmatch(line)
        or down_nodes.SHOWN_JOB.match(line)
        or batch_hosts.BEGIN.match(line)
        or kube_nodes.HEADER.match(line)
    )
    return bool(found or container_table.HEADER.fullmatch(line.rstrip()))


def rows(artefact: Artefact) -> Iterator[Item]:
    """Log events in the order of the lines, or of the times of records."""
    if event_records.is_document(artefact.begin(SNIFFED_BYTES)):
        yield from _of_document(artefact)
    else:
        yield from _of_text(artefact)


def _of_document(artefact: Artefact) -> Iterator[Item]:
    """A document has one place, its beginning."""
    document = read_json(artefact)
    if isinstance(document, Problem):
        yield document
        return
    columns: dict[str, list[Any]] = defaultdict(list)
    ready = kube_nodes.ReadyNodes()
    for row in islice(event_records.rows_of_document(document), MAX_EVENTS):
        ready.feed(1, row)
        for kind, subject in _events(row[:MAX_TEXT], None):
            _add(columns, 1, row[:MAX_TEXT], kind, subject)
    for end in ready.lost():
        _add(columns, *end)
    if columns["kind"]:
        yield Batch("log_events", columns)


def _of_text(artefact: Artefact) -> Iterator[Item]:
    columns: dict[str, list[Any]] = defaultdict(list)
    lines = Lines(artefact)
    pod, indexed, nodes, is_restarted = None, _PodRanks(), down_nodes.DownNodes(), False
    account, table, machines = accounts.Accounts(), pod_table.PodTable(), kube_nodes.KubeNodes()
    of_jobs, ready, jobs = lost_by_job.LostByJob(), kube_nodes.ReadyNodes(), down_nodes.JobNodes()
    states = down_nodes.StateTable()
    condor, hosts_down, containers = condor_events.CondorEvents(), batch_hosts.DownHosts(), container_table.ContainerTable()
    for number, whole in lines:
        line = whole[:MAX_TEXT]
        account.feed(number, line)
        condor.feed(number, line)
        jobs.feed(line)
        table.feed(number, line)
        containers.feed(number, line)
        for host in (*hosts_down.feed(line), *states.feed(line)):
            _add(columns, number, line, "node_down", host)
        for said in machines.feed(line):
            _add(columns, number, line, *said)
        if pod is not None:
            indexed.feed(line, pod)
        is_restarted = is_restarted or any(word in line for word in pod_ends.RESTARTED)
        if len(line) < _SHORTEST or not any(word in line for word in _WORDS):
            continue
        of_jobs.feed(number, line)
        ready.feed(number, line)
        if finished := _FINISHED.match(line):
            _date(columns, number, finished["when"])
            continue
        named = _DESCRIBED.match(line)
        pod = named["name"] if named else pod
        lost = [("node_down", node) for node in nodes.feed(line)]
        lost += [("node_dead", node)] if (node := down_nodes.listed(line)) and jobs.may_have(node) else []
        for kind, subject in (*lost, *_events(line, pod)):
            _add(columns, number, line, kind, subject)
        if len(columns["kind"]) >= MAX_EVENTS:
            yield Problem(f"more than {MAX_EVENTS} events; the rest was left out", f"line={number}")
            break
    pod_ends.note_restart(columns, is_restarted)
    for end in (*account.ends(), *table.ends(), *of_jobs.lost(), *ready.lost(), *condor.lost(), *containers.ended()):
        _add(columns, *end)
    if columns["kind"]:
        yield Batch("log_events", columns)
    yield from indexed.batches()
    yield from table.batches()
    yield from config_rows(("job.node", node) for node in jobs.of_one)
    if listed := list(hosts(account.nodes)):
        yield Batch("nodes", {"host": listed, "node": list(range(len(listed)))})
    if lines.problem is not None:
        yield lines.problem


def _add(columns: dict[str, list[Any]], number: int, line: str, kind: str, subject: str | None) -> None:
    # A number in the name of the file is that of no rank: a scheduler speaks of nodes and pods.
    row = {"locator": number, "time_ns": iso_time(line), "rank": None, "kind": kind, "subject": subject, "text": line}
    for name, value in row.items():
        columns[name].append(value)


def _date(columns: dict[str, list[Any]], number: int, when: str) -> None:
    """Give what was said of the container that ended then, in the lines right above, the time."""
    try:
        time_ns = int(datetime.strptime(when, "%a, %d %b %Y %H:%M:%S %z").timestamp()) * 1_000_000_000
    except ValueError:
        return
    for index in range(len(columns["locator"]) - 1, -1, -1):
        if number - columns["locator"][index] > _LONGEST_STATE:
            return
        columns["time_ns"][index] = time_ns


def _events(line: str, pod: str | None) -> Iterator[tuple[str, str | None]]:
    """(kind, subject) of what a line says."""
    for known, _, subject in matches(_SLURM_EVENTS, line):
        yield known.kind, subject
    if (event := _EVENT.search(line)) and event["reason"] in _REASONS:
        yield _REASONS[event["reason"]], event["object"]
        if event["reason"] == "Evicted" and event["object"].startswith("pod/") and re.match(EVICTED, event["message"]):
            yield "process_exit", f"exitcode=137 pod={event['object'].removeprefix('pod/')} evicted"
    if pod is None:
        return
    if state := _STATE.match(line):
        yield "oom_kill" if state["reason"] == "OOMKilled" else "pod_evicted", f"pod={pod} {state['reason']}"
    if _LOW.match(line):
        yield "process_exit", f"exitcode=137 pod={pod} evicted"
    if (code := _EXIT.match(line)) and code["code"] != "0":
        yield "process_exit", f"exitcode={code['code']} pod={pod}"


INGESTER = Ingester("scheduler_log", "scheduler_log", sniff, rows, most=50)
