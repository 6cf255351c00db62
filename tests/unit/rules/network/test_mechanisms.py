"""What stops a collective between hosts, shown by logs of another maker than the simulator: each mechanism from both ends."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Mechanism, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.rules.network.machine_logs import write
from tests.unit.rules.network.proxy_machine import Fault, Machine, ring, run, tree

Shape = Callable[[], Machine]


def ring_of_hosts() -> Machine:
    """Eight hosts of one rank, one channel."""
    return ring(8, 1, 1, 4)


def ring_of_pairs() -> Machine:
    """Four hosts of two ranks, two channels that leave each host at another rank."""
    return ring(8, 2, 2, 4)


def scattered() -> Machine:
    """The same, of half the length."""
    return ring(8, 2, 4, 8, "reduce_scatter")


def tree_of_hosts() -> Machine:
    """A tree over eight hosts and its mirror image."""
    return tree(8, 1, 2, 40)


def ring_of_fours() -> Machine:
    """Two hosts of four ranks, one channel: it enters and leaves each of them at one rank."""
    return ring(8, 4, 1, 6)


def ring_of_fours_everywhere() -> Machine:
    """The same with four channels, of which each enters a host at another rank."""
    return ring(8, 4, 4, 6)


def tree_of_pairs() -> Machine:
    """A tree over four hosts, and another rank behind the first of each."""
    return tree(8, 2, 1, 40)


KINDS = {scattered: "reduce_scatter"}
RINGS = (ring_of_hosts, ring_of_pairs, scattered)


def ends_of(shape: Shape) -> list[tuple[int, int]]:
    """Senders and receivers between hosts."""
    return sorted({(way.sender, way.receiver) for way in shape().ways if way.crosses})


def stopped(shape: Shape, kind: str, ranks: tuple[int, ...], folder: Path, part: float = 0.5, channel: int | None = None,
            without: tuple[int, ...] = (), lacking: tuple[str, ...] = ()) -> Verdict:  # fmt: skip
    """The verdict on a collective in which something stops when `part` of its moves are made."""
    whole = run(shape(), None, 7)
    assert not any(way.send_is_open for way in whole.ways if way.crosses), "without a fault it ends"
    machine = run(shape(), Fault(kind, ranks, int(part * whole.moves), channel), 7)
    return diagnose(open_case([write(machine, folder, KINDS.get(shape, "all_reduce"), without, lacking)]))


def drawn(shape: Shape, number: int) -> tuple[int, int]:
    return random.Random(f"{shape.__name__} {number}").choice(ends_of(shape))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [*RINGS, tree_of_hosts])
@pytest.mark.parametrize("number", range(3))
@pytest.mark.first(3)
def test_a_proxy_that_runs_no_more_is_no_dead_link(shape: Shape, number: int, tmp_path: Path) -> None:
    """Its NIC goes on acknowledging what comes, and its own sends look as if the network lost them."""
    _, rank = drawn(shape, number)
    verdict = stopped(shape, "proxy", (rank,), tmp_path, (number + 1) / 5)
    assert [(each.ranks, each.cause) for each in verdict.suspects] == [((rank,), Cause.PROXY_DELAY)]
    assert verdict.suspects[0].mechanism == Mechanism("not_delivered", "remote")


def test_a_proxy_that_only_sends_is_no_certain_link(tmp_path: Path) -> None:
    """Rank 1 receives from its own host alone: nothing shows whether the way back is dead, or its proxy."""
    (suspect,) = stopped(lambda: ring(8, 2, 1, 4), "proxy", (1,), tmp_path).suspects
    assert (suspect.ranks, suspect.members, suspect.confidence) == ((1, 2), "one_of", Confidence.LIKELY)


@pytest.mark.parametrize("shape", [*RINGS, tree_of_hosts])
@pytest.mark.first(2)
def test_a_receiver_that_posts_no_more(shape: Shape, tmp_path: Path) -> None:
    _, rank = drawn(shape, 0)
    verdict = stopped(shape, "receives", (rank,), tmp_path)
    assert [(each.ranks, each.cause) for each in verdict.suspects] == [((rank,), Cause.PROXY_DELAY)]
    assert verdict.suspects[0].mechanism == Mechanism("not_transmitted", "remote")


@pytest.mark.parametrize("kind", ["data", "credits", "both"])
@pytest.mark.parametrize("shape", [*RINGS, tree_of_hosts])
@pytest.mark.first(1)
def test_a_link_that_brings_nothing_over(shape: Shape, kind: str, tmp_path: Path) -> None:
    link = drawn(shape, 1)
    (suspect,) = stopped(shape, kind, link, tmp_path).suspects
    assert (suspect.ranks, suspect.members, suspect.cause) == (tuple(sorted(link)), "one_of", Cause.NETWORK_DOWN)


@pytest.mark.parametrize("shape", [ring_of_hosts, tree_of_hosts])
@pytest.mark.parametrize("rank", range(8))
@pytest.mark.first(2)
def test_a_gpu_that_stands_still(shape: Shape, rank: int, tmp_path: Path) -> None:
    """Behind it in the ring or the tree each rank waits for the one before: only this one has all that it needs."""
    (suspect,) = stopped(shape, "kernel", (rank,), tmp_path, 0.2 + rank / 16).suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((rank,), Cause.COMPUTE_HANG, Confidence.LIKELY)
    assert suspect.mechanism == Mechanism("gpu_not_ready", "local")


@pytest.mark.parametrize("rank", range(8))
@pytest.mark.first(3)
def test_a_gpu_that_never_comes_into_a_tree(rank: int, tmp_path: Path) -> None:
    """Nothing was sent back yet, so that no edge of it has a direction: two trees tell together which end is the lower one."""
    (suspect,) = stopped(tree_of_hosts, "kernel", (rank,), tmp_path, 0.0).suspects
    assert (suspect.ranks, suspect.cause) == ((rank,), Cause.COMPUTE_HANG)


@pytest.mark.parametrize("ranks", [(2, 6), (1, 3), (0, 1), (0, 1, 2, 3, 4, 5, 6, 7)])
@pytest.mark.first(2)
def test_gpus_of_two_that_never_come_into_a_tree_accuse_no_third(ranks: tuple[int, ...], tmp_path: Path) -> None:
    verdict = stopped(tree_of_hosts, "kernel", ranks, tmp_path, 0.0)
    assert all({*each.ranks} <= {*ranks} for each in verdict.suspects if each.cause is Cause.COMPUTE_HANG)


@pytest.mark.parametrize("shape", [ring_of_pairs, scattered, ring_of_fours, tree_of_pairs])
@pytest.mark.parametrize("rank", [1, 2, 5, 7])
@pytest.mark.first(2)
def test_a_gpu_inside_a_host_is_one_of_those_that_hand_its_steps_on(shape: Shape, rank: int, tmp_path: Path) -> None:
    """What one rank does not pass on to the next on its host, no log shows: no single rank of it may be named for that."""
    verdict = stopped(shape, "kernel", (rank,), tmp_path)
    host = shape().per_host
    for suspect in verdict.suspects:
        assert rank in suspect.ranks, suspect
        if suspect.cause is Cause.COMPUTE_HANG:
            assert suspect.ranks == (rank,) or {each // host for each in suspect.ranks} == {rank // host}


def test_the_entry_at_which_chunks_lie_tells_the_gpu_of_a_host(tmp_path: Path) -> None:
    (suspect,) = stopped(ring_of_fours_everywhere, "kernel", (5,), tmp_path).suspects
    assert (suspect.ranks, suspect.cause) == ((5,), Cause.COMPUTE_HANG)


@pytest.mark.parametrize("kind", ["kernel", "proxy", "receives", "data"])
@pytest.mark.parametrize("left_out", range(8))
@pytest.mark.first(2)
def test_a_log_that_is_missing_accuses_nobody_else(kind: str, left_out: int, tmp_path: Path) -> None:
    ranks = (2, 3) if kind == "data" else (3,)
    for suspect in stopped(ring_of_hosts, kind, ranks, tmp_path, without=(left_out,)).suspects:
        assert {*suspect.ranks} & {*ranks}, suspect


def test_a_ring_that_ran_dry_behind_a_rank_without_a_log(tmp_path: Path) -> None:
    """It got as many steps as the others and sent fewer on: the side is known, the cause is not."""
    (suspect,) = stopped(ring_of_hosts, "kernel", (3,), tmp_path, without=(3,)).suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((3,), Cause.UNKNOWN, Confidence.SUSPECT)


@pytest.mark.parametrize(("kind", "cause"), [("kernel", Cause.COMPUTE_HANG), ("receives", Cause.PROXY_DELAY)])
def test_what_a_receiver_does_not_do_needs_no_log_of_its_sender(kind: str, cause: Cause, tmp_path: Path) -> None:
    (suspect,) = stopped(ring_of_hosts, kind, (3,), tmp_path, without=(2,)).suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((3,), cause, Confidence.SUSPECT)


@pytest.mark.parametrize("lacking", [("samples",), ("flows",), ("pairs",), ("samples", "flows", "pairs")])
@pytest.mark.parametrize("kind", ["kernel", "receives", "data"])
@pytest.mark.first(2)
def test_state_pages_alone_still_tell_where(kind: str, lacking: tuple[str, ...], tmp_path: Path) -> None:
    """A history that was overwritten or cut, and networks without verbs: the words are weaker, the names are the same."""
    ranks = (1, 0) if kind == "data" else (1,)
    verdict = stopped(tree_of_hosts, kind, ranks, tmp_path, lacking=lacking)
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} == {*ranks}
