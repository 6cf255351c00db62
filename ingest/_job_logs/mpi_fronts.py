"""Lines in front of which UCX, UCC or Open MPI puts host and number of the process, and the errors that they tell of it.

`[1678886400.512345] [node-3:56373:0] mc_cuda.c:44 cuda mc ERROR ...` (ucs_log_default_handler of UCX; UCC logs the same way),
`[node-3:56373:0:56373] Caught signal 11 (Segmentation fault: ...)` (debug.c of UCX), `[node-3:56373] Signal: Segmentation fault
(11)` (opal/util/stacktrace.c of Open MPI).
"""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from typing import NamedTuple

from forensics.ingest._job_logs.line_origin import Origin
from forensics.ingest._job_logs.nccl_lines import process_label

WORDS = ("Caught signal ", "] Signal: ", "ERROR cuda", "ERROR cu", "Transport retry count exceeded", " rlid ")
_FRONT = re.compile(
    r"(?:\[\d{9,11}\.\d{6}\] )?\[(?P<host>(?=[\w.-]{0,252}[A-Za-z])\w[\w.-]{0,252}):(?P<pid>\d{1,9}) {0,4}(?::\d{1,9}){0,2}\]"
    r" {1,24}(?P<text>\S.{0,2000})"
)
_CAUGHT = re.compile(r"(?:Caught signal (?P<number>\d{1,2}) \(|Signal: [\w ]{4,40} \((?P<stated>\d{1,2})\))")
# Nobody answered on this port: the path or the peer may have failed as well as the NIC.
_RETRIES = re.compile(r"(?P<what>Transport retry count exceeded) on (?P<nic>[\w.-]+:\d{1,3})/")
# The line below, of the work request that failed: the port of InfiniBand that it was for.
_SENT = re.compile(r"\b[A-Z]{1,8} QP 0x[\da-f]{1,8} wqe\[\d{1,9}\]: .{0,80}?\brlid (?P<lid>\d{1,6})\b")
_CUDA = re.compile(
    r"\bERROR +(?:cuda failed with |cu\w{3,60}\(.{1,300}?\)(?: is)? failed\W{0,3})(?:ret: ?)?(?P<what>\S.{0,200})"
)
# No peer sends these.
_OWN = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE})


class Stated(NamedTuple):
    """An event of a process, and whose it is."""

    kind: str
    subject: str
    origin: Origin


def stated(origin: Origin) -> Stated | None:
    """What the line tells of its process."""
    found = _FRONT.match(origin.bare, origin.text)
    said = _meaning(found["text"]) if found else None
    if found is None or said is None:
        return None
    label = process_label(found["host"], int(found["pid"]))
    return Stated(*said, origin if origin.rank is not None else replace(origin, host=found["host"], label=label))


def _meaning(text: str) -> tuple[str, str] | None:
    if caught := _CAUGHT.match(text):
        number = int(caught["number"] or caught["stated"])
        return ("fatal_error", signal.Signals(number).name) if number in _OWN else None
    if retries := _RETRIES.search(text):
        return "nic_event", f"{retries['nic']} {retries['what']}"
    if sent := _SENT.search(text):
        return "send_unanswered", f"lid={sent['lid']}"
    if failed := _CUDA.search(text):
        return "cuda_failure", failed["what"]
    return None
