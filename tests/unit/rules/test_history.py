"""How far back large logs are read, by the onset that some of them show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from forensics.case import log_windows
from forensics.case.build import open_case
from forensics.model import Anomaly
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.history import history_needed, is_enough, needed, needed_of_dumps
from forensics.rules.reductions.network.went_wrong import JobOnset, Onset, Trigger
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.steps.records import Recorded
from tests.benchmarks.dumps import culprit, write_dumps

S = 1_000_000_000


def onset(trigger: Trigger, ago_s: float, step_s: float = 0.5) -> JobOnset:
    ago, step = round(ago_s * S), round(step_s * S)
    return JobOnset(Onset(trigger, 0, "host-0", "dp", 0, ago, step, ago, step, 1 << 20, "0.frx"), (0, 8), step)


@pytest.mark.parametrize(("step_s", "before_s"), [(0.5, 10), (2.0, 12)])
def test_of_a_job_that_halted_ten_seconds_or_six_steps_before_are_needed(step_s: float, before_s: int) -> None:
    assert needed(onset(Trigger.NO_COMPLETION, 30, step_s), 10.0, 5 * S) == (30 + before_s) * S


def test_a_halt_that_may_be_a_pause_needs_all_that_was_before() -> None:
    """One checkpoint of 20 s is in the sampled logs: what excuses 30 s of silence may lie before any window."""
    assert needed(onset(Trigger.NO_COMPLETION, 30), 10.0, 2 * 20 * S) is None


@pytest.mark.parametrize("trigger", [Trigger.INTERVAL, Trigger.THROUGHPUT])
def test_how_much_slower_a_job_became_is_told_by_all_of_its_history(trigger: Trigger) -> None:
    assert needed(onset(trigger, 30), 10.0, 0) is None


def test_without_an_onset_everything_is_read() -> None:
    assert needed(JobOnset(None, (0, 8), S), 10.0, 0) is None


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps of 16 ranks: 35 steps of 57 calls, and one of the ranks misses the last call."""
    folder = tmp_path_factory.mktemp("large") / "dumps"
    write_dumps(folder, 16, 1)
    return folder


@pytest.fixture(scope="module")
def whole(dumps: Path) -> DuckDBPyConnection:
    return open_case([dumps])


@pytest.fixture
def ends(dumps: Path, monkeypatch: pytest.MonkeyPatch) -> DuckDBPyConnection:
    monkeypatch.setattr(log_windows, "LEAST_FILES", 16)
    monkeypatch.setattr(log_windows, "LEAST_BYTES", 1)
    return open_case([dumps], judge=history_needed)


def liveness(motion: Motion, silence_s: float | None = None) -> Liveness:
    return Liveness(motion, "", silence_ns=None if silence_s is None else round(silence_s * S))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("motion", "excused_s", "steps"),
    [
        (liveness(Motion.STALLED, 60), 10, 6),
        (liveness(Motion.STALLED, 60), 80, None),
        (liveness(Motion.STALLED), 10, 6),
        (liveness(Motion.UNSEEN), 10, 12),
        (liveness(Motion.MOVING), 10, None),
        (liveness(Motion.TOO_EARLY, 1), 10, None),
    ],
)
def test_so_many_whole_steps_of_dumps_are_needed_after_a_halt(
    whole: DuckDBPyConnection, motion: Liveness, excused_s: float, steps: int | None
) -> None:
    needed_ns = needed_of_dumps(motion, supply_of(whole).get(Recorded).of().values(), excused_s * S)
    calls = None if needed_ns is None else needed_ns / 3_025_000
    assert calls == (None if steps is None else pytest.approx(57 * (steps + 1), abs=3))


def test_dumps_without_steps_are_needed_whole() -> None:
    assert needed_of_dumps(liveness(Motion.STALLED, 60), [], 0) is None


@pytest.mark.slow
def test_the_ends_of_dumps_give_the_verdict_of_the_whole(whole: DuckDBPyConnection, ends: DuckDBPyConnection) -> None:
    of_whole, of_ends = diagnose(whole), diagnose(ends)
    assert is_enough(ends, of_ends)
    assert [suspect.ranks for suspect in of_ends.suspects] == [(culprit(16),)]
    (unread,) = of_ends.not_checked[-1:]
    assert unread == "dumps before the last steps: 20143 calls not read; --full reads them"
    shown: dict[str, Any] = {name: getattr(of_ends, name) for name in ("suspects", "victims", "ruled_out", "groups", "labels")}
    assert shown == {name: getattr(of_whole, name) for name in shown}
    slow = replace(of_ends.suspects[0], anomaly=Anomaly.FAIL_SLOW)
    for fewer in (replace(of_ends, suspects=()), replace(of_ends, suspects=(*of_ends.suspects, slow))):
        assert not is_enough(ends, fewer)
        assert is_enough(whole, fewer)
