"""Alerts of Prometheus as its Alertmanager sends or lists them, in lines of a log: those that fire, and about what.

So are the checks of EC2 (`aws ec2 describe-instance-status`).

Upstream: template/template.go (`Data`) and api/v2 (`gettableAlert`) of prometheus/alertmanager. Exporters call hosts and
devices by names of their own: dcgm-exporter has `Hostname` and `gpu`, node_exporter `instance`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from forensics.ingest._job_logs.monitor_lines import ALERT

_MOST = 10_000
_HOSTS = ("Hostname", "hostname", "host", "node", "nodename", "kubernetes_node", "node_name", "instance")
_DEVICES = ("gpu", "GPU", "device", "gpu_id", "UUID", "port")
_OVER = "alert over "
_FIRES = ("firing", "active")
_WORD = re.compile(r"[\w.:/-]{1,253}")
_PORT = re.compile(r":\d{1,5}$")


def lines_of_alerts(value: Any) -> bytes | None:
    """A line for each alert; None for anything else."""
    if isinstance(value, dict) and isinstance(checked := value.get("InstanceStatuses"), list):
        return "".join(f"{line}\n" for line in map(_checked, checked[:_MOST])).encode("utf-8", "replace")
    listed = value.get("alerts") if isinstance(value, dict) else value
    listed = listed.get("alerts") if isinstance(listed, dict) else listed
    if not isinstance(listed, list) or not listed or not all(map(_is_alert, listed)):
        return None
    return "".join(f"{line}\n" for line in map(_line, listed[:_MOST])).encode("utf-8", "replace")


def _is_alert(value: Any) -> bool:
    labels = value.get("labels") if isinstance(value, dict) else None
    return isinstance(labels, dict) and isinstance(labels.get("alertname"), str)


def _line(alert: Mapping[str, Any]) -> str:
    """One that is over, or of no known host, tells where nothing is to be looked for."""
    labels = alert["labels"]
    host = next(_words(labels, _HOSTS), None)
    device = next(_words(labels, _DEVICES), None)
    fires = ALERT if _state(alert) in _FIRES else _OVER
    where = f" host={_PORT.sub('', host)}{f' device={device}' if device else ''}" if host else ""
    return f"{fires}{'_'.join(labels['alertname'].split())}{where}"


def _checked(status: Any) -> str:
    """One instance of EC2."""
    said = status if isinstance(status, dict) else {}
    checks = [said.get(name) for name in ("InstanceStatus", "SystemStatus", "AttachedEbsStatus")]
    is_bad = any(isinstance(each, dict) and each.get("Status") == "impaired" for each in checks)
    host = next(_words(said, ("InstanceId",)), None)
    return f"{ALERT if is_bad else _OVER}EC2_status_check{f' host={host}' if host else ''}"


def _state(alert: Mapping[str, Any]) -> Any:
    """Its own, not that of the group with which it was sent."""
    status = alert.get("status", alert.get("state"))
    return status.get("state") if isinstance(status, dict) else status


def _words(labels: Mapping[str, Any], names: tuple[str, ...]) -> Iterator[str]:
    yield from (found for name in names if isinstance(found := labels.get(name), str) and _WORD.fullmatch(found))
