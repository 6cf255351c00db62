"""error.json of torchrun: its error, its frames and its time, and nothing of other JSON."""

from __future__ import annotations

import json

import pytest

from forensics.ingest import choose
from tests.unit.ingest.reading import SAMPLES, read, sample

NAME = "elastic_error/handmade_error.json"


def test_the_error_and_its_frames_are_read() -> None:
    found = sample(NAME)
    assert found.ingester == "elastic_error" and found.problems == []
    ended = found.row("log_events", kind="fatal_error")
    assert (ended["subject"], ended["text"]) == ("ValueError", "ValueError: bad record 71")
    assert ended["time_ns"] == 1_700_000_000 * 10**9
    assert found.row("log_events", kind="traceback")["text"].splitlines()[-1] == 'File "/w/train.py", line 120, in main'


INNER = {"py_callstack": ['  File "a.py", line 1, in f\n'], "timestamp": "12"}


@pytest.mark.parametrize(
    "written",
    [
        {"message": "KeyError: 'x'", "timestamp": 12},
        {"message": {"message": "KeyError: 'x'", "extraInfo": INNER}},
    ],
    ids=["first form", "frames in a list"],
)
def test_older_forms(written: dict[str, object]) -> None:
    ended = read(json.dumps(written).encode(), "attempt_0/1/error.json").row("log_events", kind="fatal_error")
    assert ended["subject"] == "KeyError" and ended["time_ns"] == 12 * 10**9


@pytest.mark.parametrize("text", ["", '{"message": ', '{"message": {"extraInfo": 3}}', '{"message": [1]}'])
def test_cut_and_hostile_files_give_warnings(text: str) -> None:
    if choose(text.encode(), "error.json"):
        found = read(text.encode(), "error.json")
        assert found.rows("log_events") == [] and len(found.problems) == 1


def test_other_json_is_left_alone() -> None:
    found = choose(b'{"message": "hello", "level": "info"}', "notes.json")
    assert found is None or found.name != "elastic_error"
    assert choose((SAMPLES / NAME).read_bytes(), "copy.json") is not None
