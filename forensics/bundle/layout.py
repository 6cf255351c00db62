"""Names and order of the members of a bundle (docs/bundle.md), and the words a collector's status is written in."""

from __future__ import annotations

import re
from enum import StrEnum

SCHEMA = "forensics.bundle/1"
BUNDLE = "bundle.json"
REDACTIONS = "redactions.json"
CHECKSUMS = "SHA256SUMS"
HOST_BUNDLE = "host.bundle"
"""Collector id of a host as a whole, in a bundle of several hosts: whether its own bundle came."""

# What would be missed most comes first, because a tar that was cut is readable up to the cut. Logs are the largest
# members and the ones most often to be had elsewhere, so they close the list.
_ORDER = tuple(
    re.compile(pattern)
    for pattern in (
        r"bundle\.json$",
        r"nodes/[^/]+/collectors\.jsonl$",
        r"nodes/[^/]+/node\.json$",
        r"ranks/[^/]+/rank\.json$",
        r"nodes/[^/]+/ranks\.summary$",
        r"ranks/[^/]+/proc/",
        r"ranks/[^/]+/stacks/\d+\.json$",
        r"ranks/[^/]+/stacks/",
        r"ranks/[^/]+/fr/",
        r"(?:ranks|nodes)/[^/]+/shim/",
        r"ranks/[^/]+/stages/",
        r"nodes/[^/]+/nccl/",
        r"nodes/[^/]+/ib/",
        r"nodes/[^/]+/versions\.json$",
        r"redactions\.json$",
        r"job/",
        r"nodes/[^/]+/(?!logs/)",
        r"(?:ranks|nodes)/[^/]+/logs/",
        r"(?!SHA256SUMS$)",
    )
)
_NUMBER = re.compile(r"(\d+)")
_UNSAFE = re.compile(r"[^A-Za-z0-9._+=@-]")


class Status(StrEnum):
    """How a run of a collector ended."""

    OK = "ok"
    PARTIAL = "partial"
    TIMEOUT = "timeout"
    PERMISSION = "permission"
    NOT_FOUND = "not_found"
    NOT_CONFIGURED = "not_configured"
    UNSUPPORTED = "unsupported"
    KILLED = "killed"
    SKIPPED_BY_POLICY = "skipped_by_policy"
    NODE_UNREACHABLE = "node_unreachable"


def member_order(path: str) -> tuple[int, tuple[tuple[int, str], ...]]:
    """Sort key of a member: importance first, then its name with numbers in numeric order."""
    place = next((index for index, pattern in enumerate(_ORDER) if pattern.match(path)), len(_ORDER))
    words = _NUMBER.split(path)
    return place, tuple((int(word), "") if word.isdecimal() else (0, word) for word in words if word)


def member_name(name: str) -> str:
    """A file or host name as one component of a member's path: no separators, no hidden names, at most 200 characters."""
    return _UNSAFE.sub("_", name)[-200:].lstrip(".") or "_"


def node_path(node: str, name: str) -> str:
    """Path of a member that belongs to a host."""
    return f"nodes/{member_name(node)}/{name}"


def rank_path(rank: int, name: str) -> str:
    """Path of a member that belongs to a rank."""
    return f"ranks/{rank}/{name}"
