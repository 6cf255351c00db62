"""Pods as `kubectl get pods -o yaml` or `-o json` gives them: how their containers ended (docs/formats/pod-record.md).

Upstream: `PodStatus` and `ContainerStatus` of kubernetes/api/core/v1. A start that ended before the present one (`lastState`)
is no end of this one; containers that only prepare (`initContainerStatuses`) are none of the job's.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_rows
from forensics.ingest._shared.content import Lines, from_first_character, read_object
from forensics.ingest._shared.process_ranks import ProcessRank, process_rank_batches
from forensics.ingest._shared.rows import add_row
from forensics.ingest.interface import Batch, Ingester, Item, Problem
from forensics.ingest.pod_record.leaves import Leaf, of_document, of_lines

MAX_PODS = 65_536
_TEXT = re.compile(rb"(?:---\s*\n)?apiVersion: v1\r?\n(?:items:\r?\n- apiVersion: v1\r?\n  )?kind: Pod\r?\n")
_DOCUMENT = re.compile(rb'\{\s*"apiVersion": ?"v1",\s*(?:"items": ?\[\s*\{\s*"apiVersion": ?"v1",\s*)?"kind": ?"Pod"')
_ENDED = ("status", "containerStatuses", "state", "terminated")
_STATUS = ("status", "reason")
_NAME, _UID = ("metadata", "name"), ("metadata", "uid")
_ENV = ("spec", "containers", "env")
_DEVICES = ("spec", "containers", "resources", "limits", "nvidia.com/gpu")
_EVICTED = ("Evicted", "Preempting", "DeadlineExceeded")


def sniff(head: bytes, path: str) -> int:
    """The record of a pod, or a list of them."""
    begin = from_first_character(head)
    return 60 if _TEXT.match(begin) or _DOCUMENT.match(begin) else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """How each container ended, by an error or for its memory, and the ranks that environments of pods with one GPU state."""
    is_document = from_first_character(artefact.begin(64)).startswith(b"{")
    lines = None if is_document else Lines(artefact)
    document = (yield from read_object(artefact)) if lines is None else None
    pods = _Pods()
    for leaf in of_document(document or {}) if lines is None else of_lines(lines):
        pods.feed(leaf)
        if pods.count > MAX_PODS:
            yield Problem(f"more than {MAX_PODS} pods; the rest was left out")
            break
    if lines is not None and lines.problem is not None:
        yield lines.problem
    yield from pods.batches()


class _Pods:
    """Takes leaves in the order of the record: metadata before spec before status, as the server sorts them."""

    def __init__(self) -> None:
        self.count = 0
        self._pod = ""
        self._variable = ""
        self._stated: int | None = None
        self._ranks: dict[str, int] = {}
        self._identified: list[tuple[str, str]] = []
        self._columns: dict[str, list[Any]] = defaultdict(list)

    def feed(self, leaf: Leaf) -> None:
        """Take one value with the keys above it."""
        if leaf.path == _NAME:
            self._pod, self._stated, self.count = leaf.value[:253], None, self.count + 1
        elif leaf.path == _UID and self._pod:
            self._identified.append((self._pod, leaf.value[:64]))
        elif leaf.path[:-1] == _ENV:
            self._feed_environment(leaf)
        elif leaf.path == _DEVICES and leaf.value == "1" and self._stated is not None:
            self._ranks[self._pod] = self._stated
        elif self._pod and leaf.path[:-1] == _ENDED:
            self._feed_end(leaf)
        elif self._pod and leaf.path == _STATUS and leaf.value in _EVICTED:
            self._add(leaf, "pod_evicted", f"pod={self._pod} {leaf.value}")

    def _feed_environment(self, leaf: Leaf) -> None:
        if leaf.path[-1] == "name":
            self._variable = leaf.value
        elif leaf.path[-1] == "value" and self._variable == "RANK" and leaf.value.isdecimal() and len(leaf.value) < 8:
            self._stated = int(leaf.value)

    def _feed_end(self, leaf: Leaf) -> None:
        key, value = leaf.path[-1], leaf.value
        if key == "exitCode" and value.isdecimal() and value != "0":
            self._add(leaf, "process_exit", f"exitcode={int(value[:5])} pod={self._pod}")
        elif key == "reason" and value == "OOMKilled":
            self._add(leaf, "oom_kill", f"pod={self._pod} OOMKilled")
        elif key == "finishedAt" and self._columns["kind"] and self._columns["kind"][-1] == "process_exit":
            self._columns["time_ns"][-1] = _time(value)

    def _add(self, leaf: Leaf, kind: str, subject: str) -> None:
        text = f"{'.'.join(leaf.path)}: {leaf.value[:200]}"
        row = {"locator": leaf.line, "time_ns": None, "rank": None, "kind": kind, "subject": subject, "text": text}
        add_row(self._columns, row)

    def batches(self) -> Iterator[Batch]:
        """Events in the order of the record, and ranks: pods are hosts."""
        if self._columns["kind"]:
            yield Batch("log_events", dict(self._columns))
        for pod, uid in self._identified:
            yield from config_rows([("pod.uid", uid)], host=pod)
        yield from process_rank_batches(ProcessRank("environment", pod, rank=rank) for pod, rank in self._ranks.items())


def _time(value: str) -> int | None:
    try:
        return int(datetime.fromisoformat(value).timestamp()) * 1_000_000_000
    except (ValueError, OverflowError):
        return None


INGESTER = Ingester("pod_record", "pod_record", sniff, rows, most=60)
