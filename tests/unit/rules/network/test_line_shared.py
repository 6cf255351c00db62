"""Ports that send more than the ranks on them, made up, and when that names the NICs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.hardware.state import Port
from forensics.rules.reductions.network.line_uses import LineUse, LineUses
from forensics.rules.reductions.network.other_traffic import PortsReadTwice, SharedNics, shared_nics
from forensics.rules.reductions.network.recorded_uses import RecordedUses
from forensics.rules.reductions.ranks.nic_users import NicUsers
from forensics.rules.reductions.steps.times import StepTimes
from forensics.rules.slow import line_shared, network_slow, proxy_paused
from tests.recordings.scenarios import recorded

GB = 10**9
SECOND = StepTimes({}, np.arange(4), np.full(4, 1e9))
NOBODY, EVERYBODY = NicUsers(), NicUsers({(f"n{at}", "m"): (at,) for at in range(4)})
RING = tuple(LineUse(f"n{at}", "m", (at,), 10 * GB, 0.3, 25 * GB, "x", (f"n{(at + 1) % 4}",), 0.3) for at in range(4))


def ports(sent_gb: Sequence[float]) -> PortsReadTwice:
    """What each port sends in a second; counters count words of four bytes."""
    words = [int(gb * GB * 2 / 4) for gb in sent_gb]
    return PortsReadTwice(
        tuple(Port(f"n{at}", "m", "m/1", 2.0, {"port_xmit_data": each}, "y") for at, each in enumerate(words))
    )


def shared(
    sent_gb: Sequence[float], uses: Sequence[LineUse] = RING, steps: StepTimes = SECOND, users: NicUsers = NOBODY
) -> list[str]:
    return [nic.host for nic in shared_nics(LineUses(tuple(uses)), ports(sent_gb), users, steps, RecordedUses(()))]


def test_what_fills_the_line_beside_the_ranks_is_of_others() -> None:
    """Every link has an end at one of two hosts; which two it is only the ports tell."""
    assert shared([3, 18, 3, 18]) == ["n1", "n3"]


@pytest.mark.parametrize(
    "sent", [[3, 3, 3, 3], [3, 6, 3, 6], [3, 12, 3, 12]], ids=["nothing", "one step more", "the line is not full"]
)
def test_a_port_that_may_carry_the_job_alone_or_has_room_is_not_shared(sent: list[float]) -> None:
    assert not shared(sent)


def test_a_log_that_lost_samples_does_not_tell_how_little_its_ranks_sent() -> None:
    """Two of its samples lie in the newer half: between them it had work all of the time, and it may have had at all others."""
    sparse = [replace(use, rate=14 * GB, busy=0.3, busy_most=1.0) for use in RING]
    known = [replace(use, busy_most=0.3) for use in sparse]
    assert not shared([14, 14, 14, 14], sparse) and shared([4, 18, 4, 18], known)


def test_ranks_that_get_more_than_others_leave_did_not_meet_them() -> None:
    """Traffic in the pauses of the job, as of a file system between steps."""
    fast = [replace(use, rate=20 * GB, busy=0.1, busy_most=0.1) for use in RING]
    assert not shared([2, 18, 2, 18], fast)


def test_a_nic_whose_ranks_seem_to_get_more_is_shared_beside_one_of_its_host() -> None:
    """What its ranks get is a bound from above; the port beside it, read at the same moment, fits what others leave there."""
    beside = [replace(use, nic="k", rate=19 * GB, busy_most=0.15) for use in RING]
    sent = (3, 18, 3, 18)
    read = (*ports(sent), *(replace(port, nic="k") for port in ports(sent)))
    found = shared_nics(LineUses((*RING, *beside)), PortsReadTwice(read), NOBODY, SECOND, RecordedUses(()))
    assert [(nic.host, nic.nic) for nic in found] == [("n1", "m"), ("n3", "m"), ("n1", "k"), ("n3", "k")]
    assert not shared_nics(LineUses(tuple(beside)), PortsReadTwice(read[4:]), NOBODY, SECOND, RecordedUses(()))


@pytest.mark.parametrize(
    ("sent", "known", "named"),
    [
        ([3, 18, 3, 18], 3, ["n1", "n3"]),
        ([3, 18, 3, 12], 3, []),
        ([8, 18, 7, 18], 3, []),
        ([3, 18, 3, 18], 1, []),
    ],
    ids=["as full", "less full", "ranks that send much", "none for certain"],
)
def test_a_port_as_full_as_a_shared_one_is_shared_where_little_is_known_of_its_ranks(
    sent: list[float], known: int, named: list[str]
) -> None:
    """Of host n3 no samples are left: its port is full, those of hosts without others beside send little.

    Where n3 is not shared, n2 is as slow and has nothing to do with n1: something else is slow.
    """
    assert shared(sent, RING[:known], users=EVERYBODY) == named


def test_a_job_that_became_slower_sends_a_longer_step_beside_what_fits() -> None:
    """Of its newest steps, not of those before: in steps of 6 s the ports may carry the job alone."""
    slower = StepTimes({}, np.arange(20), np.concatenate([np.full(14, 1e9), np.full(6, 6e9)]))
    assert shared([3, 12, 3, 12]) == [] and shared([3, 16, 3, 16]) and not shared([3, 14, 3, 14], steps=slower)


@pytest.mark.parametrize(
    ("sent", "named"),
    [
        ([0.5, 12.6, 0.5, 12.6], ["n1", "n3"]),
        ([6, 12.6, 6, 12.6], []),
        ([0.5, 6.5, 0.5, 6.5], []),
        ([0.5, 10, 0.5, 10], []),
    ],
    ids=["more than a whole step, beside quiet ports", "no port is quiet", "a whole step at once", "at the rate of the ranks"],
)
def test_in_less_than_a_step_ranks_send_no_more_than_one_step(sent: list[float], named: list[str]) -> None:
    """Steps of 3.6 s, of 10.8 GB; ports are read two seconds apart, some of them while the job rests."""
    longer = StepTimes({}, np.arange(6), np.full(6, 3.6e9))
    assert shared(sent, steps=longer) == named


def test_without_steps_the_ranks_may_have_sent_all_the_time() -> None:
    none = StepTimes({}, np.arange(0), np.zeros(0))
    assert not shared([3, 14.9, 3, 14.9], steps=none) and shared([3, 18, 3, 18], steps=none)


def test_nics_as_slow_that_exchange_nothing_with_a_shared_one_speak_against() -> None:
    far = [replace(use, host=f"n{at + 4}", peers=(f"n{(at + 1) % 4 + 4}",)) for at, use in enumerate(RING)]
    sent = [3, 18, 3, 18, 3, 3, 3, 3]
    assert not shared(sent, [*RING, *far])
    assert shared(sent, [*RING, *(replace(use, rate=20 * GB) for use in far)]) == ["n1", "n3"]


@pytest.mark.parametrize(("by_log", "by_recorder", "named"), [(10, 20, ["n1", "n3"]), (40, 10, [])], ids=["fast", "slow"])
def test_what_recorders_show_of_hosts_apart_goes_before_a_log_with_few_samples(
    by_log: int, by_recorder: int, named: list[str]
) -> None:
    far = [replace(use, host=f"n{at + 4}", peers=(f"n{(at + 1) % 4 + 4}",)) for at, use in enumerate(RING)]
    uses = LineUses((*RING, *(replace(use, rate=by_log * GB) for use in far)))
    measured = RecordedUses((*RING, *(replace(use, rate=by_recorder * GB) for use in far)))
    found = shared_nics(uses, ports([3, 18, 3, 18, 3, 3, 3, 3]), NOBODY, SECOND, measured)
    assert [nic.host for nic in found] == named


@pytest.mark.parametrize(
    ("sent", "reached", "named"),
    [([3, 18, 3, 18], True, 2), ([18, 18, 18, 18], True, 0), ([3, 12, 3, 12], True, 0), ([3, 18, 3, 18], False, 0)],
    ids=["as full", "its ring sends as much", "less full", "its ring is not known"],
)
def test_a_nic_beside_a_shared_one_that_sends_far_more_than_its_ring_is_shared(
    sent: list[float], reached: bool, named: int
) -> None:
    """By its log alone its ranks may send all of that."""
    sparse = [replace(use, nic="k", rate=19 * GB, busy_most=1.0) for use in RING]
    ends = [frozenset([(f"n{(at + 1) % 4}", "k")] if reached else ()) for at in range(4)]
    beside = [replace(use, reached=end) for use, end in zip(sparse, ends, strict=True)]
    read = (*ports([3, 18, 3, 18]), *(replace(port, nic="k") for port in ports(sent)))
    found = shared_nics(LineUses((*RING, *beside)), PortsReadTwice(read), NOBODY, SECOND, RecordedUses(()))
    assert [nic.nic for nic in found] == ["m"] * 2 + ["k"] * named
    assert not shared_nics(LineUses(tuple(beside)), PortsReadTwice(read[4:]), NOBODY, SECOND, RecordedUses(()))


@pytest.mark.parametrize(("beside", "named"), [(18, []), (8, ["n1", "n3"])], ids=["as full by the job", "less full"])
def test_a_ring_sends_as_much_over_each_of_its_nics(beside: float, named: list[str]) -> None:
    """The logs of ranks 1 and 3 show less than they send, that of rank 0 shows that the job fills the line between them."""
    ring = [replace(use, reached=frozenset([(f"n{(at + 1) % 4}", "m")])) for at, use in enumerate(RING)]
    full = replace(ring[0], rate=18 * GB, busy_most=1.0)
    assert shared([beside, 18, 3, 18], [full, *ring[1:]]) == named


@pytest.mark.parametrize("reached", [True, False], ids=["queue pairs are matched", "only hosts are known"])
@pytest.mark.parametrize(
    ("sent", "step", "named"),
    [([18, 18, 3, 3], 1, []), ([18, 18, 3, 3], 2, ["n0", "n1"]), ([3, 18, 3, 3], 2, ["n1"])],
    ids=["a ring that is alike", "a part of a ring", "one NIC of a ring"],
)
def test_of_ports_that_send_as_much_as_their_whole_ring_nothing_shows_that_it_is_not_the_jobs(
    sent: list[float], step: int, named: list[str], reached: bool
) -> None:
    """Logs may hold a tenth of what ranks sent. Rings of two hosts: n0 and n1, n2 and n3; or else of all four."""
    others = [at ^ 1 if step == 1 else (at + 1) % 4 for at in range(4)]
    ends = [frozenset([(f"n{at}", "m")] if reached else ()) for at in others]
    ring = [replace(use, peers=(f"n{at}",), reached=end) for use, at, end in zip(RING, others, ends, strict=True)]
    fast = [replace(use, rate=20 * GB) if use.host in ("n2", "n3") else use for use in ring]
    assert shared(sent, fast) == named


@pytest.mark.parametrize(
    ("sent", "rate", "named"),
    [
        ([0, 17, 0, 17], 7, ["n1", "n3"]),
        ([16, 17, 16, 17], 7, []),
        ([0, 17, 0, 17], 20, []),
        ([0, 4, 0, 4], 20, []),
        ([0, 10, 0, 10], 7, []),
    ],
    ids=["beside quiet ones", "the ring sends as much", "ranks get more than that leaves", "little", "the line is not full"],
)
def test_what_recorders_tell_of_ranks_fits_what_ports_send_while_the_job_rests(
    sent: list[float], rate: float, named: list[str]
) -> None:
    """No work requests are left. Replicas are on n0 and n1, and on n2 and n3."""
    calls = [replace(use, rate=rate * GB, peers=(f"n{at ^ 1}",)) for at, use in enumerate(RING)]
    found = shared_nics(LineUses(()), ports(sent), NOBODY, SECOND, RecordedUses(tuple(calls)))
    assert [nic.host for nic in found] == named
    storage = tuple(replace(use, nic="unused") for use in calls)
    assert not shared_nics(LineUses(()), ports(sent), NOBODY, SECOND, RecordedUses((*calls, *storage)))


def test_a_counter_of_another_unit_tells_nothing() -> None:
    assert not shared([3, 72, 3, 72])


@pytest.mark.parametrize(("rate", "codes"), [(10, ["FX177"]), (0, ["FX184"])], ids=["nobody", "two hosts"])
def test_the_whole_network_is_named_only_where_nobody_fills_lines(rate: int, codes: list[str]) -> None:
    case = recorded("network-slow")
    hosts = [host for (host,) in case.execute("SELECT DISTINCT host FROM devices WHERE kind = 'port' ORDER BY host").fetchall()]
    ring = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    uses = LineUses(tuple(LineUse(a, "m", (at,), 9 * GB, 0.5, 25 * GB, "x", (b,), 0.5) for at, (a, b) in enumerate(ring)))
    sent = [18 if at % 2 else 4.5 for at in range(len(hosts))]
    read = [replace(port, host=host) for host, port in zip(hosts, ports([4.5] * 6 if rate else sent), strict=True)]
    given: dict[object, object] = {LineUses: uses, PortsReadTwice: PortsReadTwice(tuple(read))}
    found, _ = run(supply_of(case, instead=given), [network_slow.RULE, line_shared.RULE], {})
    assert [each.rule for each in found if each.ranks and each.cause.value != "unknown"] == codes


def test_lines_of_all_hosts_that_are_full_name_nobody() -> None:
    case = recorded("line-shared")
    nics = supply_of(case).get(SharedNics)
    assert [nic.host for nic in nics] == ["worker-26.train", "worker-27.train"]
    ports = PortsReadTwice(
        tuple(port for port in supply_of(case).get(PortsReadTwice) if port.host in {nic.host for nic in nics})
    )
    found, _ = run(supply_of(case, instead={PortsReadTwice: ports, SharedNics: nics}), [line_shared.RULE], {})
    assert not found


def test_proxies_that_wait_for_a_full_line_are_not_paused() -> None:
    """In an exchange the two ranks beside the full lines have chunks and credit, and wait for their turn."""
    case = recorded("line-shared")
    alone, _ = run(supply_of(case, instead={SharedNics: SharedNics(())}), [proxy_paused.RULE], {})
    found, _ = run(supply_of(case), [proxy_paused.RULE], {})
    assert any(set(each.ranks) <= {2, 3} for each in alone) and not found
