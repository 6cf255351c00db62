"""A rank whose own NCCL gave up on a peer that did not answer: what it stands at is a path of the network, not its own work."""

from __future__ import annotations

import re
from dataclasses import replace

from forensics.model import Cause, Component, Evidence, Finding, Granularity, Resource
from forensics.rules.reductions.logs.events import LogEvents

_FAILED = re.compile(r"peer=(?P<peer>\S+) status=(?P<status>\d{1,3}).*?(?: nic=(?P<nic>(?!None)\S+))?$")
_UNANSWERED = {"12": "nobody answered", "13": "the receiver had nothing posted"}
"""Completions that begin a failure (`ibv_wc_status`, retries exceeded); status 5 is a request flushed by an earlier failure."""


def of_broken_transport(finding: Finding, events: LogEvents) -> Finding:
    """A finding about one rank without a cause, with the path that its own log says broke; unchanged without such a line."""
    if len(finding.ranks) != 1 or finding.cause is not Cause.UNKNOWN:
        return finding
    for event in events.of(finding.ranks[0], "completion_error"):
        failed = _FAILED.search(event.subject or "")
        if failed and failed["status"] in _UNANSWERED:
            return _of_path(finding, failed, event.source)
    return finding


def _of_path(finding: Finding, failed: re.Match[str], source: str) -> Finding:
    rank, peer, nic = finding.ranks[0], failed["peer"], failed["nic"]
    own = f"{nic} of rank {rank}" if nic else f"the NIC of rank {rank}"
    said = f"a transfer between {own} and {peer} failed with status {failed['status']}: {_UNANSWERED[failed['status']]}"
    either = Evidence(f"one end cannot tell whether {own}, the path, or {peer} failed", source, supports=False)
    return replace(
        finding,
        cause=Cause.NETWORK_DOWN,
        stage=replace(finding.stage, component=Component.COMMUNICATION),
        evidence=(Evidence(said, source), *finding.evidence, either),
        granularity=Granularity.LINK,
        resource=Resource(nic=nic),
        mechanism=None,
        next_steps=(f"check both ends, {own} and {peer}: port counters, cable, transceiver and switch port, kernel log",),
    )
