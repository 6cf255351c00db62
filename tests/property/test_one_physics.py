"""Operations and their slices are one physics: flows fit into the times of their operation and on the lines of NICs."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from forensics.errors import ForensicsError
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import Floats, Parallelism
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.operations import communications, iterations
from forensics.fixtures.simulator.presets import PRESETS
from forensics.fixtures.simulator.routes import route, volume
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.slices import TIMES
from forensics.fixtures.simulator.topology import Fabric
from forensics.fixtures.simulator.traffic import CREDIT_BYTES, HEADER_BYTES, PACKET_BYTES, Ramps, traffic
from forensics.fixtures.simulator.transfers import Transfer, transfers

EPOCH_NS = 32_000.0
NARROW = replace(PRESETS["venustrace"], name="narrow", parallel=Parallelism(tensor=2, pipeline=8, data=2))
"""Two stages on each host: messages come to other rails than their senders are on."""
KNOWN = {**PRESETS, NARROW.name: NARROW}
JOBS = ("mixtral-8x7b", "mycroft", "gpt2-32b", "fsdp-64", "long-context", "neighbour-exchange", "all-to-one", NARROW.name)
FAULTS = (
    "none", "gpu-throttled@random:200", "pcie-gpu@random", "nic-slow@random", "background-traffic@random",
    "numa-crossed@random",
    "cpu-contention@random:100", "network-degraded@job", "proxy-delay@random:20", "nic-down@random", "kernel-hang@random",
    "transmission-hang@random", "channel-slow@random", "channel-stuck@random", "nic-sends-slow@random",
    "queue-pair-slow@random:10", "queue-pair-stuck@random", "nic-receives-slow@random", "path-slow@random",
)  # fmt: skip
LOOK_NS = 60e6
COMPUTES = ("gpu-", "kernel-")
FABRICS = (
    Fabric(), Fabric(nics=4, channels=4), Fabric(nics=2, queue_pairs=2), Fabric(placement="round-robin", pxn=True),
    Fabric(placement="permuted", pxn=True, queue_pairs=4), Fabric(placement="round-robin", nics=4),
)  # fmt: skip
CASES = st.tuples(st.sampled_from(JOBS), st.sampled_from(FAULTS), st.integers(1, 3), st.sampled_from(FABRICS)).filter(
    lambda each: not (KNOWN[each[0]].exchange and each[1].startswith(COMPUTES))
)
Chosen = tuple[str, str, int, Fabric]
FEW = settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@cache
def case(name: str, fault: str, seed: int, fabric: Fabric) -> tuple[Simulation, Network, float]:
    job = KNOWN[name] if KNOWN[name].exchange else replace(KNOWN[name], fabric=fabric)
    layers = max(4, job.parallel.pipeline * job.chunks)
    model = replace(job.model, layers=layers, activation_bytes=min(job.model.activation_bytes, 64 << 20))
    if job.model.parameter_bytes > 1:
        model = replace(model, parameter_bytes=1 << 29)
    job = replace(job, model=model, microbatches=min(job.microbatches, 4))
    try:
        made = simulate(job, [parse(fault)], seed, iterations=3)
    except ForensicsError as refusal:  # some of these jobs send nothing large over the place of a fault
        assume("sends nothing" not in str(refusal))
        raise
    end = made.stall_ns if made.hung else float(made.run.ends[-1].min())
    return made, Network(made.run, made.effects, made.capture_ns, seed), end


def times_of(made: Simulation, network: Network, transfer: Transfer) -> tuple[Floats, Floats]:
    """Begin and end of a transfer's operation on each rank of the job."""
    for group in iterations(network):
        for call in communications(network, group):
            if call.where.iteration == transfer.iteration and call.numbers == transfer.numbers:
                return call.began, call.ended
    raise AssertionError("no such operation")


@pytest.mark.slow
@FEW
@given(CASES)
def test_a_flow_lies_in_its_operation(chosen: Chosen) -> None:
    made, network, end = case(*chosen)
    for transfer in transfers(network, end - LOOK_NS, end):
        began, ended = times_of(made, network, transfer)
        lanes, slices = transfer.slices.lanes, transfer.slices
        assert (slices.ready >= began[lanes.sender]).all() and (slices.consumed >= began[lanes.receiver]).all()
        for rank_of in (lanes.sender, lanes.receiver):
            until = ended[rank_of]
            stated = np.isfinite(until)
            assert (slices.last()[stated] <= until[stated] + 1.0).all()


@pytest.mark.slow
@FEW
@given(CASES)
def test_nothing_waits_less_than_no_time(chosen: Chosen) -> None:
    _, network, end = case(*chosen)
    for transfer in transfers(network, end - LOOK_NS, end):
        slices = transfer.slices
        for order in (
            ("posted", "ready", "transmitted", "moving", "moved", "done"),
            ("offered", "received", "flushed", "consumed"),
        ):
            for before, after in pairwise(order):
                assert (getattr(slices, before) <= getattr(slices, after) + 1.0).all(), (before, after)
        assert (slices.moved <= slices.received + 1.0).all()


@pytest.mark.slow
@FEW
@given(CASES)
def test_every_rank_sends_the_volume_of_its_collective(chosen: Chosen) -> None:
    """Pulse, appendix B: 2(s-1)/s of the bytes in an all_reduce, (s-1)/s in the others; a tree sends them to its neighbours."""
    made, network, end = case(*chosen)
    for transfer in transfers(network, end - LOOK_NS, end):
        lanes, op = transfer.slices.lanes, transfer.op
        sizes = np.broadcast_to(transfer.slices.sizes, transfer.slices.moved.shape).sum(axis=0)
        if transfer.algorithm == "ring":
            members = route(made.job, min(transfer.numbers), op).members
            sent = np.bincount(lanes.sender, sizes)
            assert sent[sent > 0] == pytest.approx(volume(op, members), rel=1e-3, abs=64 * len(lanes))
        if transfer.algorithm == "message":
            assert np.bincount(lanes.sender, sizes).max() == pytest.approx(op.bytes, rel=1e-3)


SENT_ON: Chosen = ("narrow", "nic-slow@rank12:20+before", 1, Fabric(pxn=True))
"""Messages that other ranks send on, over a NIC that is slow."""
RECOVERED: Chosen = ("gpt2-32b", "nic-slow@random", 2, Fabric())
"""A message whose receiver was there while a NIC was slow, and whose sender came when it was not any more."""


@FEW
@pytest.mark.slow
@given(CASES)
@example(RECOVERED)
@example(SENT_ON)
def test_no_slice_is_faster_than_its_link(chosen: Chosen) -> None:
    """What an operation takes is never shorter than its slices need: they are stretched to it, and not pressed."""
    _, network, end = case(*chosen)
    for transfer in transfers(network, end - 4 * LOOK_NS, end):
        lanes, slices = transfer.slices.lanes, transfer.slices
        with np.errstate(invalid="ignore"):
            took = (slices.moved - slices.moving)[:, lanes.remote]
        least = np.broadcast_to(slices.sizes / lanes.rate * 1e9, slices.moved.shape)[:, lanes.remote]
        assert not (took < least - 1.0).any()


RESENDS: Chosen = ("fsdp-64", "cpu-contention@random:100", 3, Fabric(nics=4, channels=4))
"""A slice of which much is sent again, on a NIC that has no pause."""


@pytest.mark.slow
@FEW
@given(CASES)
@example(RESENDS)
@example(SENT_ON)
def test_no_nic_moves_more_than_its_line_carries(chosen: Chosen) -> None:
    made, network, end = case(*chosen)
    assert_lines_suffice(made, network, end)


def test_what_is_sent_again_shares_the_line_with_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.fixtures.simulator.slices.LOSS", 0.2)
    made, _, end = case(*RESENDS)
    network = Network(made.run, made.effects, made.capture_ns, RESENDS[2])
    assert any(transfer.slices.resent.any() for transfer in transfers(network, end - LOOK_NS, end))
    assert_lines_suffice(made, network, end)


def assert_lines_suffice(made: Simulation, network: Network, end: float) -> None:
    moved = traffic(network, end - LOOK_NS, end)
    line = made.job.rates.nic * EPOCH_NS / 1e9
    ports = made.job.topology.ports
    edges = np.arange(end - LOOK_NS, end + EPOCH_NS, EPOCH_NS)
    for ways in (moved.sent, moved.received):
        of_nic: dict[int, Floats] = defaultdict(lambda: np.zeros(len(edges) - 1))
        for queue_pair, found in ways.items():
            for ramps in found:
                of_nic[int(ports[queue_pair.rank])] += np.diff(until(ramps, edges))
        for nic, values in of_nic.items():
            assert values.max() <= line * 1.001 + 64 * CREDIT_BYTES, (nic, values.max() / line, values.argmax())


def until(ramps: Ramps, edges: Floats) -> Floats:
    """Bytes until each edge."""
    begin, end, sizes = ramps
    times = np.maximum.accumulate(np.column_stack([begin, end]).ravel())
    found: Floats = np.interp(edges, times, np.cumsum(np.column_stack([np.zeros(len(sizes)), sizes]).ravel()), left=0.0)
    return found


@settings(FEW, max_examples=4)
@given(CASES)
def test_the_same_seed_gives_the_same_slices(chosen: Chosen) -> None:
    made, network, end = case(*chosen)
    again = Network(made.run, made.effects, made.capture_ns, chosen[2])
    for one, other in zip(transfers(network, end - 5e6, end), transfers(again, end - 5e6, end), strict=True):
        for name in TIMES:
            assert np.array_equal(getattr(one.slices, name), getattr(other.slices, name))


def test_headers_take_what_data_leaves_of_a_line() -> None:
    from forensics.fixtures.simulator.lanes import DATA

    assert DATA * (1 + HEADER_BYTES / PACKET_BYTES) < 1.0
