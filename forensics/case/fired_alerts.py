"""Alerts of Prometheus as its Alertmanager sends or lists them, in lines of a log: those that fire, and about what.

So are scheduled events of Azure, the checks of EC2 (`aws ec2 describe-instance-status`), and the nodes of a job of AWS Batch
(`aws batch describe-jobs`).

Upstream: template/template.go (`Data`) and api/v2 (`gettableAlert`) of prometheus/alertmanager.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from forensics.ingest._job_logs.alert_places import place_of
from forensics.ingest._job_logs.monitor_lines import ALERT, NODE_GONE, TAKEN

MARKS = (b'"alertname"', b'"InstanceStatuses"', b'"ClusterNodeSummaries"', b'"nodeDetails"', b'"DocumentIncarnation"')
"""One of these stands in every such document."""
_MOST, _MOST_DOCUMENTS = 10_000, 64
_BRACE = re.compile(r"(?m)^[{[]")
_OVER = "alert over "
# Scheduled events of Azure that have begun, or are over, and end what runs on a virtual machine, or hold it up.
_BEGUN, _ENDS = ("Started", "Completed"), ("Freeze", "Reboot", "Redeploy", "Preempt", "Terminate")
_FIRES = ("firing", "active")
# The host of a container of AWS Batch, where its instance was ended.
_TAKEN = re.compile(r"Host EC2 \(instance (i-\w{1,32})\) terminated")
_WORD = re.compile(r"[\w.:/-]{1,253}")


def lines_of_alerts(value: Any) -> bytes | None:
    """A line for each alert; None for anything else."""
    if isinstance(value, dict) and isinstance(checked := value.get("InstanceStatuses"), list):
        return "".join(f"{line}\n" for line in map(_checked, checked[:_MOST])).encode("utf-8", "replace")
    if isinstance(value, dict) and isinstance(listed := value.get("ClusterNodeSummaries"), list):
        return "".join(f"{line}\n" for line in map(_hyperpod, listed[:_MOST])).encode("utf-8", "replace")
    if isinstance(value, dict) and "DocumentIncarnation" in value and isinstance(listed := value.get("Events"), list):
        return "".join(f"{line}\n" for event in listed[:_MOST] for line in _scheduled(event)).encode("utf-8", "replace")
    if isinstance(value, dict) and _of_nodes(value.get("jobs")):
        return "".join(f"{line}\n" for line in _batch_nodes(value["jobs"][:_MOST])).encode("utf-8", "replace")
    listed = value.get("alerts") if isinstance(value, dict) else value
    listed = listed.get("alerts") if isinstance(listed, dict) else listed
    if not isinstance(listed, list) or not listed or not all(map(_is_alert, listed)):
        return None
    return "".join(f"{line}\n" for line in map(_line, listed[:_MOST])).encode("utf-8", "replace")


def lines_of_quoted(content: bytes) -> bytes | None:
    """The same of documents that stand in a text, each from a line that begins with its first brace; None without any."""
    if not any(mark in content for mark in MARKS):
        return None
    text, decoder, found, place = content.decode("utf-8", "replace"), json.JSONDecoder(), [], 0
    for begin in islice(_BRACE.finditer(text), _MOST_DOCUMENTS):
        if begin.start() < place:
            continue
        try:
            value, place = decoder.raw_decode(text, begin.start())
        except (ValueError, RecursionError):
            continue
        found.append(lines_of_alerts(value) or b"")
    return b"".join(found) or None


def _is_alert(value: Any) -> bool:
    labels = value.get("labels") if isinstance(value, dict) else None
    return isinstance(labels, dict) and isinstance(labels.get("alertname"), str)


def _line(alert: Mapping[str, Any]) -> str:
    """One that is over, or of no known host, tells where nothing is to be looked for."""
    labels = alert["labels"]
    fires = ALERT if _state(alert) in _FIRES else _OVER
    place = place_of(labels)
    return f"{fires}{'_'.join(labels['alertname'].split())}{f' {place}' if place else ''}"


def _hyperpod(node: Any) -> str:
    """One instance of a cluster of SageMaker HyperPod (`aws sagemaker list-cluster-nodes`)."""
    said = node if isinstance(node, dict) else {}
    status = said.get("InstanceStatus")
    is_bad = isinstance(status, dict) and status.get("Status") == "Failure"
    host = _instance(said)
    return f"{ALERT if is_bad else _OVER}HyperPod_hardware_status{f' host={host}' if host else ''}"


def _scheduled(event: Any) -> Iterator[str]:
    """The virtual machines of a scheduled event of Azure (Instance Metadata Service), which is announced before it begins."""
    said = event if isinstance(event, dict) else {}
    how, machines = said.get("EventType"), said.get("Resources")
    is_begun = said.get("EventStatus") in _BEGUN and how in _ENDS
    for name in machines[:_MOST] if isinstance(machines, list) else ():
        if isinstance(name, str) and _WORD.fullmatch(name):
            yield f"{TAKEN}{name} {how}" if is_begun else f"{_OVER}event of Azure host={name}"


def _of_nodes(jobs: Any) -> bool:
    """Whether these are the nodes of jobs of AWS Batch (`aws batch describe-jobs`)."""
    return isinstance(jobs, list) and any(isinstance(job, dict) and isinstance(job.get("nodeDetails"), dict) for job in jobs)


def _batch_nodes(jobs: Sequence[Any]) -> Iterator[str]:
    """A line of each node: one whose host was taken away, while it failed, and others; what ran again is not lost."""
    for job in jobs:
        said = job if isinstance(job, dict) else {}
        details, reason = said.get("nodeDetails"), said.get("statusReason")
        number = details.get("nodeIndex") if isinstance(details, dict) else None
        gone = _TAKEN.match(reason) if isinstance(reason, str) and said.get("status") == "FAILED" else None
        yield f"{NODE_GONE}{number} ({gone[1]})" if gone and isinstance(number, int) else "node of a job of AWS Batch"


def _checked(status: Any) -> str:
    """One instance of EC2."""
    said = status if isinstance(status, dict) else {}
    checks = [said.get(name) for name in ("InstanceStatus", "SystemStatus", "AttachedEbsStatus")]
    is_bad = any(isinstance(each, dict) and each.get("Status") == "impaired" for each in checks)
    host = _instance(said)
    return f"{ALERT if is_bad else _OVER}EC2_status_check{f' host={host}' if host else ''}"


def _state(alert: Mapping[str, Any]) -> Any:
    """Its own, not that of the group with which it was sent."""
    status = alert.get("status", alert.get("state"))
    return status.get("state") if isinstance(status, dict) else status


def _instance(said: Mapping[str, Any]) -> str | None:
    found = said.get("InstanceId")
    return found if isinstance(found, str) and _WORD.fullmatch(found) else None
