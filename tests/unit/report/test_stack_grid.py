"""Ranks laid out by stage, replica and tensor, on trees and layouts made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from forensics.model import GridRow, LayoutRow, TreeLine, Verdict, WaitKind
from forensics.report.page import document
from forensics.report.screen import sections
from forensics.report.section import Section
from forensics.report.stack_grid import stack_grid
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.pipeline.places import Place
from forensics.rules.reductions.pipeline.rows import layout_row
from forensics.rules.reductions.pipeline.step_shape import StepShape
from tests.unit.report.verdicts import HANG

TP, DP, PP = 4, 2, 2


def layout(replicas: int = DP) -> LayoutRow:
    """Tensor ranks beside each other, then replicas, then stages."""
    rows = [
        GridRow(stage, replica, tuple(range((stage * replicas + replica) * TP, (stage * replicas + replica + 1) * TP)))
        for stage in range(PP)
        for replica in range(replicas)
    ]
    return LayoutRow((), (), "calls", tuple(rows))


def verdict(where: Mapping[str, set[int]], grid: LayoutRow | None) -> Verdict:
    """Ranks by the innermost frame of their stacks."""
    inner = [TreeLine(1, tuple(sorted(ranks)), (frame,), WaitKind.COLLECTIVE) for frame, ranks in where.items()]
    everybody = tuple(sorted(rank for ranks in where.values() for rank in ranks))
    return replace(HANG, tree=(TreeLine(0, everybody, ("train",), None), *inner), layout=grid)


def shown(section: Section) -> list[tuple[str, str]]:
    return [(item.marker, item.text) for item in section.items]


def test_the_rank_in_the_dataloader_stands_out_among_its_tensor_peers() -> None:
    """Mycroft section 8, case two: its tensor peers wait in a broadcast, all others in the forward step."""
    where = {"forward_step": set(range(8)) | set(range(12, 16)), "broadcast_data": {8, 9, 11}, "next_batch": {10}}
    found = stack_grid(verdict(where, layout()))
    assert shown(found) == [
        ("stage 0", "AAAA AAAA"),
        ("stage 1", "BBCB AAAA"),
        ("A", f"12 [0-7,12-15]  forward_step   {WaitKind.COLLECTIVE}"),
        ("B", f"3 [8-9,11]  broadcast_data   {WaitKind.COLLECTIVE}"),
        ("C", f"1 [10]  next_batch   {WaitKind.COLLECTIVE}"),
    ]


def test_a_rank_without_a_stack_has_a_place_and_no_letter() -> None:
    found = shown(stack_grid(verdict({"forward": {0, 1, 2}, "read": {5}}, layout())))
    assert found[0] == ("stage 0", "AAA. .B..") and found[-1] == (".", "no stack")


def test_of_many_replicas_those_that_differ_are_drawn() -> None:
    everybody = set(range(PP * 64 * TP))
    found = shown(stack_grid(verdict({"forward": everybody - {21}, "read": {21}}, layout(64))))
    assert found[:2] == [("stage 0", "replica 5 ABAA, 63 replicas AAAA"), ("stage 1", "64 replicas AAAA")]


def test_all_at_one_place_or_unknown_places_make_no_grid() -> None:
    assert not stack_grid(verdict({"forward": set(range(16))}, layout())).items
    assert not stack_grid(verdict({"forward": {0}, "read": {1}}, None)).items


def test_more_call_paths_than_letters_share_one_sign() -> None:
    found = shown(stack_grid(verdict({f"frame{rank:02}": {rank} for rank in range(32)}, layout(4))))
    assert found[0][1].startswith("ABCD EFGH") and found[-1] == ("*", "6 further call paths")


def test_the_first_screen_shows_it() -> None:
    titles = [part.title for part in sections(verdict({"forward": set(range(15)), "read": {15}}, layout()))]
    assert titles.index("STACK GRID") == titles.index("WHERE EVERYONE IS") + 1


def test_letters_of_the_page_stand_below_each_other() -> None:
    page = document.render(verdict({"forward": set(range(15)), "read": {15}}, layout()))
    assert '<td class="wide frames">AAAA AAAA</td>' in page


def test_the_grid_follows_the_places_of_ranks() -> None:
    """Ranks of an unknown replica stand behind the others of their stage."""
    places = {3: Place(0, 0, 0), 1: Place(0, 0, 1), 2: Place(1, 0, 0), 0: Place(0, None, None)}
    row = layout_row(Layout(places=places, stage_method="calls"), StepShape())
    assert row is not None
    assert row.grid == (GridRow(0, 0, (3, 1)), GridRow(0, None, (0,)), GridRow(1, 0, (2,)))
