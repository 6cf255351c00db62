"""The moment at which a job went wrong, on completions that are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forensics.case.database import new_case
from forensics.model import Anomaly, Cause, Confidence, Evidence, Granularity, Members, Since, StageRef, Suspect
from forensics.rules.began import dated
from forensics.rules.reductions.network.completions import Rhythm, Rhythms, rhythms, sampled, step_of
from forensics.rules.reductions.network.ended_flows import ALWAYS
from forensics.rules.reductions.network.slowness import _windows
from forensics.rules.reductions.network.went_wrong import (
    FlowWindow,
    IntervalFactor,
    JobOnset,
    ThroughputFactor,
    Trigger,
    flow_window,
    job_onset,
)
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.progress.liveness import SilenceFactor
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs, ShimLog, ShimLogs

MS, S = 1_000_000, 1_000_000_000
FACTORS = (IntervalFactor(2.0), ThroughputFactor(2.0), SilenceFactor(2.0))


def rhythm(rank: int, steps_ms: Sequence[float], busy_ms: float | Sequence[float] = 20.0, quiet_ms: float = 0.0) -> Rhythm:
    """Steps of such lengths from 0 on, on a clock that is `rank` hours ahead."""
    intervals = np.array(steps_ms, float) * MS
    ends = (np.cumsum(intervals) + rank * 3600 * S).astype(np.int64)
    busy = (np.broadcast_to(np.array(busy_ms, float), len(ends)) * MS).astype(np.int64)
    last = int(ends[-1])
    until = last + round(quiet_ms * MS)
    steps = (ends, intervals.astype(np.int64), busy, 1 << 30)
    return Rhythm(rank, f"host-{rank}", "dp", 4, *steps, last, until, f"{rank}.frx")


def onset(*found: Rhythm) -> JobOnset:
    return job_onset(Rhythms(found), *FACTORS)


def test_the_interval_doubles() -> None:
    steps = [*[100.0, 103.0, 98.0, 101.0] * 3, *[220.0, 214.0, 231.0] * 3]
    found = onset(rhythm(0, steps), rhythm(8, steps)).first
    assert found is not None and (found.trigger, found.rank) == (Trigger.INTERVAL, 0)
    assert found.time_ns == sum(map(int, steps[:12])) * MS
    assert found.since == Since(found.time_ns, "host-0 realtime", found.step_ns)
    assert found.evidence.statement == "job went wrong: rank 0, dp: a step takes 220 ms, 100 ms before"


def test_the_throughput_halves_within_steps_of_the_same_length() -> None:
    busy = [*[20.0] * 8, *[45.0] * 8]
    found = onset(rhythm(0, [100.0] * 16, busy)).first
    assert found is not None and (found.trigger, found.time_ns) == (Trigger.THROUGHPUT, 800 * MS)
    assert found.evidence.statement == "job went wrong: rank 0, dp: operations move 23.86 GB/s, 53.69 GB/s before"


def test_operations_that_cost_no_time_and_a_drop_below_the_half_are_no_onset() -> None:
    assert onset(rhythm(0, [100.0] * 16, [*[1.0] * 8, *[4.0] * 8])).first is None
    assert onset(rhythm(0, [*[100.0] * 8, *[170.0] * 8])).first is None


@pytest.mark.parametrize("steps", [[*[100.0] * 6, 900.0, *[100.0] * 6, 900.0, *[100.0] * 4], [*[250.0] * 8, *[100.0] * 8]])
def test_checkpoints_and_a_job_that_recovers_are_no_onset(steps: list[float]) -> None:
    assert onset(rhythm(0, steps)).first is None


def test_what_one_sampled_rank_of_three_shows_alone_is_not_the_jobs() -> None:
    slow, sound = [*[100.0] * 8, *[250.0] * 8], [100.0] * 28
    assert onset(rhythm(0, slow), rhythm(1, sound), rhythm(2, sound)).first is None


def test_no_completion_where_there_was_a_rhythm() -> None:
    """A slowdown before is another story: the halt dates the halt."""
    slow = [*[100.0] * 8, *[250.0] * 8]
    found = onset(rhythm(0, slow, quiet_ms=4000), rhythm(8, slow, quiet_ms=4100)).first
    assert found is not None and (found.trigger, found.rank, found.ago_ns) == (Trigger.NO_COMPLETION, 8, 4100 * MS)


@pytest.mark.parametrize(("pauses", "quiet_ms"), [((100.0, 100.0), 1900), ((3000.0, 3000.0), 5900)])
def test_a_silence_that_is_short_or_usual_is_no_halt(pauses: tuple[float, float], quiet_ms: float) -> None:
    assert onset(rhythm(0, [*[100.0] * 8, *pauses, *[100.0] * 4], quiet_ms=quiet_ms)).first is None


def test_a_communicator_that_is_done_while_others_of_the_rank_go_on_is_no_halt() -> None:
    done = rhythm(0, [100.0] * 12, quiet_ms=9000)
    assert onset(replace(done, moved_ns=done.until_ns - 50 * MS)).first is None


@pytest.mark.parametrize(
    ("gaps", "operations"),
    [
        ([1, 1, 1, 97] * 6, 4),
        ([100, 101, 99] * 6, 1),
        ([1, 1, 1, 97] * 4 + [1, 1, 1, 297] * 4, 4),
        ([1, 97], 0),
        ([1, 97] * 3, 2),
    ],
)
def test_a_step_is_what_repeats_itself(gaps: list[int], operations: int) -> None:
    assert step_of(np.array(gaps, np.int64)) == operations


def test_what_has_no_order_is_no_rhythm() -> None:
    assert step_of(np.random.default_rng(1).exponential(100, 200).astype(np.int64)) == 0


def test_one_rank_of_each_data_parallel_group_is_asked() -> None:
    assert sampled({1, 2, 3, 5, 7}, [(0, 1), (2, 3), (4, 6)]) == (1, 2)
    assert sampled(range(64), []) == tuple(range(0, 64, 4))
    assert sampled((), [(0, 1)]) == ()


def test_only_sampled_ranks_and_newest_operations_are_read() -> None:
    """Two operations a step, on two channels; the log of one rank is over."""
    with new_case(None, 0) as connection:
        connection.execute(
            "INSERT INTO sources (source_id, path, rank, status, rows) SELECT n, n || '.frx', n, 'ok', 1 FROM range(4) r(n)"
        )
        connection.execute(
            f"""
            INSERT INTO flows (source_id, locator, rank, communicator, sequence, channel, direction, bytes, start_ns, end_ns)
            SELECT n, 4 * i + c, n, 'dp', i, c, 'send', 100, at_ns, at_ns + {20 * MS} + c
            FROM range(4) r(n), range(2) t(c),
                 (SELECT i, (i // 2) * {S} + (i % 2) * {50 * MS} AS at_ns FROM range(6000) s(i))"""
        )
        logs = {rank: log(rank, ended=rank == 0) for rank in range(4)}
        found = rhythms(connection, ShimLogs(logs), ChunkLogs(frozenset(logs)), Layout())
    assert [each.rank for each in found] == [1, 2, 3]
    one = found[0]
    assert (one.operations, len(one.ends), one.bytes, set(one.intervals.tolist())) == (2, 512, 400, {S})
    assert one.ends[-1] == 2999 * S + 70 * MS + 1 and set(one.busy.tolist()) == {40 * MS + 2}


def log(rank: int, ended: bool = False, until: int = 3000 * S) -> ShimLog:
    hooks = frozenset({"nccl_profiler"})
    return ShimLog(rank, rank, f"{rank}.frx", f"host-{rank}", 0, until, None, ended, None, None, None, hooks)


def test_the_window_is_counted_from_the_end_of_each_log() -> None:
    """The clock of host 1 is an hour ahead: both windows are the same time."""
    steps = [*[1000.0] * 30, *[2500.0] * 200]
    found = onset(rhythm(0, steps))
    assert found.first is not None
    window = flow_window(found, 10.0)
    assert (
        window is not None and window.earliest_ns == 500 * S + 16 * 2500 * MS and window.latest_ns == 500 * S - 64 * 2500 * MS
    )
    logs = ShimLogs({0: log(0, until=530 * S), 1: log(1, until=4130 * S)})
    assert _windows(logs, window, {}) == {0: (-10 * S, 190 * S), 1: (3590 * S, 3790 * S)}
    assert _windows(logs, None, {}) == {} and ALWAYS[0] < -(10**18)


def test_without_an_onset_the_newest_steps_are_looked_at_whatever_the_history() -> None:
    """Five thousand steps of a second of one communicator, and four of each in another one of the same rank."""
    found = onset(rhythm(0, [1000.0] * 5000), rhythm(0, [250.0] * 20_000))
    assert found.first is None and found.step_ns == S
    assert flow_window(found, 10.0, 2.0 * S) == FlowWindow(160 * S, 0)
    assert flow_window(found, 10.0) == FlowWindow(80 * S, 0) and flow_window(found, 200.0) == FlowWindow(400 * S, 0)


def test_without_a_rhythm_the_newest_flows_of_the_busiest_log_are_looked_at() -> None:
    logs = ShimLogs({0: log(0, until=530 * S), 1: log(1, until=4130 * S)})
    assert _windows(logs, flow_window(JobOnset(), 10.0), {1: 4100 * S}) == {0: (500 * S, 530 * S), 1: (4100 * S, 4130 * S)}


def suspect(fault: int, anomaly: Anomaly, since: Since | None = None) -> Suspect:
    return Suspect(
        fault, (fault,), Members.EACH, (), Granularity.RANK, None, anomaly, StageRef(), Cause.UNKNOWN, None, None, since,
        Confidence.LIKELY, ("FX172",), (Evidence("first", None), Evidence("second", None)), (),
    )  # fmt: skip


def test_the_onset_dates_the_first_fault_where_nothing_else_does() -> None:
    found = onset(rhythm(0, [*[100.0] * 8, *[250.0] * 8]))
    assert found.first is not None
    known = Since(7, "own clock", 0)
    slow, stopped = Anomaly.FAIL_SLOW, Anomaly.FAIL_STOP
    first, rival, other = dated((suspect(1, slow), suspect(1, slow, known), suspect(2, slow)), found)
    assert first.since == found.first.since and rival.since == known and other.since is None
    assert [each.statement for each in first.evidence] == ["first", found.first.evidence.statement, "second"]
    assert len(rival.evidence) == len(other.evidence) == 2
    assert dated((suspect(1, stopped),), found)[0].since is None
    assert dated((), found) == ()
