"""Large jobs that halt, judged by the end of their shim logs or of their dumps: the verdict is that of the whole ones."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from forensics.case import log_windows
from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import simulate
from forensics.report import json as report
from forensics.rules.diagnosis import diagnose
from forensics.rules.history import history_needed
from tests.unit.simulator.small_jobs import DENSE

pytestmark = pytest.mark.slow
# Steps of this job are short: sixteen of them are less than ten seconds.
SHORT = {"FX171": {"onset_window_s": 1.0}}
STATED = ("outcome", "summary", "since")


def judged(path: Path, *, full: bool) -> tuple[dict[str, Any], int]:
    """The verdict, and the calls that were read."""
    connection = open_case([path], judge=None if full else partial(history_needed, overrides=SHORT))
    found = json.loads(report.render(diagnose(connection)))
    ((calls,),) = connection.execute("SELECT count(*) FROM operations").fetchall()
    connection.close()
    return found, calls


def accused(verdict: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [tuple(each[key] for key in ("ranks", "cause", "stage", "confidence")) for each in verdict["suspects"]]


@pytest.mark.parametrize("source", ["shim", "recorder"])
@pytest.mark.parametrize("fault", ["host-hang@random/backward", "nic-down", "process-stopped"])
def test_of_a_job_that_halted_the_end_of_each_history_is_enough(
    fault: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_windows, "LEAST_FILES", 1)
    monkeypatch.setattr(log_windows, "LEAST_BYTES", 1)
    made = simulate(DENSE, [parse(fault)], 3, iterations=60, onset=54, after_s=45.0)
    path = tmp_path / "bundle.tar"
    bundle.write(made, bundle.options_of(made), losses.Losses(sources=frozenset({source})), path)
    (whole, all_calls), (end, calls) = judged(path, full=True), judged(path, full=False)
    assert calls < 0.8 * all_calls
    assert all(whole[key] == end[key] for key in STATED)
    assert accused(whole) == accused(end)
    assert [text for text in end["not_checked"] if "--full" in text] and not any("--full" in t for t in whole["not_checked"])
