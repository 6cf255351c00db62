"""What in the log of a job is of the kernel of a host, and of which host it is."""

from __future__ import annotations

import re

OF_KERNEL = frozenset({"xid", "oom_kill", "task_blocked", "client_evicted"})
"""Kinds of events that a kernel writes, and the reader of a job's log knows."""
_OF_NODE = re.compile(r"^([A-Za-z][\w.-]{0,254}): {1,2}\[(?:[A-Z][a-z]{2} [A-Z][a-z]{2} | {0,8}\d{1,9}\.\d{6}\])")
_KERNEL = re.compile(r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)? ([A-Za-z][\w.-]{0,254}) kernel: ")


def host_of_kernel(kind: str, line: str, above: str | None) -> str | None:
    """The host of a line of its kernel, as a journal has it (`Aug 14 02:10:07 node-5 kernel: `), or pdsh in front of dmesg.

    `above` is that of the prompt above it: of what no process is looked up for.
    """
    found = (_KERNEL.search(line) or _OF_NODE.match(line)) if kind in OF_KERNEL else None
    return found[1] if found else above if kind == "client_evicted" else None
