"""Rules on slow transfers and awaited ranks, on recorded jobs with less evidence and other thresholds."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
import zstandard

from forensics.case.build import open_case
from forensics.model import Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.scenarios import recorded

SCENARIOS = Path(__file__).parents[3] / "fixtures/scenarios"
SLOW = ("transfer-slow", "rank-awaited", "proxy-paused")
CODES = {"FX171", "FX172", "FX173"}


def logs(scenario: str, folder: Path, *ranks: int) -> Path:
    """The logs of some ranks as loose files."""
    with (
        zstandard.open(SCENARIOS / scenario / "bundle.tar.zst") as content,
        tarfile.open(fileobj=content, mode="r|") as tar,
    ):
        for member in tar:
            rank = int(member.name.split("/")[1]) if member.name.endswith(".frx") else -1
            extracted = tar.extractfile(member) if rank in ranks else None
            if extracted is not None:
                (folder / Path(member.name).name).write_bytes(extracted.read())
    return folder


def status(verdict: Verdict) -> dict[str, str]:
    return {outcome.rule: outcome.status for outcome in verdict.ruled_out if outcome.rule in CODES}


@pytest.mark.parametrize("scenario", SLOW)
def test_the_log_of_one_rank_accuses_nobody(scenario: str, tmp_path: Path) -> None:
    verdict = diagnose(open_case([logs(scenario, tmp_path, 0)]))
    assert verdict.suspects == ()


def test_without_the_log_of_the_slow_one_the_others_still_tell_where(tmp_path: Path) -> None:
    """What they send to it is slow, and its own log is not needed for that."""
    verdict = diagnose(open_case([logs("transfer-slow", tmp_path, 1, 2, 3)]))
    assert all(0 in suspect.ranks for suspect in verdict.suspects)


def test_logs_of_half_a_group_do_not_say_who_is_awaited(tmp_path: Path) -> None:
    verdict = diagnose(open_case([logs("rank-awaited", tmp_path, 0, 2, 3)]))
    assert verdict.suspects == ()


@pytest.mark.parametrize(
    ("scenario", "code", "changed"),
    [
        ("transfer-slow", "FX171", {"least_share": 0.9, "least_share_halved": 0.9}),
        ("rank-awaited", "FX172", {"least_share_of_time": 0.95}),
        ("proxy-paused", "FX173", {"least_pauses": 5}),
        ("proxy-paused", "FX173", {"likely_pauses": 100, "least_share_of_few": 0.95}),
    ],
)
@pytest.mark.first(1)
def test_thresholds_decide(scenario: str, code: str, changed: dict[str, float]) -> None:
    case = recorded(scenario)
    assert {code} == {rule for suspect in diagnose(case).suspects for rule in suspect.rules}
    assert diagnose(case, {code: changed}).suspects == ()


@pytest.mark.parametrize("scenario", ["rank-late", "stage-slow", "job-moving"])
def test_jobs_without_chunks_are_not_cleared(scenario: str) -> None:
    found = status(diagnose(recorded(scenario)))
    assert found == dict.fromkeys(CODES, "not_applicable")


@pytest.mark.parametrize("scenario", ["chunk-not-delivered", "gpu-not-ready", "credit-withheld", "behind-in-shim-logs"])
@pytest.mark.first(1)
def test_a_hang_is_nobodys_slowness(scenario: str) -> None:
    verdict = diagnose(recorded(scenario))
    assert not CODES & {rule for suspect in verdict.suspects for rule in suspect.rules}
    assert "ruled_out" not in status(verdict).values(), "a job that stands still is not looked at for speed"
