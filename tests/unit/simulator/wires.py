"""Small jobs with one GPU or more a host, and their collectives run as slices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from forensics.fixtures.simulator.job import Floats, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.lanes import Calls, Ways, forest, lanes_of
from forensics.fixtures.simulator.messages import messages
from forensics.fixtures.simulator.network import Stops
from forensics.fixtures.simulator.ring import ring, ring_plan
from forensics.fixtures.simulator.slices import Slices
from forensics.fixtures.simulator.tree import tree
from forensics.fixtures.simulator.wiring import pair_wiring, ring_wiring, tree_wiring

MB = 1 << 20
NEVER = float("inf")


def job_of(members: int, gpus_per_host: int = 1) -> TrainingJob:
    return TrainingJob("wires", Parallelism(data=members), Model(2, 1e6, MB, MB), microbatches=1, gpus_per_host=gpus_per_host)


def calls_of(job: TrainingJob, **changes: Floats) -> Calls:
    """Everybody there at 0 with healthy hardware; `nic_stop`, `gpu_stop`, `proxy_stop` are stops."""
    world = job.parallel.world
    stops = [changes.pop(name, np.full(world, NEVER)) for name in ("nic_stop", "gpu_stop", "proxy_stop")]
    values = {name: np.zeros(world) for name in ("issued", "began", "late", "away", "held")}
    values |= {name: np.full(world, job.rates.nic) for name in ("nic", "into")}
    values |= {"slowness": np.ones(world), "path": np.full(world, NEVER)}
    crowded = changes.pop("crowded", np.zeros(world)) > 0
    ways = changes.pop("way", None), changes.pop("way_stop", None)
    found = Calls(**(values | changes), crowded=crowded, stops=Stops(*stops), turn=4e6, ways=None)
    return found if ways[0] is None or ways[1] is None else replace(found, ways=Ways(ways[0], ways[1], ways[0] < 1.0))


def at(world: int, rank: int, value: float, other: float = 0.0) -> Floats:
    """`value` on one rank, `other` elsewhere."""
    found = np.full(world, other)
    found[rank] = value
    return found


def run_ring(job: TrainingJob, name: str, count: int, seed: int = 0, **changes: Floats) -> Slices:
    groups = np.arange(job.parallel.world)[None, :]
    wiring, before = ring_wiring(job.topology.hosts, groups, job.fabric.channels)
    channels = int(wiring.channel.max()) + 1
    plan = ring_plan(name, count, job.parallel.world, channels)
    return ring(lanes_of(job, wiring, calls_of(job, **changes)), before, plan, np.random.default_rng(seed))


def run_tree(job: TrainingJob, count: int, **changes: Floats) -> Slices:
    groups = np.arange(job.parallel.world)[None, :]
    wiring, child, parent, depths = tree_wiring(job.topology.hosts, groups)
    calls = calls_of(job, **changes)
    lanes = lanes_of(job, wiring, calls)
    return tree(lanes, forest(groups, child, parent, depths, calls.began), count / 2, np.random.default_rng(0))


def run_message(job: TrainingJob, count: int, **changes: Floats) -> Slices:
    lanes = lanes_of(job, pair_wiring(np.array([0]), np.array([1]), 2), calls_of(job, **changes))
    return messages(lanes, np.full(2, count / 2), np.random.default_rng(0))


def gaps(slices: Slices, rank: int) -> Floats:
    """ns between a slice and the next on the lanes that leave a rank (slices x lanes)."""
    mine = slices.lanes.sender == rank
    return slices.moving[1:, mine] - slices.moved[:-1, mine]


def sent(slices: Slices, stage: str = "moved") -> Floats:
    """Bytes of each rank whose slices reached a stage."""
    there = np.isfinite(getattr(slices, stage)) * slices.sizes
    found: Floats = np.bincount(slices.lanes.sender, there.sum(axis=0)).astype(float)
    return found
