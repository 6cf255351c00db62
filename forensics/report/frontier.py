"""Windows of recorded stages: as the `frontier` of the JSON document, and as lines of a report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from forensics.model import FrontierRow, LossRow
from forensics.report import ranks, times

_SHADES = " .:-=+*#%@"
_MOST_ROWS = 16
_BAR = 30


def document(rows: tuple[FrontierRow, ...]) -> dict[str, Any] | None:
    """`{"windows": [...]}` of the contract (docs/verdict.md), None when no stages were recorded."""
    return {"windows": [_window(row) for row in rows]} if rows else None


def _window(row: FrontierRow) -> dict[str, Any]:
    fields = asdict(row)
    fields["gains_by_baseline"] = {name: list(values) for name, values in row.gains_by_baseline}
    fields["parts"] = [{"stage": stage, "substage": part, "advance_ns": advance} for stage, part, advance in row.parts]
    fields["labels"] = [{"label": label, "stage": stage, "reason": reason} for label, stage, reason in row.labels]
    return fields


def lines(row: FrontierRow, all_ranks: bool = False) -> Iterator[tuple[str, str]]:
    """(marker, text) of each line: the account, what it is good for, the attribution, the heat of ranks and stages."""
    yield from account(row, all_ranks)
    if not _goes_on(row):
        yield from _heat(row, all_ranks)


def account(row: FrontierRow, all_ranks: bool = False) -> Iterator[tuple[str, str]]:
    """The same lines without the heat, for reports that draw it."""
    steps = f"steps {row.first_step}-{row.last_step} ({row.steps})"
    yield (
        "",
        f"{row.group}: {ranks.phrase(row.ranks, most=None if all_ranks else ranks.MOST_RANGES)}, {steps}, from {row.source}",
    )
    yield "ACCOUNT", f"exposed time {times.duration(row.exposed_ns)}, exactly the sum of:"
    for place, stage in enumerate(row.stages):
        yield stage, _account(row, place)
        own = [(part, advance) for of, part, advance in row.parts if of == stage]
        if len(own) > 1:
            yield from (("", f"{_part(row, advance)}  {part}") for part, advance in own)
    if row.routing_set:
        yield "check first", ", ".join(row.routing_set)
    for label, where, reason in row.labels[1:]:
        yield "label", f"{label}{f' ({where})' if where else ''}: {reason}"
    if not _goes_on(row):
        yield "ATTRIBUTION", _attribution(row)
        yield from (("", _loss(loss)) for loss in row.attribution.losses)


def _goes_on(row: FrontierRow) -> bool:
    """Whether steps are longer from one amid the window on: those since then follow, with the attribution."""
    onset = row.attribution.onset_step
    return onset is not None and row.first_step < onset <= row.last_step


def _account(row: FrontierRow, place: int) -> str:
    advance = times.duration(row.advances_ns[place] // max(row.steps, 1))
    if row.shares is None:
        return f"{advance} a step"
    share = row.shares[place]
    bar = "#" * round(share * _BAR)
    return f"{share:6.1%}  {advance} a step  gain {row.gains[place]:.1%}  {bar}".rstrip()


def _part(row: FrontierRow, advance_ns: int) -> str:
    share = f"{advance_ns / row.exposed_ns:6.1%}  " if row.shares is not None else ""
    return f"{share}{times.duration(advance_ns // max(row.steps, 1))} a step"


def _attribution(row: FrontierRow) -> str:
    found = row.attribution
    if found.reason:
        return f"none: {found.reason}"
    meet = f"cut where ranks meet, at the end of {found.meet_in} ({found.found_by}), {times.duration(found.step_ns)} a step"
    onset = f"; steps are longer since step {found.onset_step}" if found.onset_step is not None else ""
    return f"{meet}{onset}" + ("" if found.losses else "; no stage cost the group a material part of its time")


def _loss(loss: LossRow) -> str:
    who = ranks.phrase(loss.ranks, most=4) if loss.ranks else "no single rank"
    stage = "every stage" if loss.stage == "unknown" else loss.stage
    part = f"{stage} ({loss.substage})" if loss.substage else stage
    much = f"{loss.share:.1%} of the time, {times.duration(loss.lost_ns)} recoverable"
    return f"{part} on {who}: {much}, {loss.affected_steps} steps ({loss.pattern}), against {loss.compared_with}"


def _heat(row: FrontierRow, all_ranks: bool) -> Iterator[tuple[str, str]]:
    """Ranks by stages, the excess over their peers as a shade; the hottest ranks first chosen, then in rank order."""
    hottest = max((value for values in row.excess_ns for value in values), default=0)
    if hottest <= 0 or len(row.ranks) < 2:
        return
    width = max(8, *map(len, row.stages))
    most = len(row.ranks) if all_ranks else _MOST_ROWS
    chosen = sorted(sorted(range(len(row.ranks)), key=lambda i: (-max(row.excess_ns[i]), i))[:most])
    yield "HEAT", "milliseconds a step above the peers, by rank and stage"
    yield "ms", " ".join(stage.rjust(width) for stage in row.stages)
    for place in chosen:
        yield f"rank {row.ranks[place]}", " ".join(_cell(value, hottest).rjust(width) for value in row.excess_ns[place])
    if len(chosen) < len(row.ranks):
        yield "", f"(+{len(row.ranks) - len(chosen)} cooler ranks, --all-ranks)"


def _cell(value: int, hottest: int) -> str:
    shade = _SHADES[min(len(_SHADES) - 1, len(_SHADES) * value // hottest)]
    return f"{value / 1e6:.1f} {shade}" if 50 * value >= hottest else f". {shade}"
