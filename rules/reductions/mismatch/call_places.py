"""Where the operations were called from that somebody waits in, or that are mismatched."""

from __future__ import annotations

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import Disagreements
from forensics.rules.reductions.stacks.call_paths import CallPaths, call_paths
from forensics.rules.reductions.waits.graph import WaitGraph


@reduction
def call_places(calls: Calls, graph: WaitGraph, mismatches: Disagreements) -> CallPaths:
    """Read the call paths of these operations only: a large case has too many of them."""
    pending = (call.call_path for wait in graph.waits for call in wait.waiting.values() if call is not None)
    mismatched = (call.call_path for mismatch in mismatches for call in mismatch.calls.values())
    return CallPaths(call_paths(calls.connection, (path for path in (*pending, *mismatched) if path is not None)))
