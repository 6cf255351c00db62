"""FX180 on captures made up for it: whom it names, and what must not mislead it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Granularity, Members, Outcome, Role, Suspect, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import run, supply_of
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.slow.nic_slow import RULE
from tests.recordings.nic_captures import Ring, captures, halved, write


def judged(folder: Path, ring: Ring, **text: Any) -> Verdict:
    return diagnose(open_case([write(folder, captures(ring, **text))]))


def only(verdict: Verdict) -> Suspect:
    (suspect,) = verdict.suspects
    assert suspect.rules == ("FX180",)
    return suspect


def status(verdict: Verdict) -> str:
    return next(outcome.status for outcome in verdict.ruled_out if outcome.rule == "FX180")


@pytest.mark.parametrize("part", [0.8, 0.5, 0.3])
def test_a_nic_that_is_slow_both_ways_is_named(part: float, tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(slow={2: part})))
    assert (found.ranks, found.granularity, found.cause) == ((2,), Granularity.NIC, Cause.NIC_OR_PCIE_SLOW)


def test_of_a_job_that_is_slow_it_is_not_asked_whether_it_moves(tmp_path: Path) -> None:
    verdict = judged(tmp_path, Ring(slow={2: 0.5}))
    assert verdict.outcome is Outcome.SLOWDOWN
    assert not any(label.axis in ("liveness", "speed") for label in verdict.labels)
    assert any(label.reason.endswith("processes and captures of NICs only") for label in verdict.labels)
    assert all("rank" in text and "py-spy" not in text for text in verdict.would_change)


@pytest.mark.parametrize(
    ("ring", "named"),
    [(Ring(slow={2: 0.3}), [(2,)]), (Ring(slow={2: 0.7}), []), (Ring(out={2: 0.3}), []), (Ring(), [])],
    ids=["plainly slow", "by a third", "either end of one link", "sound"],
)
def test_of_a_job_that_stands_still_it_says_who_was_plainly_slow_before(
    ring: Ring, named: list[tuple[int, ...]], tmp_path: Path
) -> None:
    still = Liveness(Motion.STALLED, "no new operation for a minute")
    supply = supply_of(open_case([write(tmp_path, captures(ring))]), instead={Liveness: still})
    found = [each for each in run(supply, [RULE], {})[0] if each.role is Role.ROOT]
    assert [each.ranks for each in found] == named
    assert all(each.of_past and each.confidence is Confidence.SUSPECT for each in found)


@pytest.mark.parametrize(("rails", "are_named"), [(8, False), (3, True)])
def test_where_most_nics_would_be_slow_at_once_none_is_named(rails: int, are_named: bool, tmp_path: Path) -> None:
    """In each ring of three another NIC sends slowly."""
    slow = {8 * (rail % 3) + rail: 0.5 for rail in range(rails)}
    verdict = judged(tmp_path, Ring(size=3, rails=8, out=slow))
    assert bool(verdict.suspects) is are_named


def test_traffic_of_others_that_comes_and_goes_shows_over_all_epochs(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(busy={2: 0.4})))
    assert (found.ranks, found.granularity, found.cause) == ((2,), Granularity.NIC, Cause.NETWORK_SLOW)
    assert "not in its busiest" in found.evidence[0].statement


def test_a_nic_that_only_sends_slowly_cannot_be_distinguished_from_the_receiver(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(out={2: 0.5})))
    assert (found.ranks, found.members) == ((2, 4), Members.ONE_OF)


def test_all_nics_of_a_host_are_one_fault(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(slow=halved(2, 3))))
    assert (found.ranks, found.granularity, found.members) == ((2, 3), Granularity.HOST, Members.EACH)


def test_two_neighbouring_hosts_account_for_three_of_four_links(tmp_path: Path) -> None:
    verdict = judged(tmp_path, Ring(slow=halved(2, 3, 4, 5)))
    assert {rank for suspect in verdict.suspects for rank in suspect.ranks} == {2, 3, 4, 5}


def test_the_capture_of_the_slow_one_is_not_needed(tmp_path: Path) -> None:
    """What it sends is shown by whoever receives it."""
    files = captures(Ring(slow=halved(2), peers=True))
    del files["nodes/n1/nic/mlx5_0.epochs"]
    assert only(diagnose(open_case([write(tmp_path, files)]))).ranks == (2,)


@pytest.mark.parametrize(
    "ring",
    [
        Ring(spread=0.02),
        Ring(held=60_000.0),
        Ring(slow=halved(*range(8))),
        Ring(slow=halved(2), slices=3),
        Ring(slow=halved(2), rails=1, size=3),
    ],
    ids=["uneven by 2 %", "late proxies", "the whole network", "messages without a rate", "too few to compare"],
)
def test_nobody_is_named(ring: Ring, tmp_path: Path) -> None:
    assert judged(tmp_path, ring).suspects == ()


def test_long_epochs_never_name_a_sound_nic(tmp_path: Path) -> None:
    """At 1 ms the whole ring looks slow: its members are named as a group, or nobody (Pulse 6.1)."""
    verdict = judged(tmp_path, Ring(slow=halved(2), epoch_ns=1_000_000, slices=600))
    for suspect in verdict.suspects:
        assert suspect.ranks == (2,) or (suspect.members is Members.ONE_OF and 2 in suspect.ranks)
    assert any(label.label == "telemetry_limited" and label.axis == "epochs" for label in verdict.labels)


def test_epochs_of_64_us_still_show_a_nic_of_half_its_rate(tmp_path: Path) -> None:
    """The others look slower than they are, and less so than the slow one (Pulse 7.2.1)."""
    assert only(judged(tmp_path, Ring(slow=halved(2), epoch_ns=64_000))).ranks == (2,)


def test_sound_nics_are_ruled_out_only_where_half_of_the_rate_would_show(tmp_path: Path) -> None:
    assert status(judged(tmp_path / "short", Ring())) == "ruled_out"
    assert status(judged(tmp_path / "long", Ring(epoch_ns=1_000_000, slices=600))) != "ruled_out"


def test_a_cut_capture_does_not_mislead(tmp_path: Path) -> None:
    """One with half of its runs, and its own span, beside whole ones."""
    files = captures(Ring())
    name = "nodes/n1/nic/mlx5_0.epochs"
    files[name] = files[name][: len(files[name]) * 2 // 3]
    assert diagnose(open_case([write(tmp_path, files)])).suspects == ()


@pytest.mark.parametrize(("slow", "named"), [({3: 0.5}, (6, 7)), ({}, ())])
def test_ranks_that_have_a_slow_nic_together_are_named_together(
    slow: dict[int, float], named: tuple[int, ...], tmp_path: Path
) -> None:
    """The captures name no rank; of each NIC one rank receives on it and another one sends."""
    ring = Ring(size=8, rails=1, slow=slow)
    connection = open_case([write(tmp_path, captures(ring, rank=None))])
    for nic in range(ring.world):
        for link in (1000 * sender + receiver for sender, receiver in ring.links() if nic in (sender, receiver)):
            row = (1, 1000 + link, 2 * nic + link % 2, f"n{nic}", f"{nic}: {link}", "mlx5_0", link, f"::ffff:10.0.0.{nic + 1}")
            columns = "source_id, locator, rank, host, queue_pair, nic, number, gid"
            connection.execute(f"INSERT INTO queue_pairs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
    suspects = diagnose(connection).suspects
    assert [(each.ranks, each.granularity) for each in suspects] == ([(named, Granularity.NIC)] if named else [])


@pytest.mark.parametrize("peer", ["2", ""], ids=["loopback", "storage"])
@pytest.mark.parametrize(("slow", "named"), [((), []), ((2,), [(2,)])], ids=["sound", "slow"])
def test_what_a_nic_moves_to_itself_or_for_others_is_no_link(
    slow: tuple[int, ...], named: list[tuple[int, ...]], peer: str, tmp_path: Path
) -> None:
    """A queue pair that no other NIC of the job is at the other end of, at a tenth of the line in each epoch."""
    ring = Ring(slow=halved(*slow))
    heads = [f"# {each}" for each in ("epoch_ns=32000", "clock=realtime", "host=n1", "nic=mlx5_0", "rank=2")]
    rows = [f"9,{way},{ring.first_epoch + epoch},160000,{peer}" for epoch in range(3000) for way in ("send", "recv")]
    text = "\n".join([*heads, "queue_pair,direction,epoch,bytes,peer", *rows])
    connection = open_case([write(tmp_path, captures(ring) | {"beside.csv": text.encode()})])
    assert connection.execute("SELECT count(*) FROM queue_pairs WHERE number = 9").fetchall() == [(1,)]
    assert [each.ranks for each in diagnose(connection).suspects] == named


def test_two_captures_of_one_nic_count_once(tmp_path: Path) -> None:
    files = captures(Ring(slow=halved(2)))
    again = {name.replace(".epochs", "-again.epochs"): content for name, content in files.items()}
    assert only(diagnose(open_case([write(tmp_path, files | again)]))).ranks == (2,)


@pytest.mark.parametrize(
    "text", [{"epochs": 2**62}, {"first_epoch": 2**62}, {"epochs": 1}, {"epochs": -5}, {"first_epoch": -(2**62)}]
)
def test_what_a_capture_says_of_its_span_may_be_wrong(text: dict[str, int], tmp_path: Path) -> None:
    assert judged(tmp_path, Ring(), **text).suspects == ()


def test_without_captures_it_is_not_applicable() -> None:
    scenario = Path(__file__).parents[4] / "fixtures/scenarios/transfer-slow/bundle.tar.zst"
    assert status(diagnose(open_case([scenario]))) == "not_applicable"


def test_nics_of_one_number_on_all_hosts_are_a_rail(tmp_path: Path) -> None:
    found = only(judged(tmp_path, Ring(rails=3, slow=dict.fromkeys((1, 4, 7, 10), 0.3))))
    assert (found.ranks, found.members, found.granularity) == ((1, 4, 7, 10), Members.EACH, Granularity.LINK)
    assert found.confidence is Confidence.SUSPECT


def test_the_only_nics_of_all_hosts_are_no_rail(tmp_path: Path) -> None:
    """Beside two rings of other hosts, which are sound."""
    ring = Ring(size=4, rails=1, slow=dict.fromkeys(range(4), 0.3))
    assert judged(tmp_path, ring).suspects == ()
