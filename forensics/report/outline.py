"""A verdict as titled sections of items, before any format: what the text and the Markdown report have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from forensics.model import Evidence, FrontierRow, GroupRow, Since, Suspect, TimelineEntry, Verdict
from forensics.report import coverage, frontier, ranks, stack_tree, suspects, times, why
from forensics.report.section import Item, Section

_LINES = 40
"""Items of a section shown before the rest is counted; evidence, caveats and next steps are never cut."""


def sections(verdict: Verdict, all_ranks: bool = False, hypotheses: bool = False) -> list[Section]:
    """The sections of the report in their order, without the empty ones; coverage always stands before alternatives.

    `hypotheses` adds what was observed and how every hypothesis was assessed.
    """
    first = verdict.suspects[0] if verdict.suspects else None
    parts = (
        *(_accusation(first, ("EVIDENCE", "DETAILS"), all_ranks) if first else ()),
        Section("CAVEATS", tuple(_caveats(verdict)), vital=True),
        Section("WAITING", tuple(_waiting(verdict, all_ranks))),
        _cut(Section("WHERE EVERYONE IS", tuple(_tree(verdict, first, all_ranks))), all_ranks),
        _cut(Section("GROUPS", tuple(_groups(verdict, all_ranks))), all_ranks),
        *(_cut(Section("STAGES", tuple(_stages(row, all_ranks))), all_ranks) for row in verdict.frontier),
        _cut(Section("TIMELINE", tuple(_timeline(verdict))), all_ranks),
        Section("RULED OUT", tuple(_ruled_out(verdict))),
        Section("COVERAGE", tuple(Item(text, kind) for kind, text in coverage.rows(verdict, _most(all_ranks)))),
        _cut(Section("COULD NOT BE READ", tuple(_evidence(verdict.warnings))), all_ranks),
        *(_other_faults(verdict, all_ranks)),
        Section("ALTERNATIVES", tuple(_alternatives(verdict))),
        *(why.sections(verdict, _most(all_ranks)) if hypotheses else ()),
        Section("NEXT STEPS", _numbered(first.next_steps if first else ()), vital=True),
        Section("WHAT WOULD CHANGE THIS VERDICT", tuple(Item(text, "-") for text in verdict.would_change)),
    )
    return [part for part in parts if part.items]


def _most(all_ranks: bool) -> int | None:
    return None if all_ranks else ranks.MOST_RANGES


def _cut(section: Section, all_ranks: bool) -> Section:
    left = len(section.items) - _LINES
    if all_ranks or left <= 0:
        return section
    return replace(section, items=(*section.items[:_LINES], Item(f"(+{left} more, --all-ranks)")))


def _numbered(texts: Iterable[str]) -> tuple[Item, ...]:
    return tuple(Item(text, str(number)) for number, text in enumerate(texts, 1))


def _evidence(evidence: Iterable[Evidence]) -> tuple[Item, ...]:
    return tuple(Item(item.statement, str(number), item.source) for number, item in enumerate(evidence, 1))


def _accusation(suspect: Suspect, titles: tuple[str, str], all_ranks: bool) -> Iterator[Section]:
    supporting = _evidence(item for item in suspect.evidence if item.supports)
    against = [Item(item.statement, "against:", item.source) for item in suspect.evidence if not item.supports]
    against = against or [Item("no evidence against it was recorded", "against:")]
    yield Section(titles[0], (*supporting, *against), vital=True)
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


def _tree(verdict: Verdict, first: Suspect | None, all_ranks: bool) -> Iterator[Item]:
    accused = set(first.ranks) if first else set()
    drawn = zip(verdict.tree, stack_tree.branches(verdict.tree), stack_tree.leaves(verdict.tree), strict=True)
    for line, drawing, leaf in drawn:
        mark = "   <== suspect" if leaf and line.ranks and accused.issuperset(line.ranks) else ""
        yield Item(stack_tree.label(line, verdict.world_size, _most(all_ranks)) + mark, drawing=drawing)


def _groups(verdict: Verdict, all_ranks: bool) -> Iterator[Item]:
    """Groups that somebody is missing from come first."""
    for row in sorted(verdict.groups, key=lambda row: not row.missing):
        yield Item(_group(row, _most(all_ranks)), row.communicator)


def _group(row: GroupRow, most: int | None) -> str:
    doing = row.operation or ("no operation" if row.sequence is None else "at")
    sequence = "" if row.sequence is None else f" seq {row.sequence}"
    sizes = f" {row.sizes}" if row.sizes else ""
    sets = (("joined", row.joined), ("missing", row.missing), ("finished", row.finished))
    who = "".join(f"   {name} {len(set(members))} [{ranks.fold(members, most)}]" for name, members in sets if members)
    return f"{doing}{sequence}{sizes}   {len(row.members)} members ({row.membership}){who}"


def _stages(row: FrontierRow, all_ranks: bool) -> Iterator[Item]:
    """The account of one window and the attribution beside it; columns of the heat keep their place."""
    for marker, text in frontier.lines(row, all_ranks):
        yield Item(text, marker)


def _timeline(verdict: Verdict) -> Iterator[Item]:
    entries = sorted((*verdict.timeline, *_stall(verdict.since)), key=lambda entry: entry.time_ns)
    offsets = [times.offset(entry.time_ns, verdict.since) for entry in entries]
    column = max((len(offset) for offset in offsets), default=0)
    for entry, offset in zip(entries, offsets, strict=True):
        host = f"[{entry.host}] " if entry.host else ""
        when = f"{offset.rjust(column)}  {times.utc(entry.time_ns)}" if column else times.utc(entry.time_ns)
        yield Item(host + entry.text, when, entry.source)


def _stall(since: Since | None) -> Iterator[TimelineEntry]:
    if since and times.is_realtime(since):
        bound = f"+-{times.duration(since.bound_ns)} on {since.clock}"
        yield TimelineEntry(since.time_ns, None, f"T: it went wrong ({bound})", None)


def _ruled_out(verdict: Verdict) -> Iterator[Item]:
    """Rules that the evidence rules out one by one; the others, which say nothing of the job, in one item a status."""
    outcomes = [outcome for outcome in verdict.ruled_out if outcome.status != "fired"]
    for outcome in outcomes:
        if outcome.status == "ruled_out":
            yield Item(f"{outcome.name}: {outcome.reason}", outcome.rule)
    for status in sorted({outcome.status for outcome in outcomes} - {"ruled_out"}):
        same = [f"{outcome.rule} {outcome.name} ({outcome.reason})" for outcome in outcomes if outcome.status == status]
        yield Item("; ".join(same), f"{suspects.words(status)}:")


def _other_faults(verdict: Verdict, all_ranks: bool) -> Iterator[Section]:
    """Independent faults, each with its best suspect and evidence as a block of its own."""
    for suspect in _leading(verdict)[1:]:
        fault = f"FAULT {suspect.fault}"
        titles = (f"{fault}  {suspects.verdict_line(suspect)}", f"DETAILS OF {fault}")
        yield from _accusation(suspect, titles, all_ranks)
        yield Section(f"NEXT STEPS FOR {fault}", _numbered(suspect.next_steps))


def _leading(verdict: Verdict) -> list[Suspect]:
    """The best suspect of each fault, in rank order of the verdict."""
    best: dict[int, Suspect] = {}
    for suspect in verdict.suspects:
        best.setdefault(suspect.fault, suspect)
    return list(best.values())


def _alternatives(verdict: Verdict) -> Iterator[Item]:
    """Other explanations of a fault that already has a better one, each with the evidence for and against it."""
    leading = _leading(verdict)
    for place, suspect in enumerate(verdict.suspects, 1):
        if any(suspect is best for best in leading):
            continue
        of = f" (fault {suspect.fault})" if len(leading) > 1 else ""
        yield Item(suspects.verdict_line(suspect) + of, f"#{place}")
        for item in suspect.evidence:
            yield Item(item.statement, "   for:" if item.supports else "   against:", item.source)
