"""What the maturity of a rule rests on, and what it allows the rule to say."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Confidence
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import discover, find, page, run, supply_of
from forensics.rules.interface import Maturity, Rule

ROOT = Path(__file__).parents[3]
TESTS = Path(__file__).parent
REAL = {row["fault"]: row for row in json.loads((ROOT / "docs/accuracy.json").read_text())["rows"]}
SIMULATED = (ROOT / "docs/suites.md").read_text()
ALL = {rule.code: rule for rule in discover()}
STABLE = [rule for rule in discover() if rule.maturity is Maturity.STABLE]

EXAMS = {
    "FX101": ("killed_and_not_reaped", "killed_and_reaped", "process_ends_itself"),
    "FX102": ("stopped",),
    "FX110": ("shard_that_never_opens", "cache_lock_held_elsewhere"),
    "FX111": ("part_file_takes_no_more", "writer_thread_blocks"),
    "FX112": ("statistics_fall_silent",),
    "FX113": ("vocabulary_never_opens", "group_never_created"),
    "FX114": ("row_with_a_letter",),
    "FX115": ("record_tried_for_ever",),
    "FX116": ("table_thread_keeps_the_interpreter",),
    "FX117": ("locks_in_another_order",),
    "FX118": ("scale_never_fits",),
    "FX119": ("compiler_waits_for_a_header", "finalizer_blocks_the_collection"),
    "FX120": ("metric_exchange_left_out", "weights_taken_back_alone"),
    "FX121": ("rows_sent_instead_of_the_gradient", "pair_disagrees"),
    "FX122": ("restart_shown_by_the_recorder",),
    "FX130": ("shared_groups_in_another_order",),
    "FX131": ("microbatch_left_out", "everybody_receives_first"),
    "FX140": ("link_of_a_pair_cut",),
    "FX142": ("hang:1:2",),
    "FX145": ("nic:1:3",),
}
"""Faults of docs/accuracy.md, else cases of docs/suites.md, in which the rule was right."""

LOOK_ALIKES = {
    "FX101": ("test_process_findings.test_an_unknown_process_is_not_a_dead_one",),
    "FX102": ("test_process_findings.test_stopped_in_one_look_only_is_a_sampler_at_work",),
    "FX110": (
        "test_host_findings.test_a_rank_that_is_not_behind_is_not_accused_for_its_stack",
        "test_host_findings.test_loader_workers_of_waiting_ranks_are_no_evidence",
    ),
    "FX111": ("test_host_work_findings.test_a_writer_thread_of_a_waiting_rank_is_no_evidence",),
    "FX112": ("test_liveness.test_ranks_that_compute_at_different_places_accuse_nobody",),
    "FX113": ("test_host_findings.test_everybody_in_the_rendezvous_accuses_nobody_in_particular",),
    "FX114": ("test_host_findings.test_the_normal_end_of_a_job_accuses_nobody",),
    "FX115": (
        "test_deeper_findings.test_an_exception_that_every_rank_logs_explains_nobody",
        "test_deeper_findings.test_an_exception_of_a_waiting_rank_does_not_accuse_it",
    ),
    "FX116": (
        "test_deeper_findings.test_a_lock_held_at_different_places_is_a_program_that_runs",
        "test_deeper_findings.test_a_waiting_rank_that_owns_the_lock_is_not_accused",
    ),
    "FX117": ("test_host_work_findings.test_a_thread_that_is_idle_holds_nothing",),
    "FX118": (
        "test_host_work_findings.test_a_thread_that_polls_is_not_busy",
        "test_host_work_findings.test_work_in_different_functions_is_no_loop",
    ),
    "FX119": (
        "test_host_work_findings.test_compiled_code_that_runs_is_no_compilation",
        "test_host_work_findings.test_another_child_is_no_compiler",
    ),
    "FX120": ("test_call_path_findings.test_another_form_of_the_same_exchange_is_no_extra_call",),
    "FX121": ("test_collective_findings.test_operations_that_may_be_uneven_are_not_compared_by_size",),
    "FX122": ("test_call_path_findings.test_logging_around_the_same_line_accuses_nobody",),
    "FX130": ("test_collective_findings.test_a_circle_that_waits_for_a_stalled_rank_is_not_the_root",),
    "FX131": ("test_deeper_findings.test_a_receive_whose_sender_is_busy_is_its_senders",),
    "FX140": ("test_collective_findings.test_an_unfinished_group_beside_a_named_root_is_not_another_fault",),
    "FX142": (
        "test_chunk_flows.test_what_moved_a_moment_ago_is_not_stuck",
        "test_flow_states.test_ends_of_different_length_say_nothing",
    ),
    "FX145": ("test_shim_log_findings.test_an_error_towards_a_dead_process_is_its_echo",),
}
"""Tests with evidence that looks like the fault and is not."""


@pytest.mark.parametrize("rule", STABLE, ids=lambda rule: rule.code)
def test_a_stable_rule_has_a_scenario_an_exam_and_look_alikes(rule: Rule) -> None:
    expected = json.loads((ROOT / "fixtures/scenarios" / rule.name / "expected.json").read_text())
    assert any(rule.code in suspect["rules"] for suspect in expected["suspects"])
    for exam in EXAMS[rule.code]:
        if exam in REAL:
            assert REAL[exam]["scores"]["forensics"] == "exact"
            assert REAL[exam]["cause_and_stage"]
        else:
            suite, _, number = exam.split(":")
            assert f"| {suite} | " in SIMULATED and int(number) < 6
            assert f"| {exam} |" not in SIMULATED, "listed among those that were not exact"
    for look_alike in LOOK_ALIKES[rule.code]:
        module, _, name = look_alike.partition(".")
        (file,) = TESTS.rglob(f"{module}.py")
        tree = ast.parse(file.read_text())
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("rule", discover(), ids=lambda rule: rule.code)
def test_the_page_says_the_maturity(rule: Rule) -> None:
    assert f"## Maturity\n{rule.maturity}: " in page(rule)


def test_only_a_stable_rule_confirms() -> None:
    rule = find("FX110")
    assert rule is not None
    job = supply_of(open_case([ROOT / "fixtures/scenarios/dataloader-stalled/bundle.tar.zst"]))
    (sure,), _ = run(job, [rule], {})
    assert sure.confidence is Confidence.CONFIRMED
    (capped,), _ = run(job, [replace(rule, maturity=Maturity.INCUBATING)], {})
    assert capped.confidence is Confidence.LIKELY
    assert "incubating" in capped.evidence[-1].statement


def test_slow_jobs_are_never_confirmed_yet() -> None:
    assert {code for code, rule in ALL.items() if rule.maturity is Maturity.STABLE} & {
        "FX160", "FX170", "FX171", "FX172", "FX173"
    } == set()  # fmt: skip
    verdict = diagnose(open_case([ROOT / "fixtures/scenarios/stage-slow/bundle.tar.zst"]))
    assert {suspect.confidence for suspect in verdict.suspects} <= {Confidence.LIKELY, Confidence.SUSPECT}
