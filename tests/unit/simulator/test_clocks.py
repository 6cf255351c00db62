"""Clocks of hosts: drawn without regard to faults, and one clock behind all that a host writes."""

from __future__ import annotations

import gzip
import json
import re
import struct
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.clocks import Clock, draw_clocks
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.recorder import layout as stage_layout
from tests.unit.simulator.small_jobs import DENSE

JUMP_NS = 700e6
RANK = 15


@cache
def stepped(jump_ns: float = JUMP_NS) -> Simulation:
    """A sound job in which the clock of the last host is set in the middle; the others are right."""
    made = simulate(DENSE, [parse("none")], 3, iterations=8)
    right = [replace(host, clock=Clock(0.0, 0.0)) for host in made.places.hosts]
    right[-1] = replace(right[-1], clock=Clock(0.0, 0.0, ((half(made), jump_ns),)))
    return replace(made, places=replace(made.places, hosts=tuple(right)), capture_ns=float(made.run.ends[-2].min()))


def half(made: Simulation) -> float:
    """The middle of the fifth iteration."""
    return float(made.run.begins[4].max() + made.run.ends[4].min()) / 2


def members(made: Simulation, **options: object) -> Iterator[tuple[str, bytes]]:
    kept = losses.drawn(DENSE.parallel.world, np.random.default_rng(1), beside=("stages,kineto",))
    yield from bundle.members(made, bundle.options_of(made, **options), kept)


def drawn(seeds: int = 400) -> list[Clock]:
    return [draw_clocks(1, 60e9, np.random.default_rng(seed))[0] for seed in range(seeds)]


def test_some_clusters_are_kept_below_a_millisecond_and_some_are_seconds_off() -> None:
    offsets = np.abs([clock.offset_ns for clock in drawn()])
    assert 0.3 < np.mean(offsets < 1e6) < 0.7
    assert 0.02 < np.mean(offsets > 1e9) < 0.25


def test_clocks_are_set_forward_and_back_now_and_then() -> None:
    jumps = [jump for clock in drawn() for when, jump in clock.steps if 0 <= when <= 60e9]
    assert 4 < len(jumps) < 80
    assert min(jumps) < -1e7 and max(jumps) > 1e7


def test_the_clocks_do_not_depend_on_the_fault() -> None:
    cases = (simulate(DENSE, [parse(fault)], 5, iterations=4) for fault in ("none", "gpu-throttled@rank3"))
    one, other = ([(host.name, host.clock.offset_ns, host.clock.drift) for host in case.places.hosts] for case in cases)
    assert one == other


@pytest.mark.parametrize("jump_ns", [JUMP_NS, -JUMP_NS])
def test_realtime_jumps_and_monotonic_goes_on(jump_ns: float) -> None:
    places, at = stepped(jump_ns).places, half(stepped(jump_ns))
    host = places.host(RANK).number
    assert places.wall(host, at + 1e6) - places.wall(host, at - 1e6) == pytest.approx(2e6 + jump_ns, abs=10)
    assert places.monotonic(host, at + 1e6) - places.monotonic(host, at - 1e6) == pytest.approx(2e6, abs=10)
    assert places.kernel_log(host, at + 1e6) - places.kernel_log(host, at - 1e6) == pytest.approx(2e-3, abs=1e-6)


def test_stage_times_go_on_over_a_jump_and_are_off_by_it_afterwards() -> None:
    made = stepped()
    content = next(content for path, content in members(made) if path.startswith(f"ranks/{RANK}/stages/"))
    fields = stage_layout.HEADER.unpack(content[: stage_layout.HEADER.size])
    realtime, monotonic = fields[12:14]
    slot_bytes, count = fields[5], fields[14]
    begins = [
        struct.unpack_from("<q", content, stage_layout.SLOTS_OFFSET + number * slot_bytes + 16)[0] for number in range(count)
    ]
    stated = np.array(begins) - monotonic + realtime
    real = [made.places.wall_of(RANK, float(made.run.begins[number, RANK])) for number in range(len(begins))]
    off = np.array(real) - stated
    assert off[:5] == pytest.approx(0, abs=20)
    assert count == 6 and off[5:] == pytest.approx(JUMP_NS, abs=20)


def test_the_log_of_a_trainer_counts_the_jump_into_a_step() -> None:
    text = dict(members(stepped()))[f"ranks/{RANK}/logs/rank{RANK}.log"].decode()
    times = [float(found) for found in re.findall(r"step time \(ms\): (-?[\d.]+)", text)]
    assert times[4] - np.median(times) == pytest.approx(JUMP_NS / 1e6, rel=0.2)


def test_a_trace_over_a_jump_is_stretched_as_torch_stretches_it() -> None:
    made = stepped()
    found = members(made, traced_steps=3)
    content = next(content for path, content in found if path.startswith(f"ranks/{RANK}/traces/"))
    steps = [event for event in json.loads(gzip.decompress(content))["traceEvents"] if event["name"].startswith("ProfilerStep")]
    real = (made.run.ends[3:6, RANK] - made.run.begins[3:6, RANK]) / 1e3
    stated = np.array([event["dur"] for event in steps if event["cat"] == "user_annotation"])
    assert stated / real == pytest.approx(stated[0] / real[0], rel=1e-3)
    assert stated.sum() - real.sum() == pytest.approx(JUMP_NS / 1e3, rel=0.15)


@pytest.mark.slow
def test_a_bundle_with_a_clock_that_was_set_is_read_without_a_complaint(tmp_path: Path) -> None:
    made = stepped(-JUMP_NS)
    kept = losses.drawn(DENSE.parallel.world, np.random.default_rng(1), beside=("shim,nic,stages,kineto,nsight",))
    bundle.write(made, bundle.options_of(made, traced_steps=3), kept, tmp_path / "b.tar")
    connection = open_case([tmp_path / "b.tar"])
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []
