"""Calls of Ray Train for which some workers are waited for, in both forms of its warning, and warnings that tell nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted

STEPS = "".join(f"step {number} loss 1.{number}\n" for number in range(20, 29))


def warned(ranks: str, seconds: float = 1920.1, size: int = 6, call: str = "ray.train.collective.barrier") -> str:
    said = f"The workers have been waiting for {seconds:.2f} s for the following ranks to join the `{call}` call: [{ranks}].\n"
    return (
        f"`{call}` has not been called by all {size} workers in the group.\n{said}Also ensure that workers are not hanging.\n"
    )


def older(ranks: str) -> str:
    return warned(ranks, call="ray.train.report").replace("ranks to", "ranks\nto").replace("group.\n", "group.\n\n")


def first_form(waited: dict[int, float], size: int = 6) -> str:
    """That of Ray 2.43, which lists those that have come."""
    said = "Here are the ranks that have reported\nso far and how long they have been waiting in seconds:\n"
    return f"`ray.train.report` has not been called by all {size} workers in the group.\n{said}{waited}\nYou can set the\n"


def labelled(text: str) -> str:
    return "".join(f"(SynchronizationActor pid=61) {line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (warned("4"), {4}),
        (older("1, 4"), {1, 4}),
        (labelled(older("0")), {0}),
        (warned("4, 5", 60.0) + warned("4", 1800.0), {4}),
        (warned("2", 60.0) + "The following ranks have not called it: [2]\n", {2}),
        (STEPS + warned("3"), {3}),
        (labelled(first_form({0: 720.4, 1: 719.9, 2: 720.0, 4: 700.25, 5: 720.1})), {3}),
    ],
    ids=["one", "over two lines", "labelled", "the last counts", "given up", "after steps", "those that came"],
)
def test_the_ranks_that_ray_train_waits_for(tmp_path: Path, text: str, right: set[int]) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (right, Outcome.HANG)


@pytest.mark.parametrize(
    "text",
    [
        warned("4", 60.0),
        first_form({0: 60.4, 1: 59.9, 2: 60.0, 4: 60.25, 5: 60.1}),
        first_form({0: 720.4, 1: 719.9, 2: 720.0}),
        warned("0, 1, 2"),
        warned("6"),
        warned("3") + STEPS,
        warned("3").partition("waiting for")[0],
        warned(", ".join(["9" * 7] * 200)),
        "to join the `ray.train.report` call: [3].\n",
    ],
    ids=[
        "for a minute",
        "for a minute, those that came",
        "half of them came",
        "half of them",
        "no such rank",
        "went on",
        "cut",
        "absurd",
        "the end alone",
    ],
)
def test_warnings_of_ray_train_that_accuse_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, "INFO world_size=6\n" + text))
