"""Ends of pods that controllers of jobs tell of in their events, which have no date: those of Kubeflow, Volcano and JobSet.

Upstream: pkg/controller.v1/common/pod.go of kubeflow/training-operator (`ExitedWithCode`), pkg/controllers/job of
volcano-sh/volcano; JobSet names the job of one slice or worker.
"""

from __future__ import annotations

from typing import Any

from forensics.ingest._job_logs.patterns import pattern

PATTERNS = (
    pattern(
        "process_exit",
        r"Pod: [a-z0-9][\w-]{0,62}\.(?P<pod>[a-z0-9][\w.-]{0,252}) exited with code (?P<code>[1-9]\d{0,2})\b",
        "exitcode={code} pod={pod} by=events",
    ),
    pattern(
        "process_exit",
        r"Pod (?P<pod>[a-z0-9][\w.-]{0,252}) failed, exit code (?P<code>[1-9]\d{0,2})\b",
        "exitcode={code} pod={pod} by=events",
    ),
    pattern("process_exit", r"first failed job: (?P<job>[a-z0-9][\w.-]{0,252}?)\)", "exitcode=unknown pod={job}"),
)
RESTARTED = (" is restarting because ", "action RestartJob")


def note_restart(columns: dict[str, list[Any]], is_restarted: bool) -> None:
    """Call these ends earlier ones where the controller started the job again."""
    for at, subject in enumerate(columns["subject"] if is_restarted else ()):
        if subject is not None and subject.endswith(" by=events"):
            columns["kind"][at] = "earlier_process_exit"
