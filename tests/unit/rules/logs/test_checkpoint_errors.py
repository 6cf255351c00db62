"""Checkpoints that torch could not write, as all ranks raise it: who failed, and what looks like it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from forensics.model import Cause, Outcome
from tests.recordings.verdicts import named, pasted
from tests.unit.rules.logs.test_pasted_logs import table, timed_out

STEPS = "".join(f"step {number} loss 1.{number}\n" for number in range(10, 60, 10))


def raised(speaker: int | None, *failed: int, error: str = "OSError: [Errno 116] Stale file handle") -> str:
    parts = "".join(
        f'Traceback (most recent call last): (RANK {rank})\n  File "dcp/io.py", line 31, in write_data\n    flush()\n{error}\n'
        for rank in failed
    )
    text = (
        'Traceback (most recent call last):\n  File "fit.py", line 8, in <module>\n    save()\n'
        f"torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys({list(failed)})\n{parts}"
    )
    front = "" if speaker is None else f"[rank{speaker}]: "
    return "".join(f"{front}{line}\n" for line in text.splitlines())


def said(speakers: Iterable[int], *failed: int) -> str:
    return "".join(raised(speaker, *failed) for speaker in speakers)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (said(range(8), 5), {5}),
        (said((0, 2, 3), 5), {5}),
        (said(range(8), 1, 5), {1, 5}),
        (said((8, 13), 13), {13}),
        (raised(None, 5), {5}),
        (STEPS + said(range(4), 1) + table((0, 1, "11"), (1, 1, "12"), (2, 1, "12"), (3, 1, "12"), root=0), {1}),
    ],
    ids=["all say so", "some do", "two", "of another node", "no labels", "the launcher saw another one end first"],
)
def test_the_ranks_in_which_a_checkpoint_failed(tmp_path: Path, text: str, right: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (right, Outcome.FAILSTOP)
    assert {suspect.cause for suspect in verdict.suspects} == {Cause.PYTHON_EXCEPTION}


@pytest.mark.parametrize(
    "text",
    [
        said(range(4), 0, 1, 2, 3),
        said(range(4), 1, 3),
        said(range(4), 0),
        said((8, 9, 10, 11), 3),
        said((0, 8, 16, 24), 1),
        said(range(4), 1) + said(range(4), 2),
        said(range(4), 1) + STEPS,
        timed_out(2) + said(range(4), 1),
        raised(0, 5).replace("[5])", "[5"),
        "we saw CheckpointException ranks:dict_keys([5]) last week\n",
        said(range(4), 1) + "$ torchrun --nproc_per_node 4 fit.py\n" + STEPS,
    ],
    ids=[
        "all of them",
        "half of them",
        "the one that does it for all",
        "of a node, counted anew",
        "of every eighth rank",
        "two checkpoints",
        "training goes on",
        "after a timeout",
        "cut",
        "a sentence",
        "started again",
    ],
)
def test_checkpoints_that_tell_of_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))
