"""Cases come from seed and number alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from forensics.errors import ForensicsError
from forensics.fixtures.simulator.faults import FAULTS, parse
from forensics.fixtures.simulator.job import LONGEST
from forensics.fixtures.simulator.simulation import alone, degraded
from forensics.fixtures.suites import frontier, nic, several
from forensics.fixtures.suites.interface import Case, Draw, Suite
from forensics.fixtures.suites.preparing import simulated
from forensics.fixtures.suites.registry import SUITES, chosen

DRAWN = [suite for suite in SUITES.values() if suite.record is None]


def draws(suite: Suite, seed: int, count: int = 24) -> list[Draw]:
    cases = [Case(suite.name, seed, number) for number in range(count)]
    return [suite.draw(case.random(), case.number) for case in cases]


@pytest.mark.parametrize("suite", DRAWN, ids=lambda suite: suite.name)
def test_the_same_seed_draws_the_same_cases(suite: Suite) -> None:
    assert draws(suite, 3) == draws(suite, 3)


@pytest.mark.parametrize("suite", DRAWN, ids=lambda suite: suite.name)
def test_every_fault_is_one_of_the_simulators(suite: Suite) -> None:
    assert all(parse(text).kind for draw in draws(suite, 1, 60) for text in draw.faults)


@pytest.mark.parametrize("name", ["hang", "slowdown", "healthy", "ccl"])
def test_another_seed_is_another_exam(name: str) -> None:
    assert draws(SUITES[name], 3) != draws(SUITES[name], 4)


def test_hangs_visit_the_papers_phases_alike_and_other_kinds_too() -> None:
    found = draws(SUITES["hang"], 5, 80)
    for phase in ("forward", "backward", "transmission"):
        mine = [draw for draw in found if draw.about.split(",")[0] == phase]
        assert len(mine) == 20
        usual = [draw for draw in mine if draw.as_published]
        assert 5 <= len(usual) <= 15
        assert all(draw.job.parallel.world == 32 and not draw.losses for draw in usual)
    others = {draw.about.split(",")[0] for draw in found} - {"forward", "backward", "transmission"}
    assert len(others) > 6


@pytest.mark.parametrize("name", ["hang", "slowdown", "ccl", "nic", "several", "frontier", "healthy"])
def test_jobs_vary_in_every_suite(name: str) -> None:
    found = draws(SUITES[name], 5, 120)
    sizes = [draw.job.parallel.world for draw in found]
    assert min(sizes) <= 32 and max(sizes) >= 64 and np.median(sizes) <= 64


@pytest.mark.parametrize("suite", DRAWN, ids=lambda suite: suite.name)
def test_collections_lose_ranks_and_ends_of_files_in_every_suite(suite: Suite) -> None:
    found = draws(suite, 5, 120)
    assert sum("missing" in draw.losses for draw in found) >= 4
    assert sum("cut" in draw.losses for draw in found) >= 4
    assert not suite.published or not any(draw.as_published for draw in found if draw.losses)


@pytest.mark.parametrize("name", ["hang", "slowdown", "healthy"])
def test_people_train_in_many_ways(name: str) -> None:
    found = draws(SUITES[name], 5, 300)
    assert {draw.job.schedule for draw in found} == {"1f1b", "gpipe", "interleaved", "zero-bubble"}
    assert {"fsdp", "hsdp", "all_reduce", "zero1"} <= {draw.job.data_mode for draw in found}
    assert {draw.job.overlap_experts for draw in found} == {True, False}
    assert sum(draw.job.parallel.world >= 256 for draw in found) >= 2
    pauses = [(draw.job.checkpoint_every > 0, draw.job.evaluate_every > 0) for draw in found]
    assert len(set(pauses)) == 4


def test_some_hangs_leave_one_source_alone() -> None:
    found = [draw for draw in draws(SUITES["hang"], 5, 120) if "only" in draw.losses]
    assert {("recorder",), ("shim",), ("logs",)} == {draw.losses["only"] for draw in found} and len(found) >= 12
    assert all(bool(draw.options.get("by_watchdog")) == (draw.losses["only"] == ("logs",)) for draw in found)


@pytest.mark.parametrize("name", ["hang", "slowdown", "healthy", "several"])
def test_jobs_have_each_source_with_a_fault_or_without(name: str) -> None:
    found = {source for draw in draws(SUITES[name], 5, 120) for source in draw.options.get("sources", ())}
    assert found == {"shim", "nic", "stages", "kineto", "nsight"}


def test_sound_jobs_leave_one_source_alone_as_hangs_do() -> None:
    found = {draw.losses.get("only") for draw in draws(SUITES["healthy"], 5, 160)}
    assert found == {None, ("recorder",), ("stacks", "processes"), ("logs",), ("shim",)}


def test_every_kind_of_fault_is_in_some_suite() -> None:
    drawn = {parse(text).kind.name for suite in DRAWN for draw in draws(suite, 3, 400) for text in draw.faults}
    assert drawn == FAULTS.keys()


def test_pairs_and_what_ranks_share_have_their_turn() -> None:
    found = Counter(draw.about for draw in draws(SUITES["several"], 3, 12))
    assert found == {"two slow ones": 4, "one stops, one was slow": 4, **dict.fromkeys(several.SHARED, 1)}


@pytest.mark.slow
def test_pairs_are_of_two_ranks_and_each_costs_enough() -> None:
    made = simulated(Case("several", 3, 1))[1]
    assert len({rank for injection in made.injections for rank in injection.ranks}) > 1
    assert made.hung and not alone(made, made.injections[1]).hung
    assert all(degraded(alone(made, each)) for each in made.injections)


def test_a_third_of_the_delays_must_be_absorbed() -> None:
    found = draws(SUITES["slowdown"], 5, 30)
    assert sum(draw.about == "absorbed" for draw in found) >= 9


def test_all_cells_of_the_tables_have_their_turn() -> None:
    cells = {(draw.about, draw.faults) for draw in draws(SUITES["nic"], 0, len(nic.CELLS) + len(nic.PARTS))}
    parts = {(about, faults) for about, faults in cells if about in dict(nic.PARTS)}
    assert len(parts) == len(nic.PARTS)
    cells -= parts
    assert len({about for about, _ in cells}) == 12
    rows = [draw.about for draw in draws(SUITES["frontier"], 0, len(frontier.CELLS))]
    assert len(rows) == 109  # table 4 with host times and again with device times, lower levels, callbacks
    assert sum("ms" not in about and "callback" not in about for about in rows) == 100


def test_a_case_is_written_as_it_is_read() -> None:
    assert Case.parse("hang:7:17") == Case("hang", 7, 17)
    assert str(Case("hang", 7, 17)) == "hang:7:17"
    with pytest.raises(ForensicsError, match="SUITE:SEED:NUMBER"):
        Case.parse("hang 7")


def test_unknown_suites_are_named() -> None:
    with pytest.raises(ForensicsError, match="hangs"):
        chosen(["hangs"])


@pytest.mark.parametrize("name", ["slowdown", "ccl", "nic", "healthy"])
def test_jobs_that_move_are_looked_at_when_the_law_of_all_cases_says(name: str) -> None:
    found = draws(SUITES[name], 5, 60)
    assert all((draw.iterations, draw.onset, draw.after_s) == (None, None, None) for draw in found)


@pytest.mark.parametrize("name", ["slowdown", "healthy", "ccl"])
def test_some_jobs_are_seen_while_their_batches_grow_or_have_steps_that_differ(name: str) -> None:
    found = [draw.job for draw in draws(SUITES[name], 5, 400)]
    growing, ending = ([job for job in found if getattr(job, what)] for what in ("ramp_from", "epoch_steps"))
    sorted_ = [job for job in found if job.shortest < LONGEST]
    assert all(8 <= len(jobs) <= 72 for jobs in (growing, ending, sorted_))
    assert all(0 < job.ramp_from < job.microbatches for job in growing)
    assert all(0 < job.epoch_rest < job.microbatches for job in ending)


@pytest.mark.parametrize("name", ["slowdown", "healthy"])
def test_some_pipelines_have_two_stages_on_a_host(name: str) -> None:
    found = [draw.job.parallel for draw in draws(SUITES[name], 5, 400)]
    assert 2 <= sum(parallel.pipeline > 1 and parallel.width == 4 for parallel in found) <= 40


@pytest.mark.slow
def test_a_job_that_no_such_fault_stops_is_drawn_again() -> None:
    """In its first draw a rank skips one of many calls that look alike, and works on with the next."""
    drawn, made = simulated(Case("hang", 301331, 3))
    assert made.run.hung and drawn != SUITES["hang"].draw(Case("hang", 301331, 3).random(), 3)
