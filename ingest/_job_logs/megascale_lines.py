"""Lines of Megascale, the runtime that joins slices of TPUs: that a step hangs, and whom its coordinator takes for the cause.

Upstream: docs of megascale in openxla/xla (`Megascale detects a hang`); each worker reports to the coordinator, which is
task 0 of slice 0. What it names are hosts, or tasks of a job of which a run may have several.
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

PATTERNS = (
    pattern(
        "stall_report",
        r"Megascale hang detected: Timed out waiting for \d{1,9} graphs? to complete at launch_id (?P<launch>\d{1,12})",
        "launch {launch}",
    ),
    pattern("stall_report", r"Megascale detects a hang\b", ""),
    pattern("hang_digest", r"Potential culprit workers: (?P<workers>\S.{0,400})", "{workers}"),
)
WORDS = ("Megascale hang detected: ", "Megascale detects a hang", "Potential culprit workers: ")
