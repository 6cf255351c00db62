"""A message that gloo refused for its size: who aborted is stated, and nobody is accused of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted
from tests.unit.rules.logs.test_given_up_waits import CLOSED, ended, raised

REFUSED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. "
    "8 vs 2. Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
)
OTHERS = raised(0, CLOSED, line=31) + raised(2, CLOSED)


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        (REFUSED + OTHERS + ended(r1=-6, r0=-15, r2=-15, r3=-15), True),
        (REFUSED + OTHERS + ended(r0=-15, r2=-15), False),
        (REFUSED + REFUSED + OTHERS + ended(r1=-6, r3=-6), False),
        (OTHERS + ended(r1=-6, r0=-15), False),
    ],
    ids=["one", "who is not known", "two", "another abort"],
)
def test_where_to_look_after_a_message_that_did_not_fit(tmp_path: Path, text: str, stated: bool) -> None:
    verdict = pasted(tmp_path, text)
    said = " ".join(verdict.would_change)
    assert ("rank 1 received more bytes" in said) is stated
    assert not stated or "rank 0 at fit.py:31, rank 2 at fit.py:20" in said
    assert not named(verdict)
