"""The default report: what an on-call engineer acts on, on one screen, however much there is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.model import CoverageRow, Evidence, GroupRow, Label, TreeLine, Verdict, Victims
from forensics.report import markdown, screen, text
from tests.unit.report.verdicts import DATALOADER, FILE_SYSTEM, HANG, HEALTHY

LONG = " ".join(f"word{number}" for number in range(400))


def crowded(world: int) -> Verdict:
    """Much of everything: evidence, places, groups, warnings, faults."""
    ranks = tuple(range(world))
    evidence = tuple(Evidence(f"{number} {LONG}", f"ranks/{number}/fr/0.json#entry=1") for number in range(50))
    suspect = replace(DATALOADER, evidence=evidence, next_steps=(LONG,) * 9)
    return replace(
        HANG,
        suspects=(suspect, *(replace(FILE_SYSTEM, fault=fault, ranks=(fault,)) for fault in range(1, 5))),
        victims=(Victims(ranks, (2,)),),
        world_size=world,
        tree=tuple(TreeLine(1 + number % 3, (ranks[number % world],), (f"f{number}",) * 30, None) for number in range(300)),
        groups=tuple(
            GroupRow(f"g{n}", ranks, "reported", n, "all_reduce", None, ranks[1::2], ranks[::2], ()) for n in range(99)
        ),
        labels=tuple(Label("contradiction", "x", f"{number} {LONG}") for number in range(50)),
        coverage=(CoverageRow("stacks", "rank", tuple(map(str, ranks)), (), ()),),
        warnings=tuple(Evidence(f"warning {number}", f"file{number}") for number in range(1000)),
        not_checked=tuple(f"GPU state on host{number}" for number in range(500)),
        last_lines=(Evidence("RuntimeError: boom", "ranks/2/logs/a.log#line=9"),),
    )


@pytest.mark.parametrize(("world", "most"), [(4, 45), (64, 45), (1024, 60), (10_000, 60)])
@pytest.mark.parametrize("width", [60, 100])
def test_the_report_fits_a_screen(world: int, most: int, width: int) -> None:
    lines = text.render(crowded(world), width).splitlines()
    assert len(lines) <= most
    titles = [line for line in lines if line.isupper() and not line.startswith(" ")]
    wanted = ("EVIDENCE", "WHERE EVERYONE IS", "GROUPS THAT WAIT", "MISSING, AND WOULD DECIDE", "NEXT STEPS")
    assert [title for title in titles if title in wanted] == list(wanted)
    assert any("RuntimeError: boom" in line for line in lines)


@pytest.mark.parametrize("report", [text.render(crowded(1024), verbose=True), markdown.render(crowded(1024))])
def test_no_list_of_the_long_report_is_without_end(report: str) -> None:
    assert len(report.splitlines()) < 6000
    assert "(+960 more, --all-ranks)" in report


def test_what_the_screen_leaves_out_is_in_the_long_report() -> None:
    short, long = text.render(HANG), text.render(HANG, verbose=True)
    for title in ("TIMELINE", "RULED OUT", "COVERAGE"):
        assert f"\n{title}\n" in long and f"\n{title}\n" not in short
    assert "-v: timeline, ruled out, not evaluated, coverage" in short


def test_a_cut_archive_is_said_in_the_second_line() -> None:
    cut = Evidence("archive is cut or damaged at byte 4096; it was read up to there", "bundle.tar#byte=4096", supports=False)
    for verdict in (HANG, HEALTHY):
        assert "ARCHIVE CUT: bundle.tar" in text.render(replace(verdict, warnings=(cut,))).splitlines()[1]
        assert "CUT" not in text.render(verdict).splitlines()[1]


def test_the_suspects_place_is_shown_among_hundreds() -> None:
    tree = (*HANG.tree, *(TreeLine(1, (0, 1, 3), (f"f{number}",), None) for number in range(200)))
    report = text.render(replace(HANG, tree=tree))
    assert "<== suspect" in report


def test_lines_are_shared_out() -> None:
    assert screen.shares([2, 3, 100], 30) == [2, 3, 25]
    assert screen.shares([50, 50], 10) == [5, 5]
    assert screen.shares([1, 1], 10) == [1, 1]
    assert sum(screen.shares([9, 9, 9], 10)) == 10


def test_items_that_do_not_fit_are_counted() -> None:
    assert screen.fitted([["a"], ["b"]], 2) == ["a", "b"]
    assert screen.fitted([["a"], ["b", "c"], ["d"]], 2) == ["a", "  (+2 more: -v)"]
    assert screen.fitted([["a", "b", "c"]], 2) == ["a", "  (cut; 0 more: -v)"]


def test_what_is_left_out_on_purpose_could_be_read() -> None:
    verdict = replace(HANG, warnings=(Evidence("left out: its run failed before", "old.log"),))
    assert "-  left out: its run failed before" in text.render(verdict)
