"""What NICs move of their lines, on queue pairs whose samples are made up, and when that accuses the whole network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import duckdb
import pytest

from forensics.case.build import open_case
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.network.line_peaks import LinePeaks, line_peaks
from forensics.rules.reductions.network.line_uses import LineUse, LineUses, apart, by_hosts, line_uses, most_of_lines
from forensics.rules.reductions.network.recorded_uses import RecordedUses
from forensics.rules.reductions.ranks.shim_logs import ShimLog, ShimLogs
from forensics.rules.slow.network_slow import RULE
from tests.recordings.nic_captures import LINE, Ring, captures, write
from tests.recordings.scenarios import recorded

S = 1_000_000_000
GB = 10**9


def use_of(moved_gb: float, busy_s: float, line: int | None = 25 * GB) -> LineUse:
    """One NIC with two such queue pairs."""
    (found,) = uses_of(moved_gb, busy_s, line=line)
    return found


def uses_of(
    moved_gb: float, busy_s: float, pairs: int = 2, line: int | None = 25 * GB, sparse: tuple[tuple[int, ...], ...] = ()
) -> LineUses:
    """One NIC whose queue pairs each move so much in 10 s; in the older half of the log they did nothing for their work.

    As many others as `sparse` names move as much, and have samples at these seconds alone.
    """
    looks = [(0, 10, 20)] * pairs + [*sparse]
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE sources (source_id BIGINT, path VARCHAR, host VARCHAR)")
        opened.execute("INSERT INTO sources VALUES (7, '0.frx', 'n0'), (8, '1.frx', 'n1')")
        opened.execute("CREATE TABLE devices (host VARCHAR, kind VARCHAR, parent VARCHAR, rate_bytes_per_s BIGINT)")
        if line:
            opened.execute("INSERT INTO devices VALUES ('n0', 'port', 'mlx5_0', ?)", [line])
        opened.execute(
            "CREATE TABLE queue_pairs (source_id BIGINT, queue_pair VARCHAR, host VARCHAR, nic VARCHAR, communicator VARCHAR, "
            "peer INTEGER, direction VARCHAR, gid VARCHAR, number BIGINT, remote_nic VARCHAR, remote_queue_pair VARCHAR)"
        )
        opened.execute(
            "CREATE TABLE wr_samples (source_id BIGINT, locator BIGINT, time_ns BIGINT, rank INTEGER, queue_pair VARCHAR, "
            "completed BIGINT, completed_bytes BIGINT, busy_ns BIGINT, error_status INTEGER)"
        )
        for pair, seen in enumerate(looks):
            opened.execute(
                "INSERT INTO queue_pairs VALUES (7, $name, 'n0', 'mlx5_0', 'dp', 1, 'send', 'a', $pair, 'b', $pair), "
                "(8, $name, 'n1', 'mlx5_0', 'dp', 0, 'recv', 'b', $pair, 'a', $pair)", {"name": f"#{pair}", "pair": pair}
            )  # fmt: skip
            for at, (seconds, share, busy) in enumerate(((0, 0.0, 0.0), (10, 0.0, 10.0), (20, 1.0, 10.0 + busy_s))):
                if seconds not in seen:
                    continue
                row = [at, seconds * S, f"#{pair}", int(1000 * share), int(moved_gb * GB * share), int(busy * S)]
                opened.execute("INSERT INTO wr_samples VALUES (7, ?, ?, 0, ?, ?, ?, ?, NULL)", row)
        return line_uses(opened, ShimLogs({rank: cast(ShimLog, SimpleNamespace(source_id=7 + rank)) for rank in (0, 1)}))


def test_a_nic_moves_what_its_queue_pairs_move_together() -> None:
    found = use_of(moved_gb=10, busy_s=2)
    assert (found.host, found.nic, found.ranks, found.peers) == ("n0", "mlx5_0", (0,), ("n1",))
    assert found.rate == pytest.approx(10 * GB) and found.part == pytest.approx(0.4)
    assert found.busy == pytest.approx(0.2) and found.lost == pytest.approx(0.12)


def test_a_port_without_a_rate_tells_no_part() -> None:
    assert use_of(moved_gb=10, busy_s=2, line=None).part is None


@pytest.mark.parametrize(
    ("sparse", "rate"),
    [(((20,),), 15), (((0, 20),), 11), (((20,),) * 2, 20), (((20,),) * 3, None), (((0, 20),) * 3, 12), (((0, 10, 20),), 15)],
    ids=["one sample", "an earlier one", "half with one", "most with one", "most with an earlier one", "at the middle"],
)
def test_queue_pairs_of_few_samples_count_by_what_they_sent_in_all(
    sparse: tuple[tuple[int, ...], ...], rate: int | None
) -> None:
    """Each has a heartbeat in one of its exchanges: what it sent since it was made is in the last sample all the same.

    With an earlier sample the half of what it sent since then counts, and of the time for which it worked: 5 GB in 6 s.
    """
    found = uses_of(moved_gb=10, busy_s=2, sparse=sparse)
    assert [round(use.rate / GB) for use in found] == ([rate] if rate else [])


def nics(rates: tuple[float, ...], busy: float = 0.2, hosts: int = 2) -> list[LineUse]:
    return [LineUse(f"n{at % hosts}", f"m{at}", (at,), rate, busy, 25e9, "x") for at, rate in enumerate(rates)]


@pytest.mark.parametrize(
    ("found", "most"),
    [
        (nics((10e9, 11e9, 10e9, 10e9)), 0.44),
        (nics((10e9, 24e9, 10e9, 10e9)), 0.96),
        (nics((10e9,) * 3), None),
        (nics((10e9,) * 4, hosts=1), None),
        (nics((10e9,) * 4, busy=0.05), None),
    ],
    ids=["all slow", "one is not", "few NICs", "one host", "little to do"],
)
def test_the_fastest_nic_speaks_for_the_network(found: list[LineUse], most: float | None) -> None:
    assert most_of_lines(found) == (pytest.approx(most) if most else None)


def test_one_nic_does_not_speak_for_its_host() -> None:
    """One that sends in turns with others, or has little to send, moves less than its neighbours on a sound host too."""
    assert list(by_hosts(nics((10e9, 8e9, 4e9, 8e9, 10e9, 8e9)))) == pytest.approx([0.4, 0.32])
    assert list(by_hosts(nics((10e9, 4e9, 10e9, 4e9)))) == pytest.approx([0.4, 0.16]), "a host of its own rate does"


def test_a_nic_of_which_a_rank_was_not_seen_does_not_speak_for_its_host() -> None:
    found = [replace(use, ranks=(number, 9)) for number, use in enumerate(nics((10e9, 10e9, 10e9, 5e9, 10e9, 5e9)))]
    assert list(by_hosts(found)) == pytest.approx([0.4, 0.2])
    assert list(by_hosts([*found[:3], *(replace(use, ranks=use.ranks[:1]) for use in found[3:])])) == pytest.approx([0.4, 0.4])


@pytest.mark.parametrize(
    ("ways", "pairs"),
    [
        ([(0, 1), (1, 2), (2, 3), (3, 0)], 2),
        ([(0, 1), (2, 3)], 2),
        ([(0, each) for each in range(1, 6)], 1),
        ([(each, (each + 1) % 6) for each in range(6)], 3),
    ],
    ids=["ring of four", "two pairs", "all with one", "ring of six"],
)
def test_as_many_hosts_must_be_slow_as_pairs_are_apart(ways: list[tuple[int, int]], pairs: int) -> None:
    """Hosts 1 and 3 account for all traffic of a ring of four, and of two pairs, where both are slow."""
    assert apart([LineUse(f"n{a}", "m", (a,), 10e9, 0.2, 25e9, "x", (f"n{b}",)) for a, b in ways]) == pairs


@pytest.mark.parametrize(("rate", "is_named"), [(9e9, True), (14e9, False)], ids=["a third", "more than half"])
def test_only_far_below_the_lines_the_network_is_named(rate: float, is_named: bool) -> None:
    """Collectives behind computation leave little more than half of a line in a sound job of sharded weights."""
    case = recorded("network-slow")
    hosts = [host for (host,) in case.execute("SELECT DISTINCT host FROM devices WHERE kind = 'port' ORDER BY host").fetchall()]
    ring = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    uses = LineUses(tuple(LineUse(a, "m", (at,), rate, 0.5, 25e9, "x", (b,)) for at, (a, b) in enumerate(ring)))
    found, _ = run(supply_of(case, instead={LineUses: uses}), [RULE], {})
    assert bool(found) is is_named


@pytest.mark.parametrize(
    ("rates", "peaks", "calls", "is_named"),
    [
        ((14e9,), (13e9,), (), True),
        ((14e9,), (21e9,), (), False),
        ((14e9,), (13e9, 21e9), (), False),
        ((18e9,), (13e9,), (), False),
        ((14e9, 19e9), (13e9,), (12e9,), True),
        ((14e9, 22e9), (13e9,), (12e9,), False),
        ((14e9, 19e9), (13e9,), (19e9,), False),
        ((14e9, 19e9), (13e9,), (12e9, None), False),
        ((14e9, 19e9), (21e9,), (12e9,), False),
        ((14e9, 10e9), (12e9, 8e9), (), True),
        ((14e9, 8e9), (13e9, 9e9), (), False),
        ((14e9, 8e9), (9e9, 9e9, 9e9, 13e9), (9e9,), True),
        ((14e9, 8e9), (13e9, 13e9, 13e9, 9e9), (9e9,), False),
        ((14e9, 8e9), (9e9, 9e9, 9e9, 13e9), (9e9, 6e9), False),
        ((14e9, 8e9), (13e9,), (), True),
        ((14e9,), (13e9, None), (), False),
        ((8e9,), (21e9,), (), False),
        ((8e9,), (13e9, 21e9), (), False),
    ],
    ids=[
        "half",
        "sound",
        "one host is sound",
        "its work leaves it open",
        "its work leaves it open, calls do not",
        "some wait for a slow host",
        "calls are sound",
        "calls of half of the hosts",
        "collectives behind computation",
        "not alike, and far below",
        "not alike",
        "alike by calls, but for bursts",
        "all wait for a slow host",
        "calls are not alike",
        "alike at a stretch",
        "not seen of each host",
        "far below while it has work, and full at a stretch",
        "full at a stretch on some hosts",
    ],
)
def test_half_of_the_lines_is_slow_where_nothing_moves_more_at_a_stretch(
    rates: tuple[float, ...], peaks: tuple[float | None, ...], calls: tuple[float | None, ...], is_named: bool
) -> None:
    """Queue pairs that take turns bound what a NIC moves from above alone: there collectives must say the same."""
    case = recorded("network-slow")
    hosts = [host for (host,) in case.execute("SELECT DISTINCT host FROM devices WHERE kind = 'port' ORDER BY host").fetchall()]
    ring = zip(hosts, (*hosts[1:], hosts[0]), strict=True)
    uses = LineUses(tuple(LineUse(a, "m", (n,), rates[n % len(rates)], 0.5, 25e9, "x", (b,)) for n, (a, b) in enumerate(ring)))
    moved = [(host, peaks[at % len(peaks)]) for at, host in enumerate(hosts)]
    stretch = LinePeaks({(host, "m"): peak for host, peak in moved if peak is not None})
    timed = [replace(use, rate=rate) for at, use in enumerate(uses) if calls and (rate := calls[at % len(calls)]) is not None]
    given: dict[object, object] = {LineUses: uses, LinePeaks: stretch, RecordedUses: RecordedUses(tuple(timed))}
    found, _ = run(supply_of(case, instead=given), [RULE], {})
    assert bool(found) is is_named
    assert not found or any("at a stretch" in each.statement for each in found[0].evidence)


@pytest.mark.parametrize(
    ("pause", "each_mb", "lengths", "gb"),
    [(0, 2, (100_000,), 19), (3, 2, (100_000,), 5), (6, 2, (100_000,), None), (0, 2, (100_000, 200_000), None)],
    ids=["at a stretch", "short pauses", "small transfers", "epochs of two lengths"],
)
def test_what_a_nic_moves_at_a_stretch(pause: int, each_mb: int, lengths: tuple[int, ...], gb: float | None) -> None:
    """60 epochs with a completion, so many empty ones between two."""
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE sources (source_id BIGINT, path VARCHAR, host VARCHAR)")
        opened.execute("INSERT INTO sources VALUES (7, '0.frx', 'n0'), (8, '1.frx', 'n0')")
        opened.execute("CREATE TABLE captures (source_id BIGINT, capture_id BIGINT, nic VARCHAR, epoch_ns BIGINT)")
        columns = "queue_pair VARCHAR, host VARCHAR, nic VARCHAR, direction VARCHAR"
        opened.execute(f"CREATE TABLE queue_pairs (source_id BIGINT, {columns})")
        columns = "queue_pair VARCHAR, direction VARCHAR, first_epoch BIGINT, values BIGINT[]"
        opened.execute(f"CREATE TABLE nic_epochs (source_id BIGINT, capture_id BIGINT, {columns})")
        for source, length in zip((7, 8), lengths * 2, strict=False):
            opened.execute("INSERT INTO captures VALUES (?, 0, NULL, ?)", [source, length])
            opened.execute("INSERT INTO queue_pairs VALUES (?, '#1', NULL, 'm', 'send')", [source])
            for at in range(60):
                row = [source, 1000 + at * (pause + 1), [each_mb * 500_000]]
                opened.execute("INSERT INTO nic_epochs VALUES (?, 0, '#1', 'send', ?, ?)", row)
        logs = ShimLogs({rank: cast(ShimLog, SimpleNamespace(source_id=7 + rank)) for rank in (0, 1)})
        slow = LineUses(tuple(nics((12e9,) * 4)))
        found = line_peaks(opened, logs, slow)
        assert {nic: round(rate / GB) for nic, rate in found.items()} == ({("n0", "m"): gb} if gb else {})
        full = LineUses(tuple(nics((24e9,) * 4, busy=0.9)))
        assert not line_peaks(opened, logs, full), "where nothing is to be won, epochs are not asked"


@pytest.mark.parametrize(
    ("hubs", "lowest", "is_named"), [(2, 8e9, True), (2, 4e9, False), (1, 8e9, False)], ids=["alike", "not alike", "one host"]
)
def test_two_pairs_are_enough_where_all_hosts_are_slow_alike(hubs: int, lowest: float, is_named: bool) -> None:
    """All traffic is with one host or with two; two faults of one size are less likely than one of all."""
    case = recorded("network-slow")
    hosts = [host for (host,) in case.execute("SELECT DISTINCT host FROM devices WHERE kind = 'port' ORDER BY host").fetchall()]
    peers = [hosts[at % hubs] if at >= hubs else hosts[at + hubs] for at in range(len(hosts))]
    rates = [lowest, *(9e9 for _ in hosts[1:])]
    uses = LineUses(
        tuple(
            LineUse(a, "m", (at,), rate, 0.5, 25e9, "x", (b,))
            for at, (a, b, rate) in enumerate(zip(hosts, peers, rates, strict=True))
        )
    )
    found, _ = run(supply_of(case, instead={LineUses: uses}), [RULE], {})
    assert bool(found) is is_named
    assert not found or any("two hosts that are slow" in each.statement for each in found[0].evidence)


@pytest.mark.parametrize(
    ("parts", "is_named"),
    [(dict.fromkeys(range(4), 0.4), True), (dict.fromkeys(range(4), 0.7), False), (dict.fromkeys(range(3), 0.4), False)],
    ids=["all at two fifths", "all at seven tenths", "one host is sound"],
)
def test_captures_tell_what_lines_move_as_work_requests_do(parts: dict[int, float], is_named: bool, tmp_path: Path) -> None:
    ring = Ring(size=4, rails=1, operators=3, slow=parts)
    if len(parts) < 4:  # nobody waits for a slow one: each sends to the same other one
        ring = replace(ring, slow={}, out=parts)
    files = captures(ring, line_bytes_per_s=int(LINE))
    found, _ = run(supply_of(open_case([write(tmp_path, files)])), [RULE], {})
    assert [each.ranks for each in found] == ([(0, 1, 2, 3)] if is_named else [])


def test_captures_without_a_line_and_small_operators_tell_nothing(tmp_path: Path) -> None:
    slow = Ring(size=4, rails=1, operators=3, slow=dict.fromkeys(range(4), 0.4))
    for number, files in enumerate((captures(slow), captures(replace(slow, slices=6), line_bytes_per_s=int(LINE)))):
        assert run(supply_of(open_case([write(tmp_path / str(number), files)])), [RULE], {})[0] == ()
