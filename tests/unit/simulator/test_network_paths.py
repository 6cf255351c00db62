"""Ways between NICs: where ranks are, who shares a NIC, on whose NIC data leaves, and faults of a part of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.simulator.bundle import options_of
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Floats, Parallelism
from forensics.fixtures.simulator.losses import Losses
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.program import program
from forensics.fixtures.simulator.queue_pairs import connections
from forensics.fixtures.simulator.routes import carriers, over_nic
from forensics.fixtures.simulator.settings import changed
from forensics.fixtures.simulator.simulation import Simulation, makespans, simulate
from forensics.fixtures.simulator.topology import Fabric, Topology, by_host
from forensics.fixtures.simulator.traffic import traffic
from forensics.fixtures.simulator.transfers import Transfer, transfers
from forensics.fixtures.simulator.truth import truth
from forensics.fixtures.simulator.wiring import exchange_wiring, handed_on, ring_wiring
from forensics.fixtures.simulator.writers.nic_epochs import nic_epochs
from forensics.fixtures.simulator.writers.shim_log import shim_log
from tests.unit.ingest.reading import read
from tests.unit.simulator.small_jobs import DENSE

CYCLIC = Topology(8, 4, 2, "round-robin", 0)
SHARDED = changed(DENSE, ["parallel.tensor=1", "parallel.pipeline=1", "parallel.data=16", "data_mode=zero1", "gradient_norm=0"])


def case(fault: str, *changes: str, seed: int = 2) -> Simulation:
    return simulate(changed(SHARDED, changes), [parse(fault)], seed, iterations=4)


def network_of(made: Simulation) -> Network:
    return Network(made.run, made.effects, made.capture_ns, 1)


def large(made: Simulation) -> Sequence[Transfer]:
    """The transfers of the last iteration that move much."""
    end = made.stall_ns if made.hung else float(made.run.ends[-1].min())
    found = transfers(network_of(made), float(made.run.ends[-2].max()), end)
    return [each for each in found if each.op.bytes >= 1 << 20]


def test_ranks_of_a_cyclic_scheduler_lie_on_one_host_after_the_other_and_share_nics_with_those_beside_them() -> None:
    assert CYCLIC.hosts.tolist() == [0, 1, 0, 1, 0, 1, 0, 1] and CYCLIC.locals.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert CYCLIC.sharing(0) == [0, 2] and CYCLIC.sharing(5) == [5, 7]


def test_a_drawn_order_of_hosts_keeps_the_ranks_of_a_host_together() -> None:
    found = [Topology(64, 8, 8, "permuted", seed).hosts.reshape(8, 8) for seed in range(3)]
    assert all((each == each[:, :1]).all() and sorted(each[:, 0].tolist()) == list(range(8)) for each in found)
    assert not np.array_equal(found[0], found[1])


def test_rings_go_through_all_members_of_a_host_before_they_leave_it() -> None:
    """NCCL orders the ranks of a communicator by node: as many lanes leave hosts as when ranks lie in order."""
    groups = np.arange(8)[None, :]
    in_order = Topology(8, 4, 2, "consecutive", 0)
    crossing = []
    for topology in (in_order, CYCLIC):
        lanes, _ = ring_wiring(topology.hosts, by_host(topology, groups), 2)
        crossing.append(int((topology.hosts[lanes.sender] != topology.hosts[lanes.receiver]).sum()))
    assert crossing[0] == crossing[1] > 0


def test_with_pxn_data_leaves_over_the_nic_of_the_rail_that_it_comes_to() -> None:
    topology, groups = Topology(8, 4, 4, "consecutive", 0), np.arange(8)[None, :]
    lanes = handed_on(topology, groups, exchange_wiring(groups, "all_to_all"))
    remote = topology.hosts[lanes.sender] != topology.hosts[lanes.receiver]
    assert (topology.hosts[lanes.via] == topology.hosts[lanes.sender]).all()
    assert (topology.slots[lanes.via] == topology.slots[lanes.receiver])[remote].all()
    assert (lanes.via == lanes.sender)[~remote].all()


def test_pxn_uses_no_rank_that_takes_no_part() -> None:
    topology, groups = Topology(8, 4, 4, "consecutive", 0), np.array([[0, 5]])
    lanes = handed_on(topology, groups, exchange_wiring(groups, "all_to_all"))
    assert lanes.via.tolist() == lanes.sender.tolist()


@cache
def narrow(fault: str, *changes: str) -> Simulation:
    """A pipeline with two stages on each host: rank 4 sends to rank 8 of the next host, whose rail is that of rank 0."""
    job = replace(
        DENSE, parallel=Parallelism(tensor=2, pipeline=4, data=2), gpus_per_host=8, fabric=Fabric(pxn=True),
        model=replace(DENSE.model, activation_bytes=64 << 20, layers=4),
    )  # fmt: skip
    return simulate(changed(job, changes), [parse(fault)], 3, iterations=4)


def sends_on(made: Simulation) -> set[tuple[int, int, int]]:
    """Sender, receiver and the rank over whose NIC, of messages between hosts in the slices of the run."""
    found: set[tuple[int, int, int]] = set()
    for transfer in transfers(network_of(made), 0.0, made.capture_ns):
        lanes = transfer.slices.lanes
        if transfer.algorithm == "message":
            found |= set(zip(lanes.sender.tolist(), lanes.receiver.tolist(), lanes.via.tolist(), strict=True))
    return found


def test_with_pxn_messages_leave_over_the_rail_of_their_receiver() -> None:
    made, plain = narrow("none"), narrow("none", "fabric.pxn=no")
    assert {(4, 8, 0), (7, 11, 3), (8, 4, 12), (11, 7, 15)} <= sends_on(made)
    assert all(via == sender for sender, _, via in sends_on(plain))
    op = next(op for op in program(made.job, 1, 0) if op.kind == "send" and op.message and op.message[0])
    assert carriers(made.job, 1, op) == {0, 1, 2, 3} and carriers(plain.job, 1, op) == {4, 5, 6, 7}
    assert not over_nic(made.job, 1, op).any()


def test_a_slow_nic_slows_the_messages_that_others_send_over_it() -> None:
    took = {}
    for fault in ("none", "nic-slow@rank0:10+before"):
        for recording in narrow(fault).run.recordings:
            if recording.iteration == 3 and recording.stage == 2:
                number = next(n for n, op in enumerate(recording.ops) if op.kind == "recv" and op.message and op.message[0])
                took[fault] = (recording.ended - recording.began)[number]
    assert (took["nic-slow@rank0:10+before"] > took["none"] + 5e6).tolist() == [True, False, False, False]


def test_the_process_beside_the_rail_has_the_queue_pairs_of_messages_that_it_sends_on() -> None:
    made = narrow("none")
    logs = list(shim_log(made.run, made.places, made.capture_ns, options_of(made)))
    sends_on_, sends = (read(content, path) for path, content in (logs[0], logs[4]))
    flows = [row for row in sends_on_.rows("flows") if row["communicator"] is None]
    assert {(row["peer"], row["direction"]) for row in flows} == {(2, "send")}, "rank 8 is the third of its pipeline"
    assert (
        {row["direction"] for row in sends.rows("flows")} == {row["direction"] for row in sends.rows("queue_pairs")} == {"recv"}
    )
    calls = {(row["kind"], row["peer"]) for row in sends.rows("operations") if row["is_p2p"]}
    assert ("send", 2) in calls and sum(row["bytes"] for row in flows) > 0


def test_gpus_that_share_a_nic_have_a_part_of_it_each() -> None:
    took = []
    for nics in (4, 2, 1):
        slices = large(case("none", f"fabric.nics={nics}", "noise.nic_spread=0"))[0].slices
        took.append(np.median((slices.moved - slices.moving)[:, slices.lanes.remote]))
    assert took[1] / took[0] == pytest.approx(2.0, rel=0.15) and took[2] / took[0] == pytest.approx(4.0, rel=0.15)


def test_a_nic_that_several_ranks_share_is_one_file_one_address_and_one_culprit() -> None:
    made = case("nic-slow@rank1:30+before", "fabric.nics=2")
    (fault,) = truth(made, Losses(sources=frozenset({"nic"})))["faults"]
    assert fault["ranks"] == [0, 1] and fault["resource"] == {"nic": made.places.gpu(0).nic}
    assert (fault["determinable"]["granularity"], fault["determinable"]["ranks"]) == ("nic", [0, 1])
    files = dict(nic_epochs(made.run, made.places, made.capture_ns, options_of(made), made.effects, window_s=0.3))
    assert len(files) == 2 * len(made.places.hosts)
    nics = {row["nic"] for content in files.values() for row in read(content, "x.epochs").rows("captures")}
    assert len(nics) == 2
    links = [{each["remote_nic"] for each in read(content, "x.epochs").rows("queue_pairs")} for content in files.values()]
    assert all(links)


@pytest.mark.parametrize("pairs", [1, 4])
def test_slices_take_the_queue_pairs_of_a_connection_in_turn(pairs: int) -> None:
    made = case("none", f"fabric.queue_pairs={pairs}")
    end = float(made.run.ends[-1].min())
    sent = traffic(network_of(made), end - 0.2e9, end).sent
    of_connection: dict[object, list[float]] = {}
    for whose, ramps in sent.items():
        if whose.is_sender:
            of_connection.setdefault(whose.connection, []).append(sum(float(sizes.sum()) for *_, sizes in ramps))
    assert {len(each) for each in of_connection.values()} == {pairs}
    assert all(max(each) <= 2.5 * min(each) for each in of_connection.values())


def test_the_log_of_a_rank_that_sends_for_another_knows_its_process_only() -> None:
    made = case("nic-down@random", "fabric.pxn=true", "gpus_per_host=4")
    handed = {
        (connection.via, connection.sender)
        for transfer in large(made)
        for _, connection in connections(transfer)
        if connection.via != connection.sender
    }
    assert handed, "no lane of this job goes over the NIC of another rank"
    logs = dict(shim_log(made.run, made.places, made.capture_ns, options_of(made), made.effects))
    found = [read(content, path) for path, content in logs.items()]
    assert all(each.problems == [] for each in found)
    for via in {via for via, _ in handed}:
        flows = found[via].rows("flows")
        assert any(row["communicator"] is None for row in flows) or not flows


@pytest.mark.parametrize("fault", ["channel-slow@random:20+before", "channel-stuck@random"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_fault_of_a_connection_leaves_the_other_channels_as_they_are(fault: str, seed: int) -> None:
    made = case(fault, "fabric.channels=4", seed=seed)
    (stated,) = truth(made, Losses(sources=frozenset({"shim"})))["faults"]
    sender, receiver = stated["ranks"]
    assert stated["determinable"]["granularity"] == "flow" and stated["resource"]["peer_ranks"] == [receiver]
    paces: dict[bool, list[float]] = {True: [], False: []}
    stuck: dict[bool, int] = {True: 0, False: 0}
    for transfer in large(made):
        lanes, slices = transfer.slices.lanes, transfer.slices
        for lane in np.flatnonzero((lanes.sender == sender) & (lanes.receiver == receiver)).tolist():
            is_it = int(lanes.channel[lane]) == stated["resource"]["channel"]
            through = np.isfinite(slices.moved[:, lane])
            paces[is_it] += (slices.moved[through, lane] - slices.moving[through, lane]).tolist()
            stuck[is_it] += int(not through.all() and bool(np.isfinite(lanes.sending.began[lane])))
    if made.hung:
        assert stuck[True] and not stuck[False]
    else:
        assert np.median(paces[True]) > 3 * np.median(paces[False]) and makespans(made.run)[-1] > makespans(made.reference)[-1]


@pytest.mark.parametrize(("share", "count"), [(30, 1), (30, 2), (10, 4), (40, 4)])
def test_a_slow_queue_pair_leaves_its_time_to_the_others_of_its_connection(share: int, count: int) -> None:
    made = case(f"queue-pair-slow@random:{share}+before", f"fabric.queue_pairs={count}", "noise.nic_spread=0")
    (stated,) = truth(made, Losses(sources=frozenset({"shim"})))["faults"]
    sender, receiver = stated["ranks"]
    took: dict[int, list[float]] = {turn: [] for turn in range(count)}
    usual = []
    for transfer in large(made):
        lanes, slices = transfer.slices.lanes, transfer.slices
        alone = (slices.moved - slices.moving)[:, lanes.remote & (lanes.channel == stated["resource"]["channel"])]
        usual.append(float(np.median(alone)))
        for lane in np.flatnonzero((lanes.sender == sender) & (lanes.receiver == receiver)).tolist():
            if int(lanes.channel[lane]) == stated["resource"]["channel"]:
                for turn in range(count):
                    took[turn] += (slices.moved - slices.moving)[turn::count, lane].tolist()
    slow, *others = sorted((float(np.median(each)) for each in took.values()), reverse=True)
    left = min(share / 100, 1 / count)
    assert slow > 0.8 * np.median(usual) / left
    assert all(0.8 * each * left < slow * (1 - left) / (count - 1) for each in others)
    slower = makespans(made.run)[-1] > 1.02 * makespans(made.reference)[-1]
    assert slower == (share / 100 * count < 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_stuck_queue_pair_leaves_the_others_as_far_as_credits_go(seed: int) -> None:
    made = case("queue-pair-stuck@random", "fabric.queue_pairs=4", seed=seed)
    sender, receiver = truth(made, Losses(sources=frozenset({"shim"})))["faults"][0]["ranks"]
    assert made.hung
    beyond = 0
    for transfer in large(made):
        lanes, slices = transfer.slices.lanes, transfer.slices
        for lane in np.flatnonzero((lanes.sender == sender) & (lanes.receiver == receiver)).tolist():
            stuck = np.isinf(slices.moved[:, lane]) & np.isfinite(slices.transmitted[:, lane])
            if sum(bool(stuck[turn::4].any()) for turn in range(4)) == 1:
                first = int(np.flatnonzero(np.isinf(slices.moved[:, lane]))[0])
                beyond += int(np.isfinite(slices.moved[first:, lane]).sum())
                assert np.isfinite(slices.moved[first:, lane]).sum() < 8 and np.isinf(slices.consumed[first:, lane]).all()
    assert beyond
    logs = dict(shim_log(made.run, made.places, made.capture_ns, options_of(made), made.effects))
    assert all(read(content, path).problems == [] for path, content in logs.items())


def _waits(made: Simulation, chosen: Floats, channel: int | None) -> tuple[float, float]:
    """Time that slices on lanes wait before the NIC and behind it, relative to how long they move."""
    filled, flying = [], []
    for transfer in large(made):
        slices, lanes = transfer.slices, transfer.slices.lanes
        mine = (chosen[lanes.sender, lanes.receiver] > 0) & lanes.remote & ((channel is None) | (lanes.channel == channel))
        if mine.any():
            took = (slices.moved - slices.moving)[:, mine]
            filled.append(((slices.transmitted - slices.ready)[:, mine] / took).mean())
            flying.append(((slices.moved - slices.transmitted)[:, mine] / took).mean())
    return float(np.mean(filled)), float(np.mean(flying))


@pytest.mark.parametrize(
    "fault",
    [
        "nic-slow@rank3:20+before", "nic-sends-slow@rank3:20+before", "nic-receives-slow@rank4:20+before",
        "pcie-nic@rank3:20+before", "pcie-contention@rank3:80+before", "memory-misaligned@rank3:20+before",
        "numa-crossed@node1:20+before", "rail-slow@rail3:20+before", "neighbours-slow@rank3:20+before",
        "network-degraded:20+before", "pcie-gpu@rank3:20+before",
        "background-traffic@link:node0-node1:20+before", "path-slow@random:20+before", "channel-slow@random:20+before",
    ],
)  # fmt: skip
def test_the_mechanism_of_a_slow_fault_is_among_what_its_slices_show(fault: str) -> None:
    """Mycroft table 4: slices wait filled before a NIC that sends slowly, and behind it where the way is narrow."""
    made = case(fault)
    (stated,) = truth(made, Losses(sources=frozenset({"shim"})))["faults"]
    chosen = np.zeros((16, 16))
    for rank in stated["ranks"]:
        chosen[(slice(None), rank) if stated["mechanism"]["side"] == "remote" else (rank, slice(None))] = 1.0
    if stated["mechanism"]["side"] == "unknown":
        chosen = chosen * 0
        chosen[np.ix_(stated["ranks"], stated["ranks"])] = 1.0
    filled, flying = _waits(made, chosen, stated["resource"].get("channel"))
    shown = "not_transmitted" if filled > 0.5 else "not_delivered" if flying > 2.0 else "late_end"
    assert shown in {stated["mechanism"]["state"], *stated["mechanism"]["also"]}, (filled, flying)


def test_a_proxy_that_sleeps_begins_last_with_all_its_flows() -> None:
    made = case("proxy-delay@rank3:100+before")
    (stated,) = truth(made, Losses(sources=frozenset({"shim"})))["faults"]
    firsts: list[tuple[float, float]] = []
    for transfer in large(made):
        slices, lanes = transfer.slices, transfer.slices.lanes
        first = slices.transmitted[0, lanes.remote] - slices.posted[0, lanes.remote].min()
        mine = lanes.sender[lanes.remote] == 3
        if mine.any():
            firsts.append((float(first[mine].min()), float(np.median(first[~mine]))))
    assert stated["mechanism"]["state"] == "late_start" and firsts
    assert all(own > 0.9e9 + usual for own, usual in firsts)


@pytest.mark.slow
@pytest.mark.parametrize(("course", "granularity", "mechanism"), [("before", "nic", True), ("recovering", "group", False)])
@pytest.mark.first(1)
def test_what_was_over_before_any_slice_that_is_kept_cannot_be_stated(course: str, granularity: str, mechanism: bool) -> None:
    job = changed(SHARDED, ["noise.oddities=0"])
    made = simulate(job, [parse(f"nic-slow@rank3:20+{course}")], 4, after_s=110)
    (stated,) = truth(made, Losses(sources=frozenset({"shim", "nic", "recorder"})))["faults"]
    assert (stated["determinable"]["granularity"], stated["determinable"]["mechanism"]) == (granularity, mechanism)
    assert 3 in stated["determinable"]["ranks"]


def test_operations_alone_do_not_tell_which_part_of_the_network_is_slow() -> None:
    for fault in ("background-traffic@link:node0-node1:20+before", "path-slow@random:20+before", "rail-slow@rail1:20+before"):
        made = case(fault)
        stated = [truth(made, Losses(sources=frozenset(each)))["faults"][0]["determinable"] for each in (
            {"recorder"}, {"recorder", "counters"}, {"recorder", "nic"})]  # fmt: skip
        has_marks = fault.startswith("background")
        assert [each["members"] for each in stated] == ["one_of", "each" if has_marks else "one_of", "each"]


def test_one_direction_of_a_port_leaves_the_other_one_as_it_was() -> None:
    spans = {fault: makespans(simulate(GATHER, [parse(fault)], 3, iterations=4).run)[-1] for fault in (
        "none", "nic-sends-slow@rank1:10+before", "nic-receives-slow@rank1:10+before")}  # fmt: skip
    sound, sends, receives = spans.values()
    assert receives == pytest.approx(sound, rel=0.05) and sends > 2 * sound


GATHER = replace(DENSE, name="gather", parallel=replace(DENSE.parallel, tensor=1, pipeline=1, data=4), exchange="gather",
                 gpus_per_host=1, microbatches=4, model=replace(DENSE.model, activation_bytes=64 << 20))  # fmt: skip


def test_what_stays_on_a_leaf_is_as_fast_as_ever() -> None:
    job = changed(SHARDED, ["gpus_per_host=1"])
    made = simulate(job, [parse("leaf-slow@leaf0:20+before")], 2, iterations=4)
    rates: dict[bool, list[float]] = {True: [], False: []}
    for transfer in large(made):
        lanes = transfer.slices.lanes
        crosses = (lanes.sender < 8) != (lanes.receiver < 8)
        for is_crossing in (True, False):
            rates[is_crossing] += lanes.rate[crosses == is_crossing].tolist()
    assert np.median(rates[True]) < 0.3 * np.median(rates[False])


@pytest.mark.parametrize(("fault", "said"), [("leaf-slow@leaf0", "no leaf"), ("path-slow@link:node0-node9", "outside the job")])
def test_parts_of_the_network_that_are_not_there_are_refused(fault: str, said: str) -> None:
    with pytest.raises(ForensicsError, match=said):
        case(fault)
