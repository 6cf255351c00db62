"""What StageFrontier prints beside its 50 rows, on our jobs: the threshold, late batches and callbacks, a delay taken away."""

from __future__ import annotations

import pytest

from forensics.rules.reductions.frontier.verdicts import FrontierWindow
from tests.benchmarks import frontier_studies as studies
from tests.benchmarks.frontier_studies import Table, seen
from tests.unit.frontier.jobs import job, matrix


def column(table: Table, name: str) -> list[str]:
    return [line[table[0].index(name)] for line in table[1:]]


def test_a_threshold_takes_in_the_next_stage_when_the_leading_ones_stay_below_it() -> None:
    half = seen("data", (), FrontierWindow(matrix([[[40.0] * 4, [33.0] * 4, [17.0] * 4, [10.0] * 4, [0.0] * 4]] * 9)))
    third = seen("backward", (), half.window)
    table = studies.thresholds([half, third])
    assert column(table, "threshold") == ["0.70", "0.75", "0.80", "0.85", "0.90"]
    assert column(table, "mean size")[:3] == ["2.00", "3.00", "3.00"]
    assert column(table, "hit")[:2] == ["1/2", "2/2"]


@pytest.mark.parametrize(
    ("stage", "ranks", "said"), [("data", (3,), "rank"), ("data", (4,), "other"), ("forward", (3,), "other")]
)
def test_what_is_named_is_held_against_the_fault(stage: str, ranks: tuple[int, ...], said: str) -> None:
    assert seen(stage, ranks, FrontierWindow(job("data"))).named == said


def test_of_a_sound_job_nobody_is_named() -> None:
    assert seen("data", (3,), FrontierWindow(job())).named == "nobody"


@pytest.mark.slow
def test_a_delay_that_is_taken_away_leaves_no_trace() -> None:
    before, during, after, begun = studies.removed(1)
    assert before.share("callbacks") == pytest.approx(0.0175, abs=0.005)
    assert during.share("callbacks") == pytest.approx(0.4106, abs=0.05)
    assert list(studies.shares(during.found))[:2].count("callbacks") == 1
    # The paper's tolerance for the step time to have come back.
    assert abs(after.step_ms - before.step_ms) < 8.63
    assert abs(after.share("callbacks") - before.share("callbacks")) < 0.005
    # All ranks leave the barrier together: the stage can be stated where its begin is seen, the rank cannot.
    assert [one.named for one in (before, during, after, begun)] == ["nobody", "nobody", "nobody", "stage"]


@pytest.mark.slow
def test_late_callbacks_lead_the_account_only_before_a_barrier() -> None:
    table = studies.callbacks(seeds=1)
    assert column(table, "barrier") == ["yes"] * 4 + ["no"]
    first, second = ([line[place] for line in table[1:]] for place in (4, 6))
    assert (first[0], first[2:]) == ("0/1", ["1/1", "1/1", "0/1"])
    assert second == ["1/1"] * 4 + ["0/1"]
    assert column(table, "named")[-1] == "rank 1"


@pytest.mark.slow
@pytest.mark.parametrize("size", studies.SIZES)
def test_a_late_batch_is_seen_from_some_delay_on(size: int) -> None:
    table = studies.detectability((size,), seeds=1)
    shares = [float(share) for share in column(table, "data")]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(0.06, abs=0.03) and shares[3] == pytest.approx(0.43, abs=0.1)
    seen = [hit == "1/1" for hit in column(table, "in set")]
    assert seen == sorted(seen) and not seen[0] and seen[3]
    assert column(table, "named") == ["nobody 1", *["rank 1"] * 5]


@pytest.mark.slow
def test_the_set_of_the_fifty_rows_grows_with_its_threshold() -> None:
    rows = list(studies.rows_of_e3(1))
    table = studies.thresholds(rows)
    sizes = [float(size) for size in column(table, "mean size")]
    assert sizes == sorted(sizes)
    assert column(table, "hit")[1:] == ["50/50"] * 4
    assert sizes[2] <= 2.2 and column(table, "largest")[2] == "3"
    by_scenario = studies.scenarios(rows)
    assert column(by_scenario, "first") == ["10/10", "10/10", "10/10", "0/10", "10/10"]
    assert column(by_scenario, "first two") == ["10/10"] * 5
    assert column(by_scenario, "set") == ["3.0", "2.0", "2.0", "2.0", "2.0"]
    assert "direct_exposure" not in column(by_scenario, "labels")[3]
