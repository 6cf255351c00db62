"""A verdict as titled sections of items, before any format: what the long text and the Markdown report have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from forensics.model import Evidence, KnownDefect, Suspect, TimelineEntry, Verdict
from forensics.report import (
    clocks,
    coverage,
    frontier,
    gantt,
    group_rows,
    halt_chart,
    ranks,
    rate_lines,
    stack_tree,
    suspects,
    times,
    why,
)
from forensics.report.rates import NO_CURVES, RateCurves
from forensics.report.section import Item, Section
from forensics.report.stack_grid import stack_grid

_LINES = 40
"""Items of a section shown before the rest is counted."""
WIDTH = 100
"""Columns of a report where nobody says how many there are."""
_BESIDE_CHART = 14
_FAULTS = 8
"""Independent faults shown in full."""
_PRODUCTS = {"nccl": "NCCL", "torch": "PyTorch", "driver": "the NVIDIA driver"}


def sections(
    verdict: Verdict,
    all_ranks: bool = False,
    hypotheses: bool = False,
    width: int = WIDTH,
    curves: RateCurves = NO_CURVES,
) -> list[Section]:
    """The sections of the report in their order, without the empty ones; coverage always stands before alternatives.

    `hypotheses` adds what was observed and how every hypothesis was assessed. Charts fit into `width` columns.
    """
    first = verdict.suspects[0] if verdict.suspects else None
    parts = (
        *(_accusation(first, ("EVIDENCE", "DETAILS"), all_ranks) if first else ()),
        last_lines(verdict),
        defects(verdict),
        Section("WHY NOT THE NEXT BEST", tuple(Item(text) for text in (why.margin(verdict),) if text), vital=True),
        Section("CAVEATS", tuple(_caveats(verdict)), vital=True),
        Section("WAITING", tuple(_waiting(verdict, all_ranks))),
        Section("WHERE EVERYONE IS", tuple(tree(verdict, first, all_ranks))),
        stack_grid(verdict, _most(all_ranks)),
        Section("GROUPS", tuple(group_rows.items(verdict, verdict.groups, _most(all_ranks)))),
        critical_path(verdict, width, all_ranks),
        incomplete_graph(verdict, width, all_ranks),
        *stages(verdict, all_ranks),
        rate_lines.section(curves, verdict, width),
        Section("TIMELINE", tuple(_timeline(verdict))),
        Section("CLOCKS OF HOSTS", tuple(clocks.items(verdict.clocks, all_ranks))),
        Section("RULED OUT", tuple(_ruled_out(verdict))),
        Section("COVERAGE", tuple(Item(text, kind) for kind, text in coverage.rows(verdict, _most(all_ranks)))),
        Section("COULD NOT BE READ", tuple(_evidence(verdict.warnings))),
        *(_other_faults(verdict, all_ranks)),
        Section("ALTERNATIVES", tuple(_alternatives(verdict))),
        *(why.sections(verdict, _most(all_ranks)) if hypotheses else ()),
        Section("NEXT STEPS", numbered(first.next_steps if first else ()), vital=True),
        Section("WHAT WOULD CHANGE THIS VERDICT", tuple(Item(text, "-") for text in verdict.would_change)),
    )
    return [_cut(part, all_ranks) for part in parts if part.items]


def _most(all_ranks: bool) -> int | None:
    return None if all_ranks else ranks.MOST_RANGES


def _cut(section: Section, all_ranks: bool) -> Section:
    left = len(section.items) - _LINES
    if all_ranks or left <= 0:
        return section
    return replace(section, items=(*section.items[:_LINES], Item(f"(+{left} more, --all-ranks)")))


def numbered(texts: Iterable[str]) -> tuple[Item, ...]:
    """The texts with numbers from 1."""
    return tuple(Item(text, str(number)) for number, text in enumerate(texts, 1))


def _evidence(evidence: Iterable[Evidence]) -> tuple[Item, ...]:
    return tuple(Item(item.statement, str(number), item.source) for number, item in enumerate(evidence, 1))


def evidence(suspect: Suspect) -> tuple[Item, ...]:
    """What supports the suspicion, numbered, then what contradicts it."""
    against = (Item(item.statement, "against:", item.source) for item in suspect.evidence if not item.supports)
    return (*_evidence(item for item in suspect.evidence if item.supports), *against)


def last_lines(verdict: Verdict) -> Section:
    """How the logs of the first suspect end."""
    whose = ranks.phrase(verdict.suspects[0].ranks, most=4) if verdict.suspects else ""
    items = tuple(Item(line.statement, "|", line.source) for line in verdict.last_lines)
    return Section(f"LAST LOG LINES OF {whose.upper()}", items)


def defects(verdict: Verdict) -> Section:
    """Public defects that were seen beside the suspects, the sign of each with its place."""
    return Section("KNOWN DEFECTS", tuple(chain.from_iterable(map(_defect, verdict.known_defects))), vital=True)


def _defect(each: KnownDefect) -> Iterator[Item]:
    product = _PRODUCTS.get(each.product, each.product)
    machine = f" on {each.machine}" if each.machine else ""
    if each.certain:
        lead = f"{product} {each.versions[0]}{machine} has this defect, and its sign was seen"
    else:
        lead = f"possible, if {product} is {each.since} or newer and older than {each.fixed}{machine}"
    yield Item(f"{lead}: {each.title}. {each.action} {each.links[0]}", each.id)
    sign = each.evidence[0]
    whose = f"{ranks.phrase(each.ranks, most=4)}: " if each.ranks else ""
    yield Item(f"seen: {whose}{sign.statement}", source=sign.source)


def _accusation(suspect: Suspect, titles: tuple[str, str], all_ranks: bool) -> Iterator[Section]:
    yield Section(titles[0], evidence(suspect), vital=True)
    yield Section(titles[1], tuple(Item(text, name) for name, text in suspects.details(suspect, _most(all_ranks))))


def _caveats(verdict: Verdict) -> Iterator[Item]:
    for label in verdict.labels:
        stage = f" (stage {label.stage})" if label.stage else ""
        yield Item(label.reason, f"{suspects.words(label.label)}{stage}:")


def _waiting(verdict: Verdict, all_ranks: bool) -> Iterator[Item]:
    """Only with several groups of victims; a single one stands in the head."""
    for victims in verdict.victims if len(verdict.victims) > 1 else ():
        most = _most(all_ranks)
        whom = ranks.phrase(victims.waits_for, most=most)
        yield Item(f"{ranks.phrase(victims.ranks, most=most)} ({len(set(victims.ranks))}) for {whom}")


def tree(verdict: Verdict, first: Suspect | None, all_ranks: bool = False) -> Iterator[Item]:
    """The merged stacks as a drawn tree, with a mark at the suspect."""
    accused = set(first.ranks) if first else set()
    drawn = zip(verdict.tree, stack_tree.branches(verdict.tree), stack_tree.leaves(verdict.tree), strict=True)
    for line, drawing, leaf in drawn:
        mark = "   <== suspect" if leaf and line.ranks and accused.issuperset(line.ranks) else ""
        yield Item(stack_tree.label(line, verdict.world_size, _most(all_ranks)) + mark, drawing=drawing)


def stages(verdict: Verdict, all_ranks: bool = False) -> Iterator[Section]:
    """The account of each window and the attribution beside it; columns of the heat keep their place."""
    for row in verdict.frontier:
        yield Section("STAGES", tuple(Item(text, marker) for marker, text in frontier.lines(row, all_ranks)))


def critical_path(verdict: Verdict, width: int, all_ranks: bool = False, brief: bool = False) -> Section:
    """The passes of the slowest step over time, and those that were late."""
    path, room = verdict.critical_path, width - _BESIDE_CHART
    rows = () if path is None else gantt.brief_lines(path, room) if brief else gantt.lines(path, room, all_ranks)
    return Section("CRITICAL PATH", tuple(Item(text, marker, drawing=drawing) for marker, text, drawing in rows))


def incomplete_graph(verdict: Verdict, width: int, all_ranks: bool = False) -> Section:
    """The passes of the step in which the pipeline of a suspect stopped."""
    graph = verdict.incomplete_graph
    rows = () if graph is None else halt_chart.lines(graph, width - _BESIDE_CHART, all_ranks)
    return Section("INCOMPLETE GRAPH", tuple(Item(text, marker, drawing=drawing) for marker, text, drawing in rows))


def _timeline(verdict: Verdict) -> Iterator[Item]:
    entries = sorted((*verdict.timeline, *_begin(verdict)), key=lambda entry: entry.time_ns)
    offsets = [times.offset(entry.time_ns, verdict.since) for entry in entries]
    column = max((len(offset) for offset in offsets), default=0)
    for entry, offset in zip(entries, offsets, strict=True):
        host = f"[{entry.host}] " if entry.host else ""
        when = f"{offset.rjust(column)}  {times.utc(entry.time_ns)}" if column else times.utc(entry.time_ns)
        yield Item(host + entry.text, when, entry.source)


def _begin(verdict: Verdict) -> Iterator[TimelineEntry]:
    since = verdict.since
    if since and times.is_realtime(since):
        text = f"T: {times.begins(verdict.outcome)} ({times.uncertainty(since)} on {since.clock})"
        yield TimelineEntry(since.time_ns, None, text, None)


def _ruled_out(verdict: Verdict) -> Iterator[Item]:
    """Rules that the evidence rules out one by one; the others, which say nothing of the job, in one item a reason."""
    same: dict[str, list[str]] = {}
    for outcome in verdict.ruled_out:
        if outcome.status == "ruled_out":
            yield Item(f"{outcome.name}: {outcome.reason}", outcome.rule)
        elif outcome.status == "not_applicable":
            same.setdefault(f"{outcome.reason.partition(' (')[0]}: not evaluated", []).append(outcome.rule)
        elif outcome.status != "fired":
            same.setdefault(outcome.reason, []).append(f"{outcome.rule} {outcome.name}")
    for reason, rules in same.items():
        yield Item(f"{reason}: {', '.join(rules)}")


def _other_faults(verdict: Verdict, all_ranks: bool) -> Iterator[Section]:
    """Independent faults, each with its best suspect and evidence as a block of its own."""
    for suspect in leading(verdict)[1:_FAULTS]:
        fault = f"FAULT {suspect.fault}"
        titles = (f"{fault}  {suspects.verdict_line(suspect)}", f"DETAILS OF {fault}")
        yield from _accusation(suspect, titles, all_ranks)
        yield Section(f"NEXT STEPS FOR {fault}", numbered(suspect.next_steps))


def leading(verdict: Verdict) -> list[Suspect]:
    """The best suspect of each fault, in rank order of the verdict."""
    best: dict[int, Suspect] = {}
    for suspect in verdict.suspects:
        best.setdefault(suspect.fault, suspect)
    return list(best.values())


def _alternatives(verdict: Verdict) -> Iterator[Item]:
    """Other explanations of a fault that already has a better one, each with the evidence for and against it."""
    best = leading(verdict)
    for place, suspect in enumerate(verdict.suspects, 1):
        if any(suspect is each for each in best):
            continue
        of = f" (fault {suspect.fault})" if len(best) > 1 else ""
        yield Item(suspects.verdict_line(suspect) + of, f"#{place}")
        for item in suspect.evidence:
            yield Item(item.statement, "   for:" if item.supports else "   against:", item.source)
