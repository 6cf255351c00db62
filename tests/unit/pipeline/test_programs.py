"""What ranks with the same program share: the same steps as each of them alone, and nothing where times decide."""

from __future__ import annotations

import numpy as np

from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.programs import programs
from forensics.rules.reductions.steps.records import records
from tests.unit.pipeline.made_up_calls import Call, case

GROUPS = {"all": (0, 1, 2, 3), "left": (0, 1), "right": (2, 3)}
STEPS, MS = 8, 1_000_000


def step(pair: str) -> list[Call]:
    return [Call(pair, "all_reduce"), Call(pair, "all_gather"), Call("all", "all_reduce", 1)]


def test_ranks_of_other_groups_that_make_the_same_calls_share_their_program() -> None:
    found = records(case(GROUPS, {rank: step("left" if rank < 2 else "right") * STEPS for rank in range(4)}))
    shared = programs(found)
    assert len({id(program) for program in shared.values()}) == 1
    for rank, record in found.items():
        assert shared[rank].begins.tolist() == step_begins(record).tolist()


def test_a_rank_that_leaves_out_a_call_has_a_program_of_its_own() -> None:
    programs_of = {rank: step("left" if rank < 2 else "right") * STEPS for rank in range(4)}
    del programs_of[3][-2]
    found = records(case(GROUPS, programs_of))
    shared = programs(found)
    assert shared[0] is shared[1] is shared[2] and shared[3] is not shared[0]
    assert shared[3].begins.tolist() == step_begins(found[3]).tolist()


def test_steps_that_pauses_tell_apart_are_found_for_each_rank() -> None:
    """The forward pass lies before another bucket in the record of rank 3, whose calls are the same."""
    connection = case(GROUPS, dict.fromkeys(range(4), [Call("all", "all_reduce")] * (4 * STEPS)))
    for rank, cut in ((0, 0), (1, 0), (2, 0), (3, 2)):
        for place, at in enumerate(np.cumsum(np.roll([200, 15, 15, 15] * STEPS, cut)).tolist()):
            connection.execute("UPDATE operations SET enqueued_ns = ? WHERE locator = ? AND rank = ?", [at * MS, place, rank])
    found = records(connection)
    shared = programs(found)
    assert shared[0].begins.tolist() == step_begins(found[0]).tolist() != shared[3].begins.tolist()
    assert shared[3].begins.tolist() == step_begins(found[3]).tolist()
