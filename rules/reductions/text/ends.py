"""Sentences on how processes of ranks ended."""

from __future__ import annotations

import signal

from forensics.rules.reductions.logs.process_exit import Exit
from forensics.rules.reductions.ranks.roster import RankFacts


def end_text(facts: RankFacts, seen: Exit | None) -> str:
    """How a process ended, as its log, its launcher or its host states it."""
    pid = f" (pid {facts.pid})" if facts.pid else ""
    if facts.error is not None:
        return f"rank {facts.rank} ended by an error of its own: {facts.error}"
    if seen is not None and not seen.is_code_stated:
        return f"process of rank {facts.rank}{pid} died; its launcher does not say how"
    if facts.exit_signal is not None:
        name = f"{_signal_name(facts.exit_signal)}{', out of memory' if seen is not None and seen.is_for_memory else ''}"
        return f"process of rank {facts.rank}{pid} was ended by signal {facts.exit_signal} ({name})"
    if facts.exit_code is not None:
        return f"process of rank {facts.rank}{pid} exited with code {facts.exit_code}"
    if not facts.dead:
        return f"process of rank {facts.rank}{pid} is alive and lost the connection to a peer"
    return f"no process of rank {facts.rank}{pid} exists on its host"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown signal"
