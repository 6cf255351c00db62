"""What may show that a job goes on where its recorder cannot tell, and what may not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest

from forensics.case.columns import CaseWriter
from forensics.case.database import Connection, new_case
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.motion import with_progress, within_a_step
from forensics.rules.reductions.progress.rhythm import Rhythm
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.ranks.shim_logs import ShimLog

SECOND = 1_000_000_000
RECENT = Liveness(Motion.TOO_EARLY, "recent", silence_ns=SECOND // 10, pause_ns=SECOND)
UNDATED = Liveness(Motion.UNSEEN, "undated")
RANKS = Roster({rank: RankFacts(rank, host="ab"[rank]) for rank in range(2)}, 2)


@pytest.fixture
def case() -> Iterator[Connection]:
    connection = new_case(None, 0)
    yield connection
    connection.close()


def log(rank: int, active_s: float = 59.9, *, ended: bool = False) -> ShimLog:
    """A log of a minute whose calls come twice a second."""
    active = int(active_s * SECOND)
    return ShimLog(rank, rank, f"{rank}.frx", "ab"[rank], 0, 60 * SECOND, None, ended, active, None, SECOND // 2, frozenset())


def read_twice(case: Connection, packets: Mapping[str, int]) -> None:
    """Two reads, two seconds apart, of one port of each host."""
    writer = CaseWriter(case)
    for source, (host, grown) in enumerate(packets.items(), 1):
        about: dict[str, list[object]] = {
            "source_id": [source],
            "path": [host],
            "kind": ["ib_counters"],
            "status": ["ok"],
            "rows": [2],
        }
        writer.add("sources", about, {})
        writer.add(
            "devices", {"device": ["mlx5_0/1"], "kind": ["port"], "parent": ["mlx5_0"]}, {"source_id": source, "host": host}
        )
        reads: dict[str, list[object]] = {
            "counter": ["port_xmit_packets"] * 2,
            "sample": [0, 1],
            "time_ns": [0, 2 * SECOND],
            "value": [7, 7 + grown],
        }
        writer.add("counters", reads, {"source_id": source, "host": host, "device": "mlx5_0/1"})
    writer.flush()


@pytest.mark.parametrize("motion", [RECENT, UNDATED])
def test_calls_up_to_the_end_of_every_log_show_motion(case: Connection, motion: Liveness) -> None:
    found = with_progress(case, motion, {0: log(0), 1: log(1)}, RANKS, 2.0)
    assert found.shown and found.motion is motion.motion, "what may be accused stays as it was"


@pytest.mark.parametrize(
    "logs",
    [
        pytest.param({0: log(0)}, id="a rank without a log"),
        pytest.param({0: log(0), 1: log(1, 50)}, id="a rank that made no call lately"),
        pytest.param({0: log(0), 1: log(1, ended=True)}, id="a process that ended"),
    ],
)
def test_logs_that_do_not_show_it_of_all_ranks_show_nothing(case: Connection, logs: Mapping[int, ShimLog]) -> None:
    assert not with_progress(case, RECENT, logs, RANKS, 2.0).shown


def test_a_silent_heartbeat_outweighs_its_calls(case: Connection) -> None:
    silent = replace(RANKS, ranks={**RANKS.ranks, 1: replace(RANKS.ranks[1], heartbeat_gap_ns=9 * SECOND)})
    assert not with_progress(case, RECENT, {0: log(0), 1: log(1)}, silent, 2.0).shown


def test_traffic_on_every_host_shows_motion_beside_a_recent_record_only(case: Connection) -> None:
    read_twice(case, {"a": 3_000_000, "b": 2_000_000})
    assert with_progress(case, RECENT, {}, RANKS, 2.0).shown
    assert not with_progress(case, UNDATED, {}, RANKS, 2.0).shown
    assert not with_progress(case, replace(RECENT, motion=Motion.STALLED), {}, RANKS, 2.0).shown


@pytest.mark.parametrize("packets", [{"a": 3_000_000}, {"a": 3_000_000, "b": 900}])
def test_traffic_of_some_hosts_or_of_keep_alives_shows_nothing(case: Connection, packets: Mapping[str, int]) -> None:
    read_twice(case, packets)
    assert not with_progress(case, RECENT, {}, RANKS, 2.0).shown


@pytest.mark.parametrize(
    ("silence_s", "of_others_s", "step_s", "captured", "shown"),
    [
        (0.1, 0.3, 0.4, (0, 1), True),
        (0.6, 0.6, 0.4, (0, 1), False),
        (2.5, 2.5, 4.0, (0, 1), False),
        (0.1, 6.0, 0.4, (0, 1), False),
        (0.1, 0.3, 0.4, (0,), False),
        (0.1, 0.3, None, (0, 1), False),
    ],
    ids=[
        "recent",
        "older than a step",
        "longer than any pause",
        "a rank is behind",
        "half of the dumps without a date",
        "no steps known",
    ],
)
def test_calls_up_to_the_capture_show_motion(
    case: Connection, silence_s: float, of_others_s: float, step_s: float | None, captured: tuple[int, ...], shown: bool
) -> None:
    """Of a job that stands, all come to stand within a step or two."""
    silences = (silence_s, of_others_s)
    writer = CaseWriter(case)
    for rank in captured:
        dump: dict[str, list[object]] = {"source_id": [rank], "rank": [rank], "path": ["dump"], "kind": ["flight_recorder"]}
        writer.add("sources", {**dump, "status": ["ok"], "rows": [1], "captured_ns": [100 * SECOND]}, {})
    writer.flush()
    newest = {rank: round((100 - silence) * SECOND) for rank, silence in enumerate(silences)}
    motion = replace(RECENT, silence_ns=round(silence_s * SECOND), pause_ns=3 * SECOND)
    found = within_a_step(case, motion, RANKS, Rhythm(newest, newest, {}, {}, {}), step_s and step_s * SECOND)
    assert (found is not None) is shown
