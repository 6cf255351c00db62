"""Pipeline stages from messages, over groups of any form, and where the signs are missing or contradict each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.pipeline.made_up_calls import Call, axis, case, layout_of

Ranks = tuple[int, ...]
PIPELINE = (0, 1, 2, 3)


def passes(stage: int, stages: int, microbatches: int) -> list[bool]:
    """Forward (true) and backward passes of 1F1B."""
    ahead = min(stages - stage - 1, microbatches)
    steady = [each for _ in range(microbatches - ahead) for each in (True, False)]
    return [*[True] * ahead, *steady, *[False] * ahead]


def train(
    ranks: Ranks, message: Callable[[int, int, str], Call], steps: int = 3, microbatches: int = 6
) -> dict[int, list[Call]]:
    """1F1B over ranks in the order of their stages; all reduce in `w` at the end of a step."""
    found: dict[int, list[Call]] = {}
    for stage, rank in enumerate(ranks):
        calls: list[Call] = []
        for forward in passes(stage, len(ranks), microbatches) * steps:
            source, target = (stage - 1, stage + 1) if forward else (stage + 1, stage - 1)
            calls += [message(rank, ranks[source], "recv")] if 0 <= source < len(ranks) else []
            calls += [message(rank, ranks[target], "send")] if 0 <= target < len(ranks) else []
        size = len(calls) // steps
        found[rank] = [
            call for step in range(steps) for call in (*calls[step * size : (step + 1) * size], Call("w", "all_reduce"))
        ]
    return found


def over_world(rank: int, peer: int, kind: str) -> Call:
    return Call("w", kind, peer=peer)


def over_pairs(rank: int, peer: int, kind: str) -> Call:
    low, high = sorted((rank, peer))
    return Call(f"p{low}{high}", kind, peer=(low, high).index(peer))


def over_group(rank: int, peer: int, kind: str) -> Call:
    return Call("p", kind, peer=PIPELINE.index(peer))


GROUPS: dict[Callable[[int, int, str], Call], dict[str, Ranks]] = {
    over_world: {"w": PIPELINE},
    over_pairs: {"w": PIPELINE, "p01": (0, 1), "p12": (1, 2), "p23": (2, 3)},
    over_group: {"w": PIPELINE, "p": PIPELINE},
}


@pytest.mark.parametrize("message", GROUPS)
def test_stages_over_the_world_over_pairs_and_over_a_group(message: Callable[[int, int, str], Call]) -> None:
    layout = layout_of(case(GROUPS[message], train(PIPELINE, message)))
    assert layout.pipelines == (PIPELINE,) and layout.stage_method == "calls"
    assert [layout.places[rank].stage for rank in PIPELINE] == [0, 1, 2, 3]
    assert {axis(layout, label) for label in GROUPS[message] if label.startswith("p")} <= {"pp"}


def test_the_first_stage_need_not_be_the_first_rank() -> None:
    layout = layout_of(case(GROUPS[over_world], train((3, 1, 0, 2), over_world)))
    assert layout.pipelines == ((3, 1, 0, 2),)


@pytest.mark.parametrize("ranks", [(0, 1), (1, 0)])
def test_two_stages(ranks: Ranks) -> None:
    layout = layout_of(case({"w": (0, 1)}, train(ranks, over_world)))
    assert layout.pipelines == (ranks,)


def all_forward_first(first: int) -> dict[int, list[Call]]:
    """GPipe over two ranks, from the middle of a step on: three sends or receives, then as many the other way."""
    one, other = first, 1 - first
    found = {}
    for rank, kinds in ((one, ("send", "recv")), (other, ("recv", "send"))):
        step = [*[over_world(rank, 1 - rank, kinds[0])] * 5, *[over_world(rank, 1 - rank, kinds[1])] * 5]
        found[rank] = [*step, Call("w", "all_reduce", 1)] * 4
    return {rank: calls[3:] for rank, calls in found.items()}


@pytest.mark.parametrize("first", [0, 1])
def test_the_end_of_a_step_tells_stages_that_run_ahead_alike(first: int) -> None:
    assert layout_of(case({"w": (0, 1)}, all_forward_first(first))).pipelines == ((first, 1 - first),)


def test_nothing_tells_the_first_stage_without_the_end_of_a_step() -> None:
    program = {rank: [call for call in calls if call.kind != "all_reduce"] for rank, calls in all_forward_first(0).items()}
    layout = layout_of(case({"w": (0, 1)}, program))
    assert layout.pipelines == () and layout.stage_method is None


def test_the_first_call_of_a_whole_record_tells_it() -> None:
    program = {rank: [over_world(rank, 1 - rank, kind) for kind in kinds for _ in range(5)] for rank, kinds in
               ((0, ("recv", "send")), (1, ("send", "recv")))}  # fmt: skip
    assert layout_of(case({"w": (0, 1)}, program, first=0)).pipelines == ((1, 0),)


def test_a_rank_without_a_dump_is_found_by_its_neighbours() -> None:
    program = train(PIPELINE, over_world)
    del program[1]
    assert layout_of(case(GROUPS[over_world], program)).pipelines == (PIPELINE,)


def test_a_hang_before_the_first_gradient_shows_the_way_forward() -> None:
    program = {
        0: [over_world(0, 1, "send")] * 2,
        1: [over_world(1, 0, "recv"), over_world(1, 2, "send")],
        2: [over_world(2, 1, "recv")],
    }
    assert layout_of(case({"w": (0, 1, 2)}, program)).pipelines == ((0, 1, 2),)


def test_parts_of_pipelines_have_no_stages() -> None:
    groups = {"w": tuple(range(8))}
    program = train(PIPELINE, over_world) | train((4, 5, 6, 7), over_world)
    for rank in (5, 6):
        del program[rank]
    assert layout_of(case(groups, program)).pipelines == (PIPELINE,)


def test_groups_of_ranks_without_stages_are_what_their_like_are() -> None:
    groups: dict[str, Ranks] = {"w": tuple(range(8)), "e0": (0, 3), "e1": (4, 7)}
    program = train(PIPELINE, over_world, microbatches=12) | train((4, 5, 6, 7), over_world, microbatches=12)
    tied = Call("e", "all_reduce")
    for rank in (0, 3, 4, 7):
        mine = tied._replace(group=f"e{rank // 4}")
        program[rank] = [each for call in program[rank] for each in ((mine, call) if call.kind == "all_reduce" else (call,))]
    del program[5], program[6]
    layout = layout_of(case(groups, program))
    assert layout.pipelines == (PIPELINE,)
    assert [(axis(layout, label), layout.axes[label].confidence) for label in ("e0", "e1")] == [
        ("embedding", "inferred"),
        ("embedding", "assumed"),
    ]
