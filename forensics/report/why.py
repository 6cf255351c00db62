"""What was observed and how each hypothesis was assessed, also those that accuse nobody: the parts of `--why`."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Assessment, Verdict
from forensics.report import ranks, suspects
from forensics.report.section import Item, Section


def sections(verdict: Verdict, most: int | None) -> tuple[Section, ...]:
    """The symptoms, then every hypothesis with what it explains, what speaks against it and why it was withheld."""
    observed = tuple(Item(symptom.text, symptom.kind, symptom.source) for symptom in verdict.symptoms)
    return (
        Section("OBSERVED", observed or (Item("nothing that a sound job would not show"),)),
        Section("HYPOTHESES", tuple(item for each in verdict.assessments for item in _items(each, most))),
    )


def margin(verdict: Verdict) -> str | None:
    """How much the verdict explains against the next best hypothesis; None without a suspect or anything observed."""
    admitted = [each for each in verdict.assessments if each.fault is not None]
    if not admitted or not admitted[0].explains + admitted[0].leaves:
        return None
    first, rest = admitted[0], [each for each in verdict.assessments if each is not admitted[0] and each.cause]
    own = f"explains {first.explains} of {first.explains + first.leaves} observations"
    best = max(rest, key=lambda each: each.explains, default=None)
    return f"{own}; next best explains {best.explains} ({name(best, 4)})" if best else f"{own}; nothing else explains any"


def name(each: Assessment, most: int | None) -> str:
    """A hypothesis in a few words: `rank 3: dataloader stall`."""
    if each.cause is None:
        return "the job is sound"
    whom = ranks.phrase(each.ranks, most=most) if each.ranks else "the whole job"
    return f"{whom}: {suspects.words(each.cause)}"


def _items(each: Assessment, most: int | None) -> Iterator[Item]:
    place = f"fault {each.fault}" if each.fault is not None else "withheld" if each.withheld else "kept"
    rules = f" ({', '.join(each.rules)})" if each.rules else ""
    of = f"explains {each.explains} of {each.explains + each.leaves} observations"
    families = f", by {', '.join(each.families)}" if each.families else ""
    yield Item(f"{name(each, most)}{rules}: {of}{families}", place)
    for text in each.contradicted_by:
        yield Item(text, "  against:")
    for text in each.unexplained:
        yield Item(text, "  leaves:")
    if each.withheld:
        yield Item(each.withheld, "  because:")
