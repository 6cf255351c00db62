"""What a process wrote before it aborted, for the one rank that a launcher saw abort: the lines themselves tell no rank."""

from __future__ import annotations

import signal

from forensics.model import Evidence
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.ranks.roster import RankFacts


def device_error(logged: Logged, facts: RankFacts) -> Evidence | None:
    """The error of its device, by the driver; or that by which some process aborted, for the one rank that did."""
    if facts.pid is not None and facts.pid in logged.failures.devices:
        return logged.failures.devices[facts.pid]
    return logged.failures.of_device if _aborted_alone(logged, facts) else None


def heap_error(logged: Logged, facts: RankFacts) -> Evidence | None:
    """That the memory of a process did not hold together; it may have been that of a worker of the rank."""
    return logged.failures.corrupted if _aborted_alone(logged, facts) else None


def _aborted_alone(logged: Logged, facts: RankFacts) -> bool:
    return [end.rank for end in logged.exits if end.code == -signal.SIGABRT] == [facts.rank]
