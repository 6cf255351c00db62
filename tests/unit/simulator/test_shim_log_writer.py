from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.queue_pairs import connections
from forensics.fixtures.simulator.transfers import transfers
from forensics.fixtures.simulator.writers.counters import counters
from forensics.fixtures.simulator.writers.shim_aside import RECEIVER, SENDER, Aside
from forensics.fixtures.simulator.writers.shim_log import shim_log
from tests.unit.ingest.reading import Result, read
from tests.unit.simulator.lower_runs import JOB, case

SENT = ("posted", "gpu_ready", "transmitted", "done")
GOT = ("posted", "received", "flushed", "consumed")


@cache
def logs(fault: str) -> dict[int, Result]:
    made, options = case(fault)
    effects = [effect for injection in made.injections for effect in injection.effects]
    files = shim_log(made.run, made.places, made.capture_ns, options, effects)
    return {rank: read(content, path) for rank, (path, content) in enumerate(files)}


def newest(found: Result, direction: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The newest state of each open flow."""
    rows = [row for row in found.rows("chunk_states") if row["locator"] < 0 and row["direction"] == direction]
    return {(row["communicator"], row["sequence"], row["channel"], row["peer"]): row for row in rows}


def test_logs_of_all_ranks_read_without_problems_and_hold_every_table() -> None:
    for rank, found in logs("none").items():
        assert found.problems == []
        assert found.identities[0].rank == rank
        for table in (
            "operations",
            "communicator_states",
            "communicator_events",
            "queue_pairs",
            "flows",
            "clocks",
            "nic_epochs",
        ):
            assert found.rows(table), table


def test_queue_pairs_sent_as_much_in_each_step_before_the_run() -> None:
    """What counts by totals (queue pairs with one sample) is in proportion to what moves lately."""
    made, options = case("none")
    sent = [defaultdict[tuple[int, str], int](int) for _ in range(2)]
    for each, first_step in zip(sent, (0, 1000), strict=True):
        for rank, (path, content) in enumerate(
            shim_log(made.run, made.places, made.capture_ns, replace(options, first_step=first_step))
        ):
            for row in read(content, path).rows("wr_samples"):
                each[rank, row["queue_pair"]] = max(each[rank, row["queue_pair"]], row["completed_bytes"])
    young, old = ([each[key] for key in sorted(sent[0])] for each in sent)
    steps = [(later - first) / first for first, later in zip(young, old, strict=True) if first > 0]
    assert len(steps) > len(young) / 4 and np.allclose(steps, 1000 / made.run.ends.shape[0], rtol=0.25)


def test_members_of_a_communicator_agree_on_its_calls() -> None:
    calls: dict[tuple[str, int], set[tuple[Any, ...]]] = defaultdict(set)
    for found in logs("none").values():
        for row in found.rows("operations"):
            if not row["is_p2p"]:
                calls[row["communicator"], row["sequence"]].add((row["kind"], row["count"], row["dtype"]))
    assert calls and all(len(stated) == 1 for stated in calls.values())


def test_a_send_has_a_receive_with_its_number() -> None:
    sends, receives = set(), set()
    for rank, found in logs("none").items():
        stage, place = JOB.parallel.stage_of(rank)
        for row in found.rows("operations"):
            if row["kind"] == "send":
                sends.add((place, stage, row["peer"], row["pair_number"], row["bytes"]))
            if row["kind"] == "recv":
                receives.add((place, row["peer"], stage, row["pair_number"], row["bytes"]))
    both = sends & receives
    assert both and len(sends ^ receives) <= 4 * JOB.parallel.width


@pytest.mark.slow
def test_counters_follow_one_another_in_every_sample() -> None:
    for fault in ("none", "nic-down@rank2", "transmission-hang@rank3", "host-hang@rank1"):
        for found in logs(fault).values():
            for row in found.rows("chunk_states"):
                counts = [row[name] for name in (SENT if row["direction"] == "send" else GOT)]
                assert counts == sorted(counts, reverse=True) and counts[0] <= row["total"]
                assert counts[0] - counts[-1] <= 8


def test_what_the_receiver_has_the_sender_has_sent() -> None:
    for fault in ("nic-down@rank2", "transmission-hang@rank2/optimizer"):
        all_logs = logs(fault)
        sent: dict[tuple[Any, ...], int] = {}
        got: dict[tuple[Any, ...], int] = {}
        for found in all_logs.values():
            own = {row["communicator"]: row["group_rank"] for row in found.rows("communicator_states")}
            for direction, kept, name in (("send", sent, "transmitted"), ("recv", got, "received")):
                for (comm, number, channel, peer), row in newest(found, direction).items():
                    ends = (own[comm], peer) if direction == "send" else (peer, own[comm])
                    kept[comm, number, channel, *ends] = row[name]
        shared = sent.keys() & got.keys()
        assert shared and all(got[key] <= sent[key] for key in shared)


def test_a_nic_that_went_down_shows_on_flows_from_and_to_it_and_on_their_queue_pairs() -> None:
    found = logs("nic-down@rank2")
    stuck = [
        (rank, members(row["communicator"], rank, row["peer"]))
        for rank, each in found.items()
        for row in newest(each, "send").values()
        if row["transmitted"] > row["done"]
    ]
    assert stuck and all(2 in ends for ends in stuck)
    failed = {rank for rank, each in found.items() for row in each.rows("wr_samples") if row.get("error_status") == 12}
    assert failed == {rank for rank, _ in stuck}
    waiting = [
        row["oldest_ns"] for rank in failed for row in found[rank].rows("wr_samples") if row["locator"] < 0 and row["oldest_ns"]
    ]
    assert max(waiting) > 30e9


def members(communicator: str, rank: int, peer: int) -> int:
    """The global rank of a peer."""
    places = {
        row["group_rank"]: other
        for other, found in logs("nic-down@rank2").items()
        for row in found.rows("communicator_states")
        if row["communicator"] == communicator
    }
    assert rank in places.values()
    return places[peer]


def test_a_transfer_that_is_never_sent_was_filled_by_the_gpu() -> None:
    rows = newest(logs("transmission-hang@rank2/optimizer")[2], "send").values()
    assert any(row["gpu_ready"] > row["transmitted"] == 0 for row in rows)


def test_a_stopped_process_writes_nothing_more() -> None:
    made, _ = case("process-stopped@rank1")
    onset = made.places.wall_of(1, made.injections[0].onset_ns)
    found = logs("process-stopped@rank1")
    assert max(row["realtime_ns"] for row in found[1].rows("clocks")) <= onset + 1_000_000
    assert max(row["realtime_ns"] for row in found[0].rows("clocks")) > onset + 10**10


def test_times_are_those_of_the_host_clock() -> None:
    made, _ = case("none")
    for rank, found in logs("none").items():
        entered = [row["entered_ns"] for row in found.rows("operations")]
        assert made.places.wall_of(rank, -1e6) < min(entered)
        assert max(entered) <= made.places.wall_of(rank, made.capture_ns) + 1_000


def test_a_rank_with_a_program_of_its_own_is_stated_as_it_is() -> None:
    found = logs("skipped-collective@rank4")
    assert all(each.problems == [] for each in found.values())
    assert len(found) == JOB.parallel.world


def test_counters_are_read_twice_and_grow_only_while_something_moves() -> None:
    for fault, moves in (("none", True), ("nic-down@rank2", False)):
        made, options = case(fault)
        effects = [effect for injection in made.injections for effect in injection.effects]
        at = float(made.run.ends[-3].min()) if moves else made.capture_ns
        files = dict(counters(made.run, made.places, at, options, effects))
        host = made.places.host(2).name
        first, second = (json.loads(files[f"nodes/{host}/ib/counters-{number}.json"])["devices"] for number in (0, 1))
        nic = made.places.gpu(2).nic
        data = [each[nic]["ports"]["1"]["counters"]["port_xmit_data"] for each in (first, second)]
        assert (data[1] > data[0]) == moves
        assert first[nic]["ports"]["1"]["state"] == ("4: ACTIVE" if moves else "1: DOWN")
        assert files[f"nodes/{host}/gpu/nvidia-smi.xml"].startswith(b"<?xml")


def test_times_that_are_put_aside_come_back_as_they_were() -> None:
    made, _ = case("none")
    transfer = next(transfers(Network(made.run, made.effects, made.capture_ns, made.seed), 0.0, made.capture_ns))
    lane, _ = next(connections(transfer))
    aside = Aside()
    spans = [(aside.put(transfer.slices, lane, is_recv), RECEIVER if is_recv else SENDER) for is_recv in (False, True)]
    for span, stages in spans:
        times, sizes = aside.get(span)
        assert all(
            np.array_equal(times[:, place], getattr(transfer.slices, stage)[:, lane]) for place, stage in enumerate(stages)
        )
        assert len(sizes) == len(times) and sizes.sum() == transfer.slices.sizes[:, 0].sum()
