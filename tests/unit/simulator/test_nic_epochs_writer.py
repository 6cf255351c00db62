from __future__ import annotations

import json
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator.bundle import options_of
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Floats
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.sources import writers
from forensics.fixtures.simulator.traffic import HEADER_BYTES, PACKET_BYTES, Epochs, runs
from forensics.fixtures.simulator.writers.nic_epochs import EPOCH_NS, nic_epochs
from tests.unit.ingest.reading import Result, read
from tests.unit.simulator.lower_runs import JOB, case


def captures(fault: str, **more: Any) -> dict[int, Result]:
    made, options = case(fault)
    effects = [effect for injection in made.injections for effect in injection.effects]
    files = [
        read(content, path) for path, content in nic_epochs(made.run, made.places, made.capture_ns, options, effects, **more)
    ]
    return {found.identities[0].rank or 0: found for found in files}


def amounts(found: Result, direction: str) -> dict[str, int]:
    """Bytes of each queue pair."""
    total: dict[str, int] = defaultdict(int)
    for row in found.rows("nic_epochs"):
        total[row["queue_pair"]] += sum(json.loads(row["values"])) if row["direction"] == direction else 0
    return total


def rates(found: Result, direction: str) -> Floats:
    """Bytes sent or received in each epoch of the capture."""
    (capture,) = found.rows("captures")
    values = np.zeros(capture["epochs"])
    for row in found.rows("nic_epochs"):
        if row["direction"] == direction:
            begin = row["first_epoch"] - capture["first_epoch"]
            run = json.loads(row["values"])
            values[begin : begin + len(run)] += run
    return values


def test_every_nic_has_a_capture_that_reads_without_problems() -> None:
    found = captures("none")
    assert sorted(found) == list(range(JOB.parallel.world))
    assert all(each.problems == [] for each in found.values())


def test_what_one_end_sends_the_other_receives() -> None:
    found = captures("none", window_s=1.0)
    pairs = {(row["gid"], row["number"]): (rank, row) for rank, each in found.items() for row in each.rows("queue_pairs")}
    sends = {rank: amounts(each, "send") for rank, each in found.items()}
    receives = {rank: amounts(each, "recv") for rank, each in found.items()}
    for rank, row in pairs.values():
        other, there = pairs[row["remote_nic"], int(row["remote_queue_pair"])]
        gone, come = sends[rank][row["queue_pair"]], receives[other][there["queue_pair"]]
        assert come == pytest.approx(gone, rel=0.02, abs=2_000)


def test_a_gradient_reduction_has_the_volume_of_a_ring_and_headers() -> None:
    found = captures("none", window_s=1.0)
    made, _ = case("none")
    busiest = [max(amounts(each, "send").values()) for each in found.values()]
    each = 2 * 2 / 3 * JOB.model.parameter_bytes / 2 * (1 + HEADER_BYTES / PACKET_BYTES)
    iterations = len(made.run.ends)
    assert np.median(busiest) == pytest.approx(each * iterations, rel=0.12)


def test_no_queue_pair_moves_more_in_an_epoch_than_its_share_of_the_nic() -> None:
    share = JOB.rates.nic / 2 * EPOCH_NS / 1e9
    for found in captures("none").values():
        assert max(max(json.loads(row["values"])) for row in found.rows("nic_epochs")) < share * 1.35


def test_a_slow_nic_is_busy_longest_and_its_group_has_gaps() -> None:
    found = captures("nic-slow@rank2:25", window_s=0.04)
    busy = {
        rank: sum(int((rates(each, way) > 2_000).sum()) for way in ("send", "recv")) for rank, each in found.items()
    }  # a NIC that is slow both ways holds up what one neighbour sends, and what the other receives
    group = [rank for rank in JOB.parallel.members("dp", 2) if rank != 2]
    assert busy[2] > 1.2 * max(busy[rank] for rank in group)


def test_a_nic_that_went_down_moves_nothing_afterwards() -> None:
    made, _ = case("nic-down@rank2")
    onset = made.injections[0].onset_ns
    for rank, found in captures("nic-down@rank2").items():
        last = max(row["first_epoch"] + len(json.loads(row["values"])) for row in found.rows("nic_epochs"))
        edge = made.places.wall_of(rank, onset) // EPOCH_NS
        if rank == 2:
            data = [row for row in found.rows("nic_epochs") if max(json.loads(row["values"])) > 5_000]
            last = max(row["first_epoch"] + len(json.loads(row["values"])) for row in data)
            assert last <= edge + 2


def test_a_short_window_in_which_others_send_nothing_has_no_run() -> None:
    made, _ = case("none")
    nothing, epochs = np.zeros(0), Epochs(EPOCH_NS, made.capture_ns - 1e6, made.capture_ns)
    assert list(runs([(nothing, nothing, nothing)], made.places, 0, epochs)) == []


def test_the_window_is_kept_and_the_bytes_are_the_same_for_the_same_seed() -> None:
    made, options = case("none")
    first = list(nic_epochs(made.run, made.places, made.capture_ns, options, window_s=0.1))
    assert first == list(nic_epochs(made.run, made.places, made.capture_ns, options, window_s=0.1))
    (capture,) = read(first[0][1]).rows("captures")
    assert capture["epochs"] == pytest.approx(0.1 * 1e9 / EPOCH_NS, abs=2)


def test_files_do_not_depend_on_which_others_are_written() -> None:
    made, options = case("nic-slow@rank2:25")
    effects = made.injections[0].effects
    alone = list(nic_epochs(made.run, made.places, made.capture_ns, options, effects))
    for _, writer in writers(made, ("counters", "nic", "shim")):
        assert list(writer(made.run, made.places, made.capture_ns, options))
    assert alone == list(nic_epochs(made.run, made.places, made.capture_ns, options, effects))


@pytest.mark.slow
def test_sixty_four_gpus_take_seconds() -> None:
    made = simulate(PRESETS["gpt2-70b"], [parse("none")], 1, iterations=3)
    end = float(made.run.ends[-1].min())
    began = time.process_time()
    files = list(nic_epochs(made.run, made.places, end, options_of(made)))
    assert len(files) == 64
    assert time.process_time() - began < 20.0
