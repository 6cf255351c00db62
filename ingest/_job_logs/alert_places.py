"""Where an alert of Prometheus is: host and device by its labels, which exporters call by names of their own.

Upstream: dcgm-exporter has `Hostname`, `gpu` and `UUID`, node_exporter `instance`, exporters of Kubernetes `node`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_HOSTS = ("Hostname", "hostname", "host", "node", "nodename", "kubernetes_node", "node_name", "instance")
_DEVICES = ("gpu", "GPU", "device", "gpu_id", "UUID", "port")
_WORD = re.compile(r"[\w.:/-]{1,253}")
_PORT = re.compile(r":\d{1,5}$")


def place_of(labels: Mapping[str, object]) -> str | None:
    """`host=NAME`, with ` device=NAME` where one is known; None without a host."""
    host, device = next(_words(labels, _HOSTS), None), next(_words(labels, _DEVICES), None)
    return host and f"host={_PORT.sub('', host)}{f' device={device}' if device else ''}"


def _words(labels: Mapping[str, object], names: tuple[str, ...]) -> Iterator[str]:
    yield from (found for name in names if isinstance(found := labels.get(name), str) and _WORD.fullmatch(found))
