"""The only error of its own that logs hold without a rank: where to begin, or what to read beside a suspect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import Anomaly, Cause, Suspect
from forensics.rules.reductions.logs.failures import is_of_another

# Whoever made so many steps since has survived an error.
_SURVIVED = 10
# Each error of which no line shows whose it is.
_RAISED = f"""
SELECT text, min(source), count(*), CASE WHEN count(DISTINCT host) = 1 AND count(host) = count(*) THEN min(host) END
FROM logged_event l WHERE kind = 'exception' AND rank IS NULL AND NOT after_cancel AND (
    SELECT count(DISTINCT step) FROM log_progress p WHERE p.source_id = l.source_id AND p.locator > l.locator) < {_SURVIVED}
GROUP BY text
"""
# Each error with a rank below which nothing goes on in its log: a program may have noted and passed it, or ended by it.
_LAST = """
SELECT text, min(source), rank FROM logged_event l WHERE kind = 'exception' AND rank IS NOT NULL AND NOT after_cancel
    AND NOT EXISTS (SELECT 1 FROM log_progress p WHERE p.source_id = l.source_id AND p.locator > l.locator)
GROUP BY text, rank ORDER BY ALL
"""
_LONGEST = 160


@dataclass(frozen=True, slots=True)
class UnplacedError:
    """An error with the line that it stands in first, how often it stands there, and the one host that wrote it, if known."""

    text: str
    source: str
    count: int
    host: str | None


def only_error(connection: DuckDBPyConnection) -> UnplacedError | None:
    """The error, where logs hold no other one without a rank; those that a lost peer causes are not counted."""
    raised = [UnplacedError(*each) for each in rows_of(connection, "log_events", _RAISED, kinds=("exception",))]
    own = [each for each in raised if not is_of_another(each.text)]
    return own[0] if len(own) == 1 else None


def last_error(connection: DuckDBPyConnection) -> tuple[int, str, str] | None:
    """Rank, text and source of the only error of its own that stands in logs below all steps, behind a rank."""
    raised = rows_of(connection, "log_events", _LAST, kinds=("exception",))
    own = [(rank, text, source) for text, source, rank in raised if not is_of_another(text)]
    return own[0] if len(own) == 1 else None


def beside_error(connection: DuckDBPyConnection, suspects: Sequence[Suspect]) -> tuple[Suspect, ...]:
    """The suspects; the first that stopped without an end of its own is to be held against the error.

    A thread that raises leaves its rank waiting for it, and an error that is caught leaves its rank in another call.
    """
    first = suspects[0] if suspects else None
    if first is None or first.anomaly is not Anomaly.FAIL_STOP or first.cause is Cause.PYTHON_EXCEPTION:
        return tuple(suspects)
    error = only_error(connection)
    if error is None:
        return tuple(suspects)
    advice = f"read the error {shortened(error.text)} ({error.source}): no line shows which rank raised it, or in which thread"
    return (replace(first, next_steps=(advice, *first.next_steps)), *suspects[1:])


def shortened(text: str) -> str:
    """A message of any length as it fits a line or two."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
