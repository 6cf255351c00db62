"""Axes of communicators and places of ranks, by calls, names and configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.pipeline.made_up_calls import Call, Program, axis, case, layout_of

Groups = dict[str, tuple[int, ...]]
TENSOR: Groups = {"t0": (0, 1), "t1": (2, 3)}
DATA: Groups = {"d0": (0, 2), "d1": (1, 3)}
WORLD: Groups = {"w": (0, 1, 2, 3)}


def step(layer: list[Call], end: list[Call], layers: int = 12) -> list[Call]:
    return [*layer * layers, *end] * 3


def tensor_and_data(layer: tuple[str, ...], end: tuple[str, ...] = ("all_reduce",)) -> Program:
    """TP2 DP2: `layer` are the kinds of calls in each layer, `end` those at the end of a step."""
    return {
        rank: step([Call(f"t{rank // 2}", kind) for kind in layer], [Call(f"d{rank % 2}", kind) for kind in end])
        for rank in range(4)
    }


@pytest.mark.parametrize("layer", [("all_reduce", "all_reduce"), ("_all_gather_base", "_reduce_scatter_base")])
@pytest.mark.parametrize("end", [("all_reduce",), ("reduce_scatter_tensor", "all_gather_into_tensor")])
def test_groups_inside_layers_and_at_the_end_of_steps(layer: tuple[str, ...], end: tuple[str, ...]) -> None:
    layout = layout_of(case(TENSOR | DATA, tensor_and_data(layer, end)))
    assert [axis(layout, label) for label in (*TENSOR, *DATA)] == ["tp", "tp", "dp", "dp"]
    assert {layout.axes[label].method for label in TENSOR} == {"calls"}
    assert [(place.tensor, place.replica) for place in layout.places.values()] == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_scalars_are_no_gradients() -> None:
    program = {
        rank: step([Call(f"t{rank // 2}", "all_reduce")], [Call(f"d{rank % 2}", "all_reduce", 1)], 24) for rank in range(4)
    }
    layout = layout_of(case(TENSOR | DATA, program))
    assert [axis(layout, label) for label in (*TENSOR, *DATA)] == ["tp", "tp", "unknown", "unknown"]


def test_groups_of_small_calls_are_for_nothing_that_trains_unless_they_are_known() -> None:
    """Figure 5 of Pulse; a few small calls may be those of a group of which the larger ones lie further back."""
    program = {
        rank: step([Call(f"t{rank // 2}", "all_reduce")], [Call(f"d{rank % 2}", "all_reduce", 1)] * 3, 24) for rank in range(4)
    }
    found = layout_of(case(TENSOR | DATA, program))
    assert [axis(found, label) for label in (*TENSOR, *DATA)] == ["tp", "tp", "none", "none"]
    assert {(found.axes[label].method, found.axes[label].confidence) for label in DATA} == {("calls", "assumed")}
    named = layout_of(case(TENSOR | DATA, program, {"d0": "DATA_PARALLEL_GROUP", "d1": "DATA_PARALLEL_GROUP"}))
    assert [axis(named, label) for label in DATA] == ["dp", "dp"] and not named.contradictions


def exchange(rank: int, members: int, alone: bool = False) -> Iterator[Call]:
    """An all-to-all as PyTorch makes it; `alone` each message in a call of its own."""
    for turn in range(10):
        for other in (other for other in range(members) if other != rank):
            for kind in ("send", "recv"):
                yield Call("e", kind, peer=other, batch=100 * turn + (other if alone else 0))


@pytest.mark.parametrize(("members", "alone", "expected"), [(4, False, "ep"), (4, True, "world"), (3, False, "world")])
def test_messages_to_all_others_in_one_group_call_are_of_experts(members: int, alone: bool, expected: str) -> None:
    """Of three ranks they may be those of stages with several chunks."""
    found = layout_of(case({"e": tuple(range(members))}, {rank: exchange(rank, members, alone) for rank in range(members)}))
    assert axis(found, "e") == expected and found.pipelines == ()


def test_exchanges_are_of_experts_unless_their_name_says_context() -> None:
    program = tensor_and_data(("all_to_all", "alltoall_base"))
    assert axis(layout_of(case(TENSOR | DATA, program)), "t0") == "ep"
    named = layout_of(case(TENSOR | DATA, program, {"t0": "CONTEXT_PARALLEL_GROUP", "t1": "TENSOR_MODEL_PARALLEL_GROUP"}))
    assert axis(named, "t0") == "cp" and axis(named, "t1") == "ep"
    assert named.contradictions == ("t1 is called tp, and its calls show ep: all_to_all",)


def test_the_only_group_of_a_job_is_assumed_to_be_data_parallel_where_messages_would_show() -> None:
    program = {rank: [Call("w", "all_reduce")] * 40 for rank in range(4)}
    assert layout_of(case(WORLD, program)).axes["w"].confidence == "assumed"
    assert axis(layout_of(case(WORLD, program)), "w") == "dp"
    assert axis(layout_of(case(WORLD, program, backend="gloo")), "w") == "world"
    assert axis(layout_of(case(WORLD, program), parallel_tensor="4"), "w") == "tp"


def test_sharded_parameters_are_gathered_for_a_whole_pass() -> None:
    gather, scatter = Call("w", "all_gather_into_tensor"), Call("w", "reduce_scatter_tensor")
    program = {rank: [*[gather] * 8, *[gather, scatter] * 8] * 3 for rank in range(4)}
    found = layout_of(case(WORLD, program)).axes["w"]
    assert (found.axis, found.confidence) == ("dp", "inferred")


@pytest.mark.parametrize(
    ("forward", "backward", "layers", "scattered", "expected"),
    [
        ("g", "gsa", 6, 4096, "dp"),
        ("ga", "gas", 6, 4096, "tp"),
        ("g", "gsa", 2, 8192, "dp"),
        ("g", "gsa", 2, 4096, "tp"),
        ("ga", "gsa", 2, 8192, "tp"),
    ],
    ids=["replicas", "layers", "few layers, of a part", "few layers, of another size", "few layers, in both passes"],
)
def test_sums_of_what_was_scattered_are_of_replicas_and_those_in_layers_are_not(
    forward: str, backward: str, layers: int, scattered: int, expected: str
) -> None:
    def calls(rank: int) -> list[Call]:
        shard, other = f"t{rank // 2}", f"d{rank % 2}"
        scatter = Call(shard, "reduce_scatter", scattered)
        one = {"g": Call(shard, "all_gather"), "s": scatter, "a": Call(other, "all_reduce")}
        return [one[letter] for letter in (forward * layers + backward * layers) * (18 // layers)]

    layout = layout_of(case(TENSOR | DATA, {rank: calls(rank) for rank in range(4)}))
    assert axis(layout, "d0") == expected


def ring(rank: int) -> Iterator[Call]:
    """Attention over a context split over four ranks: three times around in each layer."""
    for turn in range(24):
        yield Call("c", "send", peer=(rank + 1) % 4, batch=turn)
        yield Call("c", "recv", peer=(rank - 1) % 4, batch=turn)
        yield Call("c", "coalesced", 0, batch=turn)


def test_a_ring_that_goes_one_way_is_no_pipeline() -> None:
    layout = layout_of(case({"c": (0, 1, 2, 3)}, {rank: ring(rank) for rank in range(4)}))
    assert axis(layout, "c") == "cp" and layout.pipelines == ()


def test_neighbours_that_only_exchange_are_no_pipeline() -> None:
    program = {
        rank: [
            Call("g", kind, peer=peer, batch=turn)
            for turn in range(10)
            for peer in (rank - 1, rank + 1)
            if 0 <= peer < 4
            for kind in ("send", "recv")
        ]
        for rank in range(4)
    }
    layout = layout_of(case({"g": (0, 1, 2, 3), "x": (0, 1)}, program))
    assert axis(layout, "g") != "pp" and layout.pipelines == () and layout.stage_method is None


def test_names_alone_are_believed_and_combined_names_are_not() -> None:
    names = {"t0": "mesh_tp", "t1": "tp", "d0": "mesh_dp_shard_cp", "d1": "TENSOR_AND_DATA_PARALLEL_GROUP"}
    layout = layout_of(case(TENSOR | DATA, {}, names))
    assert [axis(layout, label) for label in (*TENSOR, *DATA)] == ["tp", "tp", "dp", "unknown"]
    assert layout.axes["t0"].method == "reported"


def test_configured_sizes_tell_what_nobody_called() -> None:
    layout = layout_of(case(TENSOR | DATA | WORLD, {}), parallel_tensor="2")
    assert [axis(layout, label) for label in (*TENSOR, *DATA, *WORLD)] == ["tp", "tp", "dp", "dp", "world"]
    assert layout.axes["t0"].method == "configured" and layout.contradictions == ()


def test_configured_stages_where_gloo_notes_no_messages() -> None:
    layout = layout_of(case(WORLD, {0: [Call("w", "all_reduce")]}, backend="gloo"), parallel_pipeline="2")
    assert [place.stage for place in layout.places.values()] == [0, 0, 1, 1]
    assert layout.stage_method == "configured"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"parallel_tensor": "4"}, "parallel.tensor is 4, but tp groups have 2 ranks"),
        ({"parallel_pipeline": "3"}, "configured sizes (pp 3) do not make 4 ranks"),
        ({"parallel_context": "2"}, ""),
        ({"parallel_pipeline": "4"}, "configured sizes (pp 4) leave 1 replicas, but dp groups have 2 ranks"),
        ({"parallel_tensor": "2", "parallel_data": "4"}, "configured sizes (dp 4, tp 2) do not make 4 ranks"),
    ],
)
def test_a_wrong_configuration_is_said_and_the_calls_count(settings: dict[str, str], said: str) -> None:
    layout = layout_of(case(TENSOR | DATA, tensor_and_data(("all_reduce",) * 4)), **settings)
    assert layout.contradictions[:1] == ((said,) if said else ())
    assert [axis(layout, label) for label in (*TENSOR, *DATA)] == ["tp", "tp", "dp", "dp"]


def test_microbatches_follow_from_batch_sizes_and_replicas() -> None:
    connection = case(TENSOR | DATA, {})
    assert layout_of(connection, parallel_tensor="2", batch_global="64", batch_micro="4").microbatches == 8


def test_a_case_without_calls_has_no_layout() -> None:
    assert not layout_of(case({}, {}))
