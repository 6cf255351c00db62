"""Telemetry reaches back before the onset on watched hosts, and shows sound iterations there."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from forensics.fixtures.simulator.bundle import options_of
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.windows import Windows, windows
from forensics.fixtures.simulator.writers.nic_epochs import nic_epochs
from forensics.fixtures.simulator.writers.shim_log import shim_log
from tests.unit.ingest.reading import read

JOB = TrainingJob(
    "windows", Parallelism(tensor=2, pipeline=2, data=4), Model(4, 240 * MS, 4 << 20, 48 << 20), microbatches=2,
    gpus_per_host=2, gradient_buckets=1,
)  # fmt: skip
NEWEST_S = 1.0


@cache
def case(fault: str) -> Simulation:
    return simulate(JOB, [parse(fault)], 3, iterations=24, onset=20, after_s=20.0)


def seen(made: Simulation) -> Windows:
    network = Network(made.run, made.effects, made.capture_ns, made.seed)
    return windows(network, made.stall_ns if made.hung else made.capture_ns, NEWEST_S, 14.0, 16_000)


@cache
def logs(fault: str) -> list[Any]:
    made = case(fault)
    return [
        read(content, path)
        for path, content in shim_log(made.run, made.places, made.capture_ns, options_of(made), made.effects)
    ]


def test_a_quarter_of_the_hosts_is_watched_whatever_the_fault() -> None:
    found = [seen(case(fault)) for fault in ("host-hang@rank3", "nic-slow@rank3:20%+lasting", "none")]
    assert found[0].watched == found[1].watched == found[2].watched
    assert len({JOB.host_of(rank) for rank in found[0].watched}) == 2 and len(found[0].watched) == 4


def test_a_history_begins_ten_seconds_before_a_hang_and_elsewhere_the_newest_moments_do() -> None:
    made = case("host-hang@rank3")
    found = seen(made)
    onset = made.injections[0].onset_ns
    assert found.history_ns < onset - 10e9
    assert found.newest_ns > onset - 2e9
    assert {found.begin_ns(rank) for rank in range(16)} == {found.history_ns, found.newest_ns}


def test_watched_ranks_have_flows_of_several_sound_iterations_before_the_onset() -> None:
    made = case("host-hang@rank3")
    watched = seen(made).watched
    for rank, found in enumerate(logs("host-hang@rank3")):
        assert found.problems == []
        onset = made.places.wall_of(rank, made.injections[0].onset_ns)
        sound = [row for row in found.rows("flows") if row["start_ns"] is not None and row["start_ns"] < onset - 10e9]
        assert bool(sound) == (rank in watched)
        if rank in watched:
            steps = {int((row["start_ns"] - made.places.wall_of(rank, 0.0)) / 1e9) for row in sound}
            assert len(steps) > 1


def test_both_ends_of_a_connection_count_the_same_bytes_whatever_their_windows() -> None:
    state: dict[tuple[str, str], Any] = {}
    peers: dict[tuple[str, str], tuple[str, str]] = {}
    for found in logs("none"):
        last = {row["queue_pair"]: row for row in found.rows("wr_samples") if row["locator"] < 0}
        for row in found.rows("queue_pairs"):
            own = row["gid"], str(row["number"])
            state[own], peers[own] = last[row["queue_pair"]], (row["remote_nic"], row["remote_queue_pair"])
    sent = {own: row["completed_bytes"] for own, row in state.items() if not row["received_bytes"]}
    assert len(sent) > 8
    for own, amount in sent.items():
        assert state[peers[own]]["received_bytes"] == pytest.approx(amount, abs=16 << 20)


def test_nic_epochs_reach_further_back_on_watched_hosts() -> None:
    made = case("none")
    watched = seen(made).watched
    reach: dict[bool, list[float]] = {True: [], False: []}
    for path, content in nic_epochs(made.run, made.places, made.capture_ns, options_of(made), made.effects):
        source = read(content, path)
        (capture,) = source.rows("captures")
        nic = path.rpartition("/")[2].removesuffix(".epochs")
        host = next(host.number for host in made.places.hosts if host.name == path.split("/")[1])
        rank = next(rank for rank in made.places.ranks(host) if made.places.gpu(rank).nic == nic)
        reach[rank in watched].append(capture["epochs"] * 32e-6)
    assert np.min(reach[True]) > 8.0 and np.max(reach[False]) < 3.0
