from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import forensics
from forensics.model import (
    Anomaly,
    Component,
    CoverageRow,
    Evidence,
    Granularity,
    GroupRow,
    Impact,
    Members,
    Outcome,
    Resource,
    Since,
    StageName,
    StageRef,
    TimelineEntry,
    TreeLine,
    Verdict,
    Victims,
)
from forensics.report import text
from tests.unit.report.verdicts import DATALOADER, FILE_SYSTEM, HANG, HEALTHY, SINCE, STALL_NS

HERE = Path(__file__).parent


whole = partial(text.render, verbose=True)


def section(report: str, title: str) -> list[str]:
    """The lines below one title."""
    return report.split(f"\n{title}\n", 1)[1].split("\n\n", 1)[0].splitlines()


def test_golden_reports() -> None:
    for shown, name in ((text.render(HANG), "hang.txt"), (whole(HANG), "hang-verbose.txt")):
        assert shown == (HERE / name).read_text().replace("VERSION", forensics.__version__)


def test_the_verdict_is_in_the_first_three_lines() -> None:
    first, second, third = text.render(HANG).splitlines()[:3]
    assert first.startswith("HANG  rank 2 (host gpu-017) - stage: DATA - cause: dataloader stall")
    assert "confidence: likely" in first
    assert "[FX110]" in first
    assert "ranks 0-1,3 (3 of 4) wait in all_reduce seq 6 of 0:default_pg since 2026-11-20T11:28:56Z" in second
    assert third.strip() == DATALOADER.evidence[0].statement


def test_sections_stand_in_reading_order() -> None:
    titles = [line for line in whole(HANG).splitlines() if re.fullmatch(r"[A-Z][A-Z ]+", line)]
    assert titles == [
        "EVIDENCE",
        "DETAILS",
        "CAVEATS",
        "WHERE EVERYONE IS",
        "GROUPS",
        "TIMELINE",
        "RULED OUT",
        "COVERAGE",
        "COULD NOT BE READ",
        "ALTERNATIVES",
        "NEXT STEPS",
        "WHAT WOULD CHANGE THIS VERDICT",
    ]


def test_long_evidence_is_wrapped_and_never_cut() -> None:
    statement = " ".join(f"word{number}" for number in range(200))
    suspect = replace(DATALOADER, evidence=(Evidence(statement, "ranks/2/fr/0.json#entry=5"),))
    lines = section(whole(replace(HANG, suspects=(suspect,)), width=60), "EVIDENCE")
    assert max(len(line) for line in lines) <= 60
    assert set(statement.split()) <= set(" ".join(lines).split())


def test_a_source_is_never_broken() -> None:
    source = "ranks/2/" + "deep/" * 40 + "dump.pickle#entry=1998"
    report = whole(replace(HANG, warnings=(Evidence("cut", source),)), width=50)
    assert source in report


@pytest.mark.parametrize("name", ["\x1b[2J\x1b[31m", "[red]x[/red]", "a\nHEALTHY  fine", "\u202eevil", "x" * 10_000])
def test_hostile_names_stay_on_their_line(name: str) -> None:
    suspect = replace(DATALOADER, hosts=(name,), evidence=(Evidence(name, name),), next_steps=(name,))
    verdict = replace(
        HANG,
        summary=name,
        suspects=(suspect, replace(FILE_SYSTEM, fault=2, hosts=(name,))),
        tree=(TreeLine(0, (0, 1, 2, 3), (name,), None),),
        groups=(GroupRow(name, (0, 1), name, 6, name, name, (0,), (1,), ()),),
        timeline=(TimelineEntry(STALL_NS, name, name, name),),
        coverage=(CoverageRow(name, "rank", ("0",), (), ((name, name),)),),
        not_checked=(name,),
        would_change=(name,),
        bundle_sha256=name,
    )
    lines = whole(verdict).splitlines()
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("HEALTHY")]
    assert len(lines) < 3_000
    if name.startswith("["):
        assert "(host [red]x[/red])" in lines[0]


def test_eight_thousand_ranks_are_bearable() -> None:
    world = tuple(range(8192))
    others = tuple(rank for rank in world if rank != 137)
    groups = tuple(
        GroupRow(f"tp_{n}", world[8 * n : 8 * n + 8], "reported", 9, "all_reduce", None, (), (), ()) for n in range(1024)
    )
    verdict = replace(
        HANG,
        suspects=(replace(DATALOADER, ranks=(137,)),),
        victims=(Victims(others, (137,)),),
        world_size=8192,
        tree=(TreeLine(0, others[::2], ("train",), None), TreeLine(0, others[1::2], ("train",), None)),
        groups=(*groups, GroupRow("world", world, "reported", 6, "all_reduce", None, others, (137,), ())),
        coverage=(CoverageRow("stack.pyspy", "rank", tuple(map(str, others)), (), (("137", "not_found"),)),),
    )
    report = whole(verdict)
    assert "ranks 0-136,138-8191 (8191 of 8192) wait in all_reduce seq 6 of world" in report.splitlines()[1]
    assert len(report.splitlines()) < 130
    assert section(report, "GROUPS")[0].startswith("  world")
    assert section(report, "GROUPS")[2:] == ["  tp_0-1023  all_reduce seq 9   1024 groups of 8 members (reported)"]
    assert "more, --all-ranks)" in section(report, "WHERE EVERYONE IS")[0]
    assert "--all-ranks" not in whole(verdict, all_ranks=True)


def test_healthy_without_gaps() -> None:
    first, second, third = text.render(HEALTHY).splitlines()[:3]
    assert first == "HEALTHY  the job was moving; nobody is accused"
    assert second == "  complete: fr.live 4/4"
    assert third.strip() == HEALTHY.summary


def test_healthy_with_failed_collectors_says_so_before_anything_else() -> None:
    verdict = replace(HEALTHY, coverage=HANG.coverage, not_checked=HANG.not_checked)
    second = text.render(verdict).splitlines()[1]
    assert "INCOMPLETE: fr.live 3/4, kernel.log 1/2" in second
    assert "not checked: 1" in second


def test_inconclusive_without_coverage_claims_nothing() -> None:
    verdict = replace(HEALTHY, outcome=Outcome.INCONCLUSIVE, summary="", coverage=())
    first, second, third = whole(verdict).splitlines()[:3]
    assert first == "INCONCLUSIVE  insufficient evidence to name a suspect   confidence: none"
    assert second == "  the evidence does not say what was collected"
    assert third == "  no reason was recorded"
    assert "nothing that is missing here is known to be fine" in " ".join(section(whole(verdict), "COVERAGE"))


@pytest.mark.parametrize(("anomaly", "lead"), [(Anomaly.FAIL_STOP, "stuck"), (Anomaly.FAIL_SLOW, "slow")])
def test_whom_to_look_at_if_the_job_has_a_fault_at_all(anomaly: Anomaly, lead: str) -> None:
    verdict = replace(HANG, outcome=Outcome.INCONCLUSIVE, suspects=(replace(DATALOADER, anomaly=anomaly),))
    assert text.render(verdict).startswith(f"INCONCLUSIVE  if the job is {lead}: rank")


def test_where_nobody_is_named_the_third_line_says_where_to_begin() -> None:
    verdict = replace(HEALTHY, outcome=Outcome.INCONCLUSIVE, leads=("the stack of rank 3", "the log of rank 5"))
    assert text.render(verdict).splitlines()[2] == "  begin with the stack of rank 3"


def test_sources_of_which_there_is_nothing_are_not_complete() -> None:
    rows = (CoverageRow("stacks", "rank", ("0",), (), ()), CoverageRow("process", "rank", (), (), ()))
    second = text.render(replace(HEALTHY, coverage=rows)).splitlines()[1]
    assert second == "  complete: stacks 1/1; none: process"


def test_a_hang_without_suspects_names_nobody() -> None:
    report = text.render(replace(HANG, suspects=()))
    assert report.splitlines()[0] == "HANG  nobody can be named   confidence: none"
    assert "<== suspect" not in report
    assert "forensics explain" not in report


def test_independent_faults_come_as_blocks_before_alternatives() -> None:
    other = replace(FILE_SYSTEM, fault=2, next_steps=("check the mount",))
    report = whole(replace(HANG, suspects=(DATALOADER, other, FILE_SYSTEM)))
    assert report.splitlines()[3] == "  independent of it: fault 2, below"
    assert report.index("COVERAGE") < report.index("FAULT 2  host gpu-017") < report.index("ALTERNATIVES")
    assert "#3" in section(report, "ALTERNATIVES")[0]
    assert section(report, "NEXT STEPS FOR FAULT 2") == ["  1  check the mount"]


def test_evidence_against_is_distinguished() -> None:
    against = [line for line in section(whole(HANG), "EVIDENCE") if line.startswith("  against:")]
    assert len(against) == 1
    assert "the kernel log has no message" in against[0]


@pytest.mark.parametrize(
    ("changes", "subject"),
    [
        ({"granularity": Granularity.GPU, "resource": Resource(gpu="1")}, "GPU 1 of rank 2 (host gpu-017)"),
        ({"granularity": Granularity.NIC}, "the NIC of rank 2 (host gpu-017)"),
        ({"granularity": Granularity.HOST}, "host gpu-017 (rank 2)"),
        ({"granularity": Granularity.JOB}, "the whole job"),
        ({"ranks": (2, 3), "members": Members.ONE_OF, "hosts": ()}, "one of ranks 2-3"),
        ({"granularity": Granularity.GROUP, "hosts": ("a", "b", "c")}, "group unknown: rank 2 (3 hosts)"),
    ],
)
def test_subjects_are_named_as_small_as_the_evidence_allows(changes: dict[str, Any], subject: str) -> None:
    verdict = replace(HANG, suspects=(replace(DATALOADER, **changes),))
    assert text.render(verdict).splitlines()[0].startswith(f"HANG  {subject} - stage:")


def test_a_slow_job_says_what_the_fault_costs() -> None:
    suspect = replace(DATALOADER, impact=Impact(1_250_000_000, 0.325, 50, "frontier_gain"))
    verdict = replace(HANG, outcome=Outcome.SLOWDOWN, suspects=(suspect,), victims=())
    assert "1.25 s recoverable, 32.5% of the time, over 50 steps" in text.render(verdict).splitlines()[1]
    once = replace(suspect, impact=Impact(1_250_000_000, 0.325, 1, "critical_path"))
    said = text.render(replace(verdict, suspects=(once,))).splitlines()[1]
    assert "1.25 s recoverable, 32.5% of the step, over 1 step, by critical path" in said


def test_timeline_is_relative_to_the_stall_and_in_utc() -> None:
    lines = section(whole(HANG), "TIMELINE")
    assert lines[0].split()[:2] == ["T-1.500", "s"]
    assert "2026-11-20T11:28:54.623Z" in lines[0]
    assert any("T+600.000 s" in line for line in lines)


def test_a_stall_on_another_clock_is_not_compared_with_the_timeline() -> None:
    report = whole(replace(HANG, since=Since(12_500, "gpu timer", 10, None)))
    assert "since 12500 ns of clock gpu timer (+-10 ns)" in report.splitlines()[1]
    assert not [line for line in section(report, "TIMELINE") if "T+" in line or "T-" in line]


def test_impossible_times_are_shown_as_numbers() -> None:
    verdict = replace(HANG, since=replace(SINCE, time_ns=2**63 - 1), timeline=(TimelineEntry(2**80, None, "x", None),))
    assert f"{2**80} ns" in whole(verdict)


def test_tree_draws_branches() -> None:
    tree = (
        TreeLine(0, (0, 1, 2), ("main",), None),
        TreeLine(1, (0, 1), ("step",), None),
        TreeLine(2, (0,), ("send",), None),
        TreeLine(2, (1,), ("recv",), None),
        TreeLine(1, (2,), ("load",), None),
    )
    lines = section(text.render(replace(HANG, tree=tree)), "WHERE EVERYONE IS")
    assert [line.partition("1/4")[0].partition("2/4")[0].partition("3/4")[0] for line in lines] == [
        "  ",
        "  |- ",
        "  |  |- ",
        "  |  `- ",
        "  `- ",
    ]
    assert lines[-1].endswith("<== suspect")


def test_a_very_deep_tree_keeps_its_text_readable() -> None:
    tree = tuple(TreeLine(depth, (0,), (f"f{depth}",), None) for depth in range(200))
    report = text.render(replace(HANG, tree=tree), all_ranks=True)
    assert "(depth 199) 1/4 [0]  f199" in report


def test_colour_only_adds_escapes() -> None:
    coloured = text.render(HANG, color=True)
    assert "\x1b[1;31mHANG\x1b[0m" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == text.render(HANG)


def test_lines_keep_the_width_except_the_head_and_sources() -> None:
    for width in (72, 100, 160):
        assert all(len(line) <= width for line in whole(HANG, width=width).splitlines()[3:-2])


@pytest.fixture
def far_away() -> Iterator[None]:
    """A process in a zone 14 hours before UTC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "XXX-14")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_away")
def test_times_are_utc_in_every_zone() -> None:
    assert "2026-11-20T11:28:54.623Z" in whole(HANG)


def test_verdict_without_anything_still_renders() -> None:
    empty = Verdict(Outcome.HANG, "", None, (), (), (), None)
    assert text.render(empty).startswith("HANG  nobody can be named")


def test_the_operation_is_part_of_the_stage_only_for_communication() -> None:
    waited_in = replace(DATALOADER.stage, operation="all_reduce", sequence=6, communicator="0:default_pg")
    doing = replace(waited_in, name=StageName.BACKWARD, component=Component.COMMUNICATION)
    heads = [
        text.render(replace(HANG, groups=(), suspects=(replace(DATALOADER, stage=stage),))).splitlines()[:2]
        for stage in (waited_in, doing)
    ]
    assert "stage: DATA - cause" in heads[0][0]
    assert "stage: BACKWARD (all_reduce) - cause" in heads[1][0]
    assert all("wait in all_reduce seq 6 of 0:default_pg" in second for _, second in heads)


def test_the_second_line_names_the_call_of_those_who_wait() -> None:
    """A suspect that has made another call is missing in none: not its own call is what the others wait in."""
    mismatched = replace(DATALOADER, stage=StageRef(operation="broadcast", communicator="0:default_pg", sequence=72))
    row = GroupRow("0:default_pg", (0, 1, 2, 3), "inferred", 72, "all_reduce", "[[4]]", (0, 1, 2, 3), (), ())
    verdict = replace(HANG, suspects=(mismatched,), groups=(row,))
    assert "wait in all_reduce seq 72 of 0:default_pg" in text.render(verdict).splitlines()[1]


def test_the_second_line_says_who_waits_for_whom_waits() -> None:
    """The root of a broadcast waits for the suspect, the others already wait for the root in their next call."""
    rows = (
        GroupRow("0:default_pg", (0, 1, 2, 3), "inferred", 882, "broadcast", "[[5]]", (1, 3), (0, 2), ()),
        GroupRow("0:default_pg", (0, 1, 2, 3), "inferred", 881, "broadcast", "[[1]]", (0, 2), (), (1, 3)),
    )
    verdict = replace(HANG, victims=(Victims((0,), (2,)), Victims((1, 3), (0,))), groups=rows)
    second = text.render(verdict).splitlines()[1]
    assert second.startswith("  rank 0 (1 of 4) waits in broadcast seq 881 of 0:default_pg, 2 more behind it since ")


@pytest.mark.parametrize(
    ("granularity", "said"),
    [
        (Granularity.GROUP, "nobody outside this group is known to wait; since"),
        (Granularity.RANK, "no waiting ranks identified; since"),
    ],
)
def test_who_waits_where_no_victim_is_known(granularity: Granularity, said: str) -> None:
    verdict = replace(HANG, suspects=(replace(DATALOADER, granularity=granularity),), victims=())
    assert said in text.render(verdict)
