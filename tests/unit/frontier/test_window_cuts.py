"""Windows of records that were cut: each holds all of its ranks in all of its steps, and few of them show most."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.frontier.window_cuts import window_cuts

STEPS, RANKS = 40, 6


def cuts(present: object, schema: object = None) -> list[tuple[int, int, list[int]]]:
    there = np.array(present, bool)
    found = window_cuts(there, np.zeros(there.shape, np.int64) if schema is None else np.array(schema), 8)
    return [(each.steps.start, each.steps.stop, np.flatnonzero(each.ranks).tolist()) for each in found]


def recorded(**spans: tuple[int, int]) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Ranks (r0, r1 ...) that have the steps of a span alone; the others have all."""
    present = np.ones((STEPS, RANKS), bool)
    for name, (begin, end) in spans.items():
        present[:, int(name[1:])] = False
        present[begin:end, int(name[1:])] = True
    return present


def test_records_that_end_early_do_not_cut_the_others() -> None:
    assert cuts(recorded(r3=(0, 22), r1=(0, 27))) == [
        (0, 22, [0, 1, 2, 3, 4, 5]), (0, 27, [0, 1, 2, 4, 5]), (0, 40, [0, 2, 4, 5]),
    ]  # fmt: skip


def test_records_that_begin_late_do_not_either() -> None:
    assert cuts(recorded(r3=(30, 40))) == [(0, 40, [0, 1, 2, 4, 5]), (30, 40, [0, 1, 2, 3, 4, 5])]


def test_other_stages_of_one_rank_cut_all() -> None:
    schema = np.zeros((STEPS, RANKS), np.int64)
    schema[20:, 2] = 1
    everybody = list(range(RANKS))
    assert cuts(recorded(), schema) == [(0, 20, everybody), (20, 40, everybody)]


def test_a_few_long_records_are_no_window_of_the_group() -> None:
    present = np.zeros((STEPS, RANKS), bool)
    present[:, 0], present[30:36] = True, True
    assert cuts(present) == [(30, 36, [0, 1, 2, 3, 4, 5])]


def test_one_step_is_a_window_where_it_is_all_there_is() -> None:
    assert cuts(np.ones((1, 2), bool)) == [(0, 1, [0, 1])]
    assert cuts(np.zeros((0, 2), bool)) == []
