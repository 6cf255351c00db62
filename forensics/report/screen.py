"""The report that fits a screen: the sections an on-call engineer acts on, each as long as the others leave room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice

from forensics.model import Assessment, Granularity, Suspect, Verdict
from forensics.report import coverage, group_rows, outline, rate_lines, suspects, why
from forensics.report.rates import NO_CURVES, RateCurves
from forensics.report.section import Item, Section
from forensics.report.stack_grid import stack_grid

FEW_LINES, MANY_LINES = 45, 60
"""Lines of the whole report: for a small job, and for one of more than `SMALL_WORLD` ranks, which has more places to be at."""
SMALL_WORLD = 64
_RIVALS = 2
_PLACES = 8
_FRAMES = 5
_CURVES = 3
_OF_NICS = (Granularity.NIC, Granularity.LINK)
"""What the rates of NICs are evidence of."""
_REST = "more: -v"


def most_lines(verdict: Verdict) -> int:
    """Lines the report of this job may have."""
    return FEW_LINES if (verdict.world_size or 0) <= SMALL_WORLD else MANY_LINES


def sections(verdict: Verdict, width: int = outline.WIDTH, curves: RateCurves = NO_CURVES) -> list[Section]:
    """The sections of the first screen in their order, without the empty ones."""
    first = verdict.suspects[0] if verdict.suspects else None
    parts = (
        Section("EVIDENCE", outline.evidence(first) if first else ()),
        outline.last_lines(verdict),
        outline.defects(verdict),
        Section("WHY NOT THE NEXT BEST", tuple(_rivals(verdict))),
        *(Section(f"FAULT {each.fault}", tuple(_other_fault(each))) for each in outline.leading(verdict)[1:]),
        Section("WHERE EVERYONE IS", tuple(_places(verdict, first))),
        stack_grid(verdict),
        outline.critical_path(verdict, width, brief=True),
        *outline.stages(verdict),
        *([rate_lines.section(curves, verdict, width, _CURVES)] if first and first.granularity in _OF_NICS else []),
        Section("GROUPS THAT WAIT", tuple(_groups(verdict))),
        Section("MISSING, AND WOULD DECIDE", tuple(_missing(verdict))),
        Section("NEXT STEPS", outline.numbered(first.next_steps if first else verdict.would_change)),
    )
    return [part for part in parts if part.items]


def shares(wanted: Sequence[int], room: int) -> list[int]:
    """Lines for each part: the short ones whole, the others the rest in equal parts, what is left over to the first."""
    given = [0] * len(wanted)
    for done, place in enumerate(sorted(range(len(wanted)), key=lambda index: wanted[index])):
        given[place] = min(wanted[place], room // (len(wanted) - done))
        room -= given[place]
    for place, wants in enumerate(wanted):
        more = min(room, wants - given[place])
        given[place] += more
        room -= more
    return given


def fitted(items: Sequence[Sequence[str]], most: int) -> list[str]:
    """The lines of the items that fit into `most`, whole items as far as possible, and how many more there are."""
    if sum(map(len, items)) <= most:
        return list(chain.from_iterable(items))
    kept: list[str] = []
    shown = 0
    for lines in items:
        if len(kept) + len(lines) >= most:
            break
        kept += lines
        shown += 1
    if not kept and most > 1:
        kept = list(items[0][: most - 1])
        return [*kept, f"  (cut; {len(items) - 1} {_REST})"]
    return [*kept, f"  (+{len(items) - shown} {_REST})"][:most]


def _places(verdict: Verdict, first: Suspect | None) -> Iterator[Item]:
    """The largest branches of the merged stacks, and in any case those of the suspect; long paths keep both ends."""
    accused = set(first.ranks) if first else set()
    tree = verdict.tree
    best = sorted(range(len(tree)), key=lambda place: (accused.isdisjoint(tree[place].ranks), -len(tree[place].ranks)))
    kept = [replace(tree[place], frames=_ends(tree[place].frames)) for place in sorted(best[:_PLACES])]
    yield from outline.tree(replace(verdict, tree=tuple(kept)), first)
    if len(tree) > len(kept):
        yield Item(f"(+{len(tree) - len(kept)} {_REST})")


def _ends(frames: tuple[str, ...]) -> tuple[str, ...]:
    return frames if len(frames) <= _FRAMES else (frames[0], "...", *frames[2 - _FRAMES :])


def _groups(verdict: Verdict) -> Iterator[Item]:
    """Communicators with members inside an operation."""
    yield from group_rows.items(verdict, (row for row in verdict.groups if row.missing or row.joined))


def _rivals(verdict: Verdict) -> Iterator[Item]:
    """How much the verdict explains, then the hypotheses that explain most beside it, each with what speaks against it."""
    if (margin := why.margin(verdict)) is not None:
        yield Item(margin)
    leading = outline.leading(verdict)
    for suspect in [suspect for suspect in verdict.suspects if suspect not in leading][:_RIVALS]:
        against = next((item.statement for item in suspect.evidence if not item.supports), None)
        yield Item(suspects.verdict_line(suspect) + (f": {against}" if against else ""))
    named = {suspect.fault for suspect in verdict.suspects}
    rivals = [each for each in verdict.assessments if each.cause and each.fault not in named]
    # Rules that find the same of a rank speak with one voice.
    said = dict.fromkeys(f"{why.name(each, 4)}: {_objection(each)}" for each in sorted(rivals, key=lambda each: -each.explains))
    yield from map(Item, islice(said, _RIVALS))


def _objection(each: Assessment) -> str:
    if each.withheld:
        return each.withheld
    if each.contradicted_by:
        return each.contradicted_by[0]
    left = f"; leaves: {each.unexplained[0]}" if each.unexplained else ""
    return f"explains {each.explains} of {each.explains + each.leaves} observations{left}"


def _other_fault(suspect: Suspect) -> Iterator[Item]:
    yield Item(suspects.verdict_line(suspect))
    for item in suspect.evidence[:1]:
        yield Item(item.statement, source=item.source)


def _missing(verdict: Verdict) -> Iterator[Item]:
    """What would turn the verdict, what limits it, what could not be read, what nobody looked at."""
    for text in verdict.would_change if verdict.suspects else ():
        yield Item(text, "-")
    for label in verdict.labels:
        yield Item(label.reason, "-")
    if verdict.warnings:
        first = verdict.warnings[0]
        more = f"; {len(verdict.warnings) - 1} more: -v" if len(verdict.warnings) > 1 else ""
        stated = first.statement if first.statement.startswith("left out") else f"could not be read: {first.statement}"
        yield Item(f"{stated}{more}", "-", first.source)
    if verdict.not_checked:
        yield Item(f"not checked: {coverage.subjects(verdict.not_checked, 4, '-v')}", "-")
