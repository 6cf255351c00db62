"""A pickled Flight Recorder dump without secrets and names: read as plain data, written as plain data, nothing is run."""

from __future__ import annotations

import pickle
from typing import Any

from forensics.bundle.redaction import REDACTED, is_no_secret, is_secret_name
from forensics.ingest.flight_recorder.pickle import load_pickle
from forensics.sharing.left_out import LeftOutError
from forensics.sharing.scrub import Scrub

_PROTOCOL = 2
"""What torch writes (torch/csrc/jit/serialization/pickler.cpp), and what every reader takes."""


_END = 2
"""Bytes that end the pickle of a dictionary: its pairs are set, and the pickle stops."""


def redact_pickle(content: bytes, scrub: Scrub) -> bytes:
    """The same values with texts replaced; of a damaged dump, what is complete, cut again.

    Raises LeftOutError for what is no plain data, and for damage that leaves nothing complete.
    """
    value, problem = load_pickle(content)
    if problem is not None and problem.fatal:
        raise LeftOutError(problem.message)
    try:
        copied = _Walk(scrub).value(value)
        written = pickle.dumps(copied, protocol=_PROTOCOL)
        return written if problem is None else _cut(written, copied)
    except RecursionError as error:
        raise LeftOutError("its values are nested too deeply") from error


def _cut(written: bytes, value: Any) -> bytes:
    """The pickle without its end, so that it reads as damaged, as it did before, and holds the same."""
    damaged = written[:-_END]
    if load_pickle(damaged)[0] != value:
        raise LeftOutError("it is damaged, and what is complete of it cannot be written as damaged")
    return damaged


class _Walk:
    """Copies values; one that is referred to more than once is copied once."""

    def __init__(self, scrub: Scrub) -> None:
        self._scrub = scrub
        self._texts: dict[str, str] = {}
        self._copies: dict[int, Any] = {}

    def value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if id(value) in self._copies:
            return self._copies[id(value)]
        if isinstance(value, dict):
            made: dict[Any, Any] = {}
            self._copies[id(value)] = made
            made.update((self.value(key), self._of_key(key, inner)) for key, inner in value.items())
            return made
        if isinstance(value, list):
            items: list[Any] = []
            self._copies[id(value)] = items
            items.extend(map(self.value, value))
            return items
        return tuple(map(self.value, value)) if isinstance(value, tuple) else value

    def _of_key(self, key: Any, value: Any) -> Any:
        if isinstance(key, str) and isinstance(value, str) and is_secret_name(key) and not is_no_secret(key, value):
            self._scrub.found("named_secret")
            return REDACTED
        return self.value(value)

    def _text(self, text: str) -> str:
        if text not in self._texts:
            self._texts[text] = self._scrub.text(text)
        return self._texts[text]
