"""Nodes that Kubernetes finds not ready: `kubectl get nodes`, events, and the conditions of `kubectl describe node`.

What watches over devices adds conditions of its own: `XidCriticalError   True`, `AcceleratedHardwareReady   False`.
Upstream: printNode of pkg/printers/internalversion and describeNode of kubectl. The cluster has nodes of other jobs too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

HEADER = re.compile(r"NAME +STATUS +ROLES +AGE +VERSION\b.*")
_ROW = re.compile(
    r"(?P<node>[a-z0-9][a-z0-9.-]{0,252}) +(?P<status>[A-Z][\w,]{2,80}) +\S{1,200} +\d\w{0,12} +v\d\S{0,60}(?: .*)?"
)
_NAME = re.compile(r"Name: +(?P<node>[a-z0-9][a-z0-9.-]{0,252})\s*")
DESCRIBED = re.compile(r"(?:Roles|Taints|Unschedulable): ")
_CONDITION = re.compile(r" +Ready +(?P<status>False|Unknown) ")
_NOT_READY = "NotReady"
# What node-problem-detector and its kin add is true where something is wrong, but for what is called ready.
_TROUBLE = re.compile(
    r" +(?P<type>(?=\w*(?:Xid|GPU|Gpu|Nv[Ll]ink|NVLink|NvSwitch|NVSwitch|Infini[Bb]and|Ecc|ECC|Rdma|RDMA|Hardware|Accelerator|"
    r"KernelDeadlock|ReadonlyFilesystem|DiskIOError))(?!\w*(?:Ready|Healthy) )[A-Z]\w{2,60}) +True "
    r"| +(?P<ready>[A-Z]\w{2,60}(?<!^)(?:Ready|Healthy)) +False "
)
_EVENT = re.compile(r"\b(?P<reason>NodeNotReady|NodeReady|NodeNotSchedulable)\s+node/(?P<node>[a-z0-9][a-z0-9.-]{0,252})\s")


class KubeNodes:
    """Takes lines of either form."""

    def __init__(self) -> None:
        self._is_inside = False
        self._node: str | None = None
        self._is_node = False

    def feed(self, line: str) -> Iterator[tuple[str, str]]:
        """Take one line; kind and subject of a node that is not ready."""
        row = _ROW.fullmatch(line.rstrip()) if self._is_inside else None
        self._is_inside = HEADER.match(line) is not None or row is not None
        if row and row["status"].split(",")[0] == _NOT_READY:
            yield "node_not_ready", row["node"]
        if named := _NAME.fullmatch(line):
            self._node, self._is_node = named["node"], False
        elif DESCRIBED.match(line):
            self._is_node = True
        elif self._node is not None and self._is_node and _CONDITION.match(line):
            yield "node_not_ready", self._node
        elif self._node is not None and self._is_node and (said := _TROUBLE.match(line)):
            yield "node_condition", f"{self._node} {said['type'] or said['ready']}"


class ReadyNodes:
    """Takes events: nodes that were not ready, and not so again at the end."""

    def __init__(self) -> None:
        self._lost: dict[str, tuple[int, str]] = {}

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if (said := _EVENT.search(line)) and said["reason"] == "NodeReady":
            self._lost.pop(said["node"], None)
        elif said and said["reason"] == "NodeNotReady":
            self._lost.setdefault(said["node"], (number, line))

    def lost(self) -> Iterator[tuple[int, str, str, str]]:
        """Line, text, kind and subject of each that is left."""
        yield from ((number, line, "node_not_ready", node) for node, (number, line) in self._lost.items())
