"""For how long the logs of a job had been silent when they were collected, against the rhythm in which they count steps.

The recorder's ring dates a standstill of itself; of a job without one its logs are the only history. A log that is written
through a buffer grows in bursts, so that a silence must also outlast what the last 8 KiB of a series cover.
"""

from __future__ import annotations

from dataclasses import dataclass

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.progress.liveness import SilenceFactor

_BUFFER_BYTES = 8192
# Saving and evaluating keep all ranks from the log for a time, and a trainer may print its first steps more often than others.
_LEAST_NS = 60_000_000_000
# A line is written as it is dated, but for a zone (of quarters of an hour); a file server has a clock of its own.
_ZONE_S, _LATE_S = 900, 5
_LEAST_TIMES = 3
# When the logs of a host were read, and each was last written to (its date); pauses by the times in front of its lines.
_SILENCES = f"""
WITH read AS (
    SELECT host, min(begin_ns) AS read_ns FROM coverage WHERE kind = 'log.files' AND status = 'ok' GROUP BY host
), logs AS (
    SELECT source_id, path, host, read_ns, captured_ns FROM sources JOIN read USING (host)
    WHERE parser = 'training_log' AND captured_ns IS NOT NULL
), points AS (
    SELECT source_id, series, part, at_s, at_s - lag(at_s) OVER later AS pause_s,
        sum(length(text)) OVER (PARTITION BY source_id, series, part ORDER BY at_s DESC) AS behind
    FROM log_progress JOIN logs USING (source_id) WHERE clock = 'line' AND at_s IS NOT NULL
    WINDOW later AS (PARTITION BY source_id, series, part ORDER BY at_s)
), counted AS (
    SELECT source_id, max(at_s) AS last_s, max(pause_s, 2)[2] AS pause_s,
        max(at_s) - min(at_s) FILTER (behind <= {_BUFFER_BYTES}) AS buffered_s
    FROM points GROUP BY source_id, series, part HAVING count(DISTINCT at_s) >= {_LEAST_TIMES}
), rhythms AS (
    SELECT source_id, max(last_s) AS last_s, max(pause_s) AS pause_s, max(buffered_s) AS buffered_s
    FROM counted GROUP BY source_id
)
SELECT path, host, captured_ns, read_ns - captured_ns,
    1000000 * CAST(1000 * pause_s AS BIGINT), 1000000 * CAST(1000 * buffered_s AS BIGINT),
    captured_ns / 1e9 - last_s - {_ZONE_S} * round((captured_ns / 1e9 - last_s) / {_ZONE_S}) BETWEEN -1 AND {_LATE_S}
FROM logs LEFT JOIN rhythms USING (source_id) ORDER BY 4, 1
"""


@dataclass(frozen=True, slots=True)
class LogSilence:
    """How long no log was written to, and the longest time that recurred between two lines of one before (ns).

    `last_ns` is when one was last written to, by the clock of `host`. All are 0 where the silence is not longer than usual, or
    where no log counts steps in a rhythm up to its date.
    """

    silence_ns: int = 0
    pause_ns: int = 0
    source: str | None = None
    last_ns: int = 0
    host: str | None = None

    def __bool__(self) -> bool:
        return self.silence_ns > 0

    @property
    def reason(self) -> str:
        """The silence in words."""
        silence, pause = self.silence_ns / 1e9, self.pause_ns / 1e9
        return f"no log was written to for {silence:.1f} s; {self.source} counts steps with recurring gaps of {pause:.1f} s"


@reduction
def log_silence(calls: Calls, factor: SilenceFactor) -> LogSilence:
    """The shortest silence of all logs that ranks had open, in a job of which one at least counts steps in a rhythm.

    It must last `factor` times what recurred, as that of a recorder (docs/decisions/0008-when-a-job-is-stuck.md).
    """
    rows = rows_of(calls.connection, "log_progress", _SILENCES)
    rhythms = [(pause, buffered, path) for path, _, _, _, pause, buffered, at_once in rows if at_once]
    if not rhythms:
        return LogSilence()
    (_, host, last, silence, *_), (pause, _, path) = rows[0], max(rhythms)
    usual = max(pause, *(buffered for _, buffered, _ in rhythms))
    return LogSilence(silence, pause, path, last, host) if silence > max(_LEAST_NS, factor * usual) else LogSilence()
