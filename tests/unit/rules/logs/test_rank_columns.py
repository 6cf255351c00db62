"""Tables with a column for each rank, as dashboards export them: who is slow, and what is no such table."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read
from tests.unit.rules.logs.test_stage_times_in_logs import Times, slow, usual

BOARD = '"run-7b - rank_{rank}/{name}_ms"'


def board(times: Times, column: str = BOARD, ranks: int = 4, steps: int = 12, drawn: bool = True) -> str:
    """A table of Weights & Biases; `drawn` has the columns of the least and the most beside each."""
    ends = ("", "__MIN", "__MAX") if drawn else ("",)
    names = [(rank, name) for rank in range(ranks) for name in times(0, 0)]
    header = ['"Step"', *(column.format(rank=r, name=n)[:-1] + f'{end}"' for r, n in names for end in ends)]
    rows = [",".join(header)]
    for step in range(100, 100 + steps):
        cells = [f'"{1000 * times(rank, step)[name]:.2f}"' for rank, name in names for _ in ends]
        rows.append(",".join([f'"{step}"', *cells]))
    return "\n".join([*rows, ""])


@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.parametrize(
    ("column", "expected"), [(BOARD, 2), ('"{name}_time rank={rank} (ms)"', 2), ('"rank3{rank}/{name}_ms"', 32)]
)
def test_the_rank_that_loads_while_the_others_wait(tmp_path: Path, column: str, expected: int, drawn: bool) -> None:
    (tmp_path / "wandb_export.csv").write_text(board(slow("data"), column, drawn=drawn))
    verdict = verdict_of(tmp_path)
    assert (verdict.outcome, named(verdict)) == (Outcome.SLOWDOWN, {expected})


def test_a_board_on_which_nobody_is_late(tmp_path: Path) -> None:
    (tmp_path / "wandb_export.csv").write_text(board(usual))
    assert not verdict_of(tmp_path).suspects


def test_one_part_of_a_step_may_hold_a_wait(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(board(lambda rank, _: {"fwd": 0.4 + 0.3 * (rank == 2)}))
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    assert verdict.would_change[0].startswith(
        "GPU, host and data of rank 2: its forward takes 700 ms a step (a.csv), 3 others 400"
    )
    for uneven in (lambda rank, _: {"fwd": 0.4 + 0.3 * rank}, lambda rank, _: {"fwd": 0.4 + 0.05 * (rank == 2)}):
        (tmp_path / "a.csv").write_text(board(uneven))
        assert not verdict_of(tmp_path).leads


def test_what_is_read_of_a_row_in_which_some_ranks_are_missing() -> None:
    text = "step,rank_0/data_ms,rank_1/data_ms,rank_2/data_ms\n10,1.5,,2.5\n20,1.5,2,cut\n30,1.5\nstep 4 loss 3\n"
    rows = read(text.encode(), "a.csv").rows("log_stage_times")
    assert sorted((row["step"], row["rank"], row["ms"]) for row in rows) == [
        (10, 0, 1.5),
        (10, 2, 2.5),
        (20, 0, 1.5),
        (20, 1, 2.0),
    ]


@pytest.mark.parametrize(
    "header",
    [
        "step,rank_0/loss_ms,rank_1/loss_ms,rank_2/loss_ms",
        "step,rank_0/data,rank_1/data,rank_2/data",
        "step,local_rank_0/data_ms,local_rank_1/data_ms,local_rank_2/data_ms",
        "step,rank_0/data_ms,rank_1/data_ms",
        "step,rank_0/data_ms,rank_1/fwd_ms,rank_2/bwd_ms",
        "step,rank_0/bwd_ms,rank_1/bwd_ms,rank_2/bwd_ms",
        "name,rank_0/data_ms,rank_1/data_ms,rank_2/data_ms",
        "step,rank_0/data_ms,rank_0/data_ms,rank_1/data_ms,rank_2/data_ms",
    ],
)
def test_a_table_of_something_else(header: str) -> None:
    cells = header.count(",") * ",1.5"
    assert not read(f"{header}\n10{cells}\n20{cells}\n".encode(), "train.log").rows("log_stage_times")
