"""What was looked at: present, partial, absent with the reason, and what nobody looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from forensics.model import CoverageRow, Verdict
from forensics.report import ranks


def rows(verdict: Verdict, most: int | None) -> Iterator[tuple[str, str]]:
    """One (kind, text) for each kind of evidence, then the things not checked; never empty."""
    for row in verdict.coverage:
        yield row.kind, _row(row, most)
    if not verdict.coverage:
        yield "", "the evidence does not say what was collected; nothing that is missing here is known to be fine"
    for text in verdict.not_checked:
        yield "NOT CHECKED:", text


def _row(row: CoverageRow, most: int | None) -> str:
    total = len(row.present) + len(row.partial) + len(row.absent)
    parts = [f"{len(row.present)}/{total} {row.scope}s"]
    if row.partial:
        parts.append(f"partial [{subjects(row.partial, most)}]")
    by_reason: defaultdict[str, list[str]] = defaultdict(list)
    for subject, reason in row.absent:
        by_reason[reason].append(subject)
    parts += [f"absent [{subjects(names, most)}] {reason}" for reason, names in by_reason.items()]
    return "; ".join(parts)


def subjects(names: Sequence[str], most: int | None, rest: str = "--all-ranks") -> str:
    """Ranks folded into ranges; other names listed, at most `most` of them, and the option that shows the rest."""
    if all(name.isascii() and name.isdigit() for name in names):
        return ranks.fold((int(name) for name in names), most)
    left = 0 if most is None else max(len(names) - most, 0)
    return ", ".join(names[: len(names) - left]) + (f" (+{left} more, {rest})" if left else "")
