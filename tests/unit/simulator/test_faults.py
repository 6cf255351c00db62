"""Faults act on the physics from their onset on, and more at a higher level."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.simulator import bundle
from forensics.fixtures.simulator.determinable import struck
from forensics.fixtures.simulator.faults import FAULTS, parse
from forensics.fixtures.simulator.job import MS, Floats, Parallelism, S
from forensics.fixtures.simulator.losses import Losses
from forensics.fixtures.simulator.positions import is_communication
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.program import program
from forensics.fixtures.simulator.routes import over_nic, peers_over_nic, rank_over_nic
from forensics.fixtures.simulator.settings import changed
from forensics.fixtures.simulator.simulation import Simulation, degraded, makespans, simulate
from forensics.fixtures.simulator.truth import truth
from tests.unit.simulator.small_jobs import DENSE

ALONE = changed(DENSE, ["gpus_per_host=1"])
MIXTURE = changed(PRESETS["mixtral-8x7b"], ["model.layers=4", "microbatches=2"])
SHIM, TRACED = ("recorder", "shim"), ("recorder", "shim", "kineto")
PIPELINED = changed(PRESETS["mycroft"], ["model.layers=4", "microbatches=2", "fabric.nics=0"])


def case(fault: str, seed: int = 2) -> Simulation:
    job = MIXTURE if "expert" in fault else ALONE if "leaf" in fault else DENSE
    return simulate(job, [parse(fault)], seed, iterations=5)


@pytest.mark.parametrize(
    "name",
    [name if number % 6 == 0 else pytest.param(name, marks=pytest.mark.slow) for number, name in enumerate(sorted(FAULTS))],
)
def test_every_kind_leaves_the_past_as_it_was_and_says_where_it_is(name: str) -> None:
    made = case(name)
    before = max((injection.iteration for injection in made.injections), default=0)
    assert np.array_equal(made.run.ends[:before], made.reference.ends[:before])
    assert made.hung == (FAULTS[name].family in ("hang", "program"))
    for fault in truth(made, Losses())["faults"]:
        assert fault["ranks"] and fault["hosts"] and fault["accepted_causes"]
        assert fault["onset_ns"] is not None
        assert fault["onset_ns"] <= truth(made, Losses())["capture_ns"] + 2e9


def test_a_limited_nic_may_be_called_one_whose_slot_is_in_use() -> None:
    """Both move less both ways, and nothing in a bundle shows which of the two it is."""
    (found,) = truth(case("nic-slow@rank3:30+before"), Losses())["faults"]
    assert {*found["accepted_causes"]} == {"network_slow", "nic_or_pcie_slow"}


@pytest.mark.parametrize(
    ("sources", "accepted"),
    [(["recorder"], {"dataloader_stall", "host_stall"}), (["recorder", "stacks"], {"dataloader_stall"})],
    ids=["recorder", "with stacks"],
)
def test_in_what_a_host_stopped_is_known_where_something_shows_its_stage(sources: list[str], accepted: set[str]) -> None:
    (found,) = truth(case("dataloader-stall@rank3"), Losses(sources=frozenset(sources)))["faults"]
    assert {*found["accepted_causes"]} == accepted


@pytest.mark.parametrize(("sources", "accepted"), [(["recorder"], {"gil_held", "host_stall"}), (["stacks"], {"gil_held"})])
def test_only_a_stack_shows_who_keeps_the_interpreter_lock(sources: list[str], accepted: set[str]) -> None:
    (found,) = truth(case("gil-held@rank3"), Losses(sources=frozenset(sources)))["faults"]
    assert {*found["accepted_causes"]} == accepted


@pytest.mark.parametrize(
    ("fault", "beside", "timed", "stage"),
    [
        ("forward-device", "stages", False, False),
        ("forward-device", "stages", True, True),
        ("forward-device", "kineto", False, True),
        ("backward", "stages", False, True),
    ],
)
def test_of_passes_before_one_collective_host_times_tell_none(fault: str, beside: str, timed: bool, stage: bool) -> None:
    """A device that computed longer before the first gradients did so in forward, or in backward before them; not behind."""
    job = changed(PRESETS["ddp-8"], ["model.layers=8"])
    made = simulate(job, [parse(f"frontier-{fault}@rank3")], 2, iterations=3)
    (found,) = truth(made, Losses(sources=frozenset({"recorder", beside})), timed=timed)["faults"]
    assert found["determinable"]["stage"] is stage


@pytest.mark.parametrize(
    ("weak", "strong"),
    [
        ("gpu-throttled@rank3:350+before", "gpu-throttled@rank3:200+before"),
        ("nic-slow@rank3:60+before", "nic-slow@rank3:10+before"),
        ("background-compute@node1:10+before", "background-compute@node1:60+before"),
        ("frontier-backward@rank3:12", "frontier-backward@rank3:360"),
        ("pcie-gpu@rank3:80+before", "pcie-gpu@rank3:20+before"),
    ],
)
@pytest.mark.first(1)
def test_a_higher_level_costs_more(weak: str, strong: str) -> None:
    spans = [makespans(case(fault).run)[-1] for fault in (weak, strong)]
    assert makespans(case("none").run)[-1] < spans[1]
    assert spans[0] < spans[1]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("fault", ["transmission-hang", "nic-down"])
def test_transfers_are_struck_where_they_cross_a_nic(fault: str, seed: int) -> None:
    made = simulate(PIPELINED, [parse(fault)], seed, iterations=3)
    (injection,) = made.injections
    (rank,), at = injection.ranks, injection.position
    stage, _ = PIPELINED.parallel.stage_of(rank)
    used = [op for op in program(PIPELINED, stage, 0) if is_communication(op) and rank_over_nic(PIPELINED, rank, op)]
    assert used and (at is None or rank_over_nic(PIPELINED, rank, at.op))


@pytest.mark.parametrize("seed", range(3))
def test_a_link_inside_a_host_has_nothing_to_do_with_its_nic(seed: int) -> None:
    made = simulate(DENSE, [parse("nvlink-down")], seed, iterations=3)
    (injection,) = made.injections
    assert injection.position is not None
    assert not rank_over_nic(DENSE, injection.ranks[0], injection.position.op)
    logs = dict(bundle.members(made, bundle.options_of(made), Losses()))
    found = {path.split("/")[1] for path, text in logs.items() if path.endswith("dmesg.txt") and b"): 74, " in text}
    assert found == {made.places.host(injection.ranks[0]).name}


def test_slow_links_inside_a_host_slow_its_groups_and_no_message_to_another_host() -> None:
    plain, slow = case("none"), case("nvlink-slow@rank3:2+before")
    stage, place = DENSE.parallel.stage_of(3)
    ops = program(DENSE, stage, 0)
    inside = [number for number, op in enumerate(ops) if op.axis == "tp"]
    spans = [np.median(_spans(found, stage)[inside, place]) for found in (plain, slow)]
    assert spans[1] > 5 * spans[0]
    crossing = [number for number, op in enumerate(program(DENSE, 1, 0)) if op.kind == "recv"]
    times = [np.median(_spans(found, 1)[crossing, 3]) for found in (plain, slow)]
    assert over_nic(DENSE, 1, program(DENSE, 1, 0)[crossing[0]]).all() and times[1] < 100 * times[0]


def _spans(made: Simulation, stage: int) -> Floats:
    recording = [each for each in made.run.recordings if each.stage == stage][-1]
    return recording.ended - recording.began


def test_a_rail_joins_the_nics_of_one_number() -> None:
    fault = truth(case("rail-slow@rail2:20"), Losses())["faults"][0]
    assert fault["ranks"] == [2, 6, 10, 14]
    with pytest.raises(ForensicsError, match="outside the job"):
        case("rail-slow@rail4")


@pytest.mark.parametrize("seed", range(3))
def test_neighbours_that_are_slow_pass_data_to_each_other(seed: int) -> None:
    made = simulate(PIPELINED, [parse("neighbours-slow@random:5+before")], seed, iterations=4)
    one, other = truth(made, Losses())["faults"][0]["ranks"]
    parallel = PIPELINED.parallel
    ops = [op for op in program(PIPELINED, parallel.stage_of(one)[0], 0) if is_communication(op)]
    rings = set().union(*(peers_over_nic(PIPELINED, one, op) for op in ops if op.peer is None))
    assert other in rings or parallel.stage_of(one)[1] == parallel.stage_of(other)[1]
    assert PIPELINED.host_of(one) != PIPELINED.host_of(other)
    assert makespans(made.run)[-1] > makespans(made.reference)[-1]


def test_two_faults_at_once_are_both_in_the_truth_and_in_the_physics() -> None:
    made = simulate(DENSE, [parse("gpu-throttled@rank3:200"), parse("nic-slow@rank9:10")], 2, iterations=5)
    assert [fault["ranks"] for fault in truth(made, Losses())["faults"]] == [[3], [9]]
    alone = [simulate(DENSE, [parse(fault)], 2, iterations=5) for fault in ("gpu-throttled@rank3:200", "nic-slow@rank9:10")]
    assert makespans(made.run)[-1] > max(makespans(each.run)[-1] for each in alone)


def test_a_proxy_that_sleeps_costs_whole_seconds() -> None:
    made = case("proxy-delay@rank3:100+before")
    ops = next(column.ops for _, column in made.run.of_rank(3))
    extra = makespans(made.run)[-1] - makespans(made.reference)[-1]
    assert extra > 2 * S and len(ops) > 2
    assert degraded(made)


def test_a_delay_in_the_critical_place_is_a_slowdown_and_a_small_one_is_not() -> None:
    assert truth(case("compute-delay@rank3:30s"), Losses())["outcome"] == "slowdown"
    assert truth(case("compute-delay@rank3:0.01"), Losses())["outcome"] == "healthy"
    assert truth(case("none"), Losses())["outcome"] == "healthy"


@pytest.mark.parametrize(
    ("fault", "sources", "microbatch", "mechanism"),
    [
        ("host-hang@rank3/forward", {"recorder"}, True, False),
        ("host-hang@rank3/forward", {"stacks", "processes"}, False, False),
        ("compute-delay@rank3:30s/forward", {"recorder"}, False, False),
        ("compute-delay@rank3:30s/forward", {"recorder", "shim"}, True, False),
        ("process-killed@rank3", {"recorder", "shim"}, False, False),
        ("nic-slow@rank3:10", {"recorder", "shim"}, False, True),
        ("nic-slow@rank3:10", {"recorder"}, False, False),
    ],
)
def test_sources_decide_what_a_verdict_has_to_say(fault: str, sources: set[str], microbatch: bool, mechanism: bool) -> None:
    found = truth(case(fault), Losses(sources=frozenset(sources)))["faults"][0]["determinable"]
    assert (found["microbatch"], found["mechanism"]) == (microbatch, mechanism)


@pytest.mark.parametrize(
    ("fault", "seed", "place", "asked"),
    [
        ("backward", 2, ("attention", 0, 1), (True, True)),
        ("backward", 5, ("embedding", None, 2), (True, False)),
        ("backward", 4, ("attention", 1, 3), (True, False)),
        ("forward", 9, ("embedding", None, 2), (False, False)),
        ("forward", 1, ("mlp", 1, 3), (True, True)),
    ],
    ids=["amid a pass", "its end", "the begin of the next", "a forward pass behind it", "its last layer"],
)
def test_between_two_passes_without_a_message_neither_is_asked_for(
    fault: str, seed: int, place: tuple[str, int | None, int], asked: tuple[bool, bool]
) -> None:
    """The first stage sends nothing when it ends a backward pass."""
    job = changed(PIPELINED, ["microbatches=4", "model.embedding=0.5", "model.head=0.5"])
    made = simulate(job, [parse(f"compute-delay@rank0:30s/{fault}")], seed, iterations=4)
    op, _ = struck(made, made.injections[0])
    assert op is not None and (op.name, op.layer, op.microbatch) == place
    found = {each: truth(made, Losses(sources=frozenset(each)))["faults"][0]["determinable"] for each in (SHIM, TRACED)}
    assert (found[SHIM]["stage"], found[SHIM]["microbatch"]) == asked
    assert found[TRACED]["stage"] and found[TRACED]["microbatch"]


@pytest.mark.parametrize(
    ("fault", "sources", "stage"),
    [
        ("dataloader-stall@rank3", {"recorder"}, False),
        ("dataloader-stall@rank3", {"recorder", "stacks"}, True),
        ("process-killed@rank3", {"recorder", "stacks"}, False),
        ("host-hang@rank3/forward", {"recorder"}, True),
        ("host-hang@rank3/forward", {"logs"}, False),
        ("kernel-hang@rank3", {"recorder"}, True),
    ],
)
def test_the_stage_of_a_host_is_asked_for_where_its_stack_or_calls_of_one_stage_around_it_show_it(
    fault: str, sources: set[str], stage: bool
) -> None:
    assert truth(case(fault), Losses(sources=frozenset(sources)))["faults"][0]["determinable"]["stage"] is stage


@pytest.mark.parametrize(
    ("fault", "seed", "sources", "asked"),
    [
        ("backward", 26, {"recorder", "stacks"}, (False, False)),
        ("forward", 9, {"recorder", "stacks"}, (True, True)),
        ("forward", 9, {"recorder"}, (False, False)),
        ("backward", 18, {"recorder", "stacks"}, (True, False)),
        ("forward", 4, {"recorder"}, (True, True)),
    ],
    ids=["without frames", "in the model", "without a stack", "two of one direction", "amid a pass"],
)
def test_a_host_between_two_passes_is_asked_for_neither_unless_its_stack_shows_one(
    fault: str, seed: int, sources: set[str], asked: tuple[bool, bool]
) -> None:
    job = replace(DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), microbatches=8)
    made = simulate(job, [parse(f"host-hang@rank0/{fault}")], seed, iterations=4)
    found = truth(made, Losses(sources=frozenset(sources)))["faults"][0]["determinable"]
    assert (found["stage"], found["microbatch"]) == asked


def test_of_what_a_rank_does_not_send_to_one_other_the_link_is_known() -> None:
    """To the sender it looks as if no credit came, which its receiver gave."""
    made = case("transmission-hang@rank2/backward")
    found = truth(made, Losses(sources=frozenset({"shim"})))["faults"][0]["determinable"]
    assert (found["granularity"], found["members"], len(found["ranks"])) == ("link", "one_of", 2)
    assert set(made.injections[0].ranks) < set(found["ranks"])


def test_the_group_of_a_kernel_is_that_of_the_call_behind_it_in_its_own_step() -> None:
    """Microbatches of another length have other sizes in each step."""
    made = simulate(changed(DENSE, ["shortest=8"]), [parse("kernel-hang@rank7/forward")], 4, iterations=6, onset=4)
    assert truth(made, Losses())["faults"][0]["determinable"]["ranks"] == [6, 7]


def test_a_process_that_ends_in_a_slow_job_ends_where_this_job_was_by_then() -> None:
    """When it ends is drawn in a run without faults."""
    before, killed = parse("gpu-throttled@rank3:150+before"), parse("process-killed@rank3")
    further = []
    for made in (simulate(DENSE, faults, 7, iterations=6, onset=4) for faults in ([killed], [before, killed])):
        position = made.injections[-1].position
        assert position is not None
        further.append(struck(made, made.injections[-1])[1] - position.number)
    assert further[0] in (0, 1) and further[1] not in (0, 1)


def test_the_only_microbatch_of_an_iteration_need_not_be_stated() -> None:
    made = simulate(changed(DENSE, ["microbatches=1"]), [parse("host-hang@rank3/forward")], 2, iterations=4)
    assert truth(made, Losses())["faults"][0]["determinable"]["microbatch"] is False


def test_a_rank_without_a_log_does_not_tell_what_became_of_its_transfer() -> None:
    lost = Losses(missing=frozenset({3}), sources=frozenset({"shim"}))
    assert truth(case("nic-slow@rank3:10"), lost)["faults"][0]["determinable"]["mechanism"] is False


def test_the_jobs_of_the_frontier_paper_have_its_step_times() -> None:
    for name, published in (("ddp-8", 207), ("ddp-32", 235)):
        made = simulate(PRESETS[name], [parse("none")], 1, iterations=12)
        assert np.median(makespans(made.run)) / MS == pytest.approx(published, rel=0.05)


def test_a_fault_that_a_job_cannot_have_is_refused() -> None:
    with pytest.raises(ForensicsError, match="no experts"):
        simulate(DENSE, [parse("expert-imbalance")], 1, iterations=4)
    with pytest.raises(ForensicsError, match="one node"):
        simulate(PRESETS["ddp-8"], [parse("background-traffic")], 1, iterations=4)
    with pytest.raises(ForensicsError, match="nothing over"):
        simulate(PRESETS["ddp-8"], [parse("nic-slow")], 1, iterations=4)
