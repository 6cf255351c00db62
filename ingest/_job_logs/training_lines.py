"""Settings of the training in a log: the command that starts it, and the arguments that it prints."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._shared import training_settings
from forensics.ingest.interface import Batch

WORDS = training_settings.LOG_WORDS
_MARKS = ("--", " ..", "parallel", "_degree")
_MOST = 4096
"""Settings that are kept: each rank may print them."""


class TrainingLines:
    """Collects what a file states."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[str, str], None] = {}

    def feed(self, line: str) -> None:
        """Take one line."""
        if mentions(line, _MARKS) and len(self._pairs) < _MOST:
            self._pairs.update(dict.fromkeys(training_settings.of_line(line)))

    def batches(self) -> Iterator[Batch]:
        """One row for each setting: of the job, whichever rank printed it."""
        yield from training_settings.setting_batches(training_settings.settings(self._pairs), rank=None)
