"""A log in which all ranks but one wrote a last line: where to begin, and when it shows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

LINE = "[2025-01-03 04:1{0}:3{1},101] [INFO] [fit.train:13{0}] [PID:19{1}] [RANK:{1}] {2}\n"
WORDS = ("Loading the tokenizer", "Loading the model", "Starting the trainer")


def log(lacking: tuple[int, ...] = (2,), ranks: int = 4, words: tuple[str, ...] = WORDS) -> str:
    return "".join(
        LINE.format(at, rank, said)
        for at, said in enumerate(words)
        for rank in range(ranks)
        if rank not in lacking or said != words[-1]
    )


@pytest.mark.parametrize("below", ["", "  0%|          | 0/3120 [00:00<?, ?it/s]\n"])
def test_the_one_rank_that_lacks_the_last_line_is_where_to_begin(tmp_path: Path, below: str) -> None:
    verdict = pasted(tmp_path, log() + below)
    assert not named(verdict)
    assert "stack and log of rank 2" in verdict.would_change[0] and "Starting the trainer" in verdict.would_change[0]


@pytest.mark.parametrize(
    "text",
    [
        log((1, 2)),  # two ranks lack it
        log((1,), ranks=2),  # of two, either may be the odd one
        log((0, 1, 3)),  # only one wrote it, as main processes do
        log() + "".join(f"step {at}/90 loss 2.{at}\n" for at in range(5)),  # the job went on
        log() + LINE.format(9, 2, "Loading my own thing"),  # it wrote something else since
        log() + LINE.format(9, 2, WORDS[-1]),  # it came later
        log()[:-90],  # cut while the others wrote it
    ],
)
def test_lines_that_show_nothing(tmp_path: Path, text: str) -> None:
    assert not any("its last line" in each for each in pasted(tmp_path, text).would_change)
