"""Steps and ordered stages of one rank out of annotated intervals, for every kind of trace."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from forensics.ingest._shared.device_work import DeviceWork, Integers, Intervals, nothing
from forensics.ingest._shared.stage_names import STAGES, bare_name, is_plain, schema_hash, stage_names, stage_of
from forensics.ingest.interface import Batch, Problem

_ORDER = {stage: place for place, stage in enumerate(STAGES)}
OPTIMIZER = "Optimizer.step#"
UNSTAGED = "other"
"""Stage of what lies in no stage."""
WRAPPED = "Parallel.forward"
_MOST_SHARED, _FEWEST_LOOKED_AT = 8, 100_000
MESSAGE = re.compile("send|recv")
"""In the names of calls that are messages from one rank to another."""
# Until 2024 whole microseconds were written, since then nanoseconds: begin and length are rounded each.
_ROUNDED_NS = 2_000
WAKING_NS = 5_000_000
"""A thread that waits for work is woken within a few milliseconds, on a busy host too."""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """One interval of one thread: begin and end in ns, its name, the thread, and an id that device work shares."""

    begin: int
    end: int
    name: str = ""
    thread: str = ""
    link: int | None = None


@dataclass(slots=True)
class Marks:
    """Intervals of one rank; what its device did is known by annotation (`device`, ns by link) or piece by piece (`work`).

    `launches` are moments (ns, sorted) at which the host gave the device work.
    """

    annotations: list[Mark] = field(default_factory=list)
    gradients: Intervals = field(default_factory=Intervals)
    collectives: list[Mark] = field(default_factory=list)
    device: dict[int, int] = field(default_factory=dict)
    work: DeviceWork | None = None
    launches: Integers = field(default_factory=nothing)


@dataclass(frozen=True, slots=True)
class _Span:
    stage: str
    name: str
    begin: int
    end: int
    link: int | None = None


def steps_of(marks: Marks) -> tuple[list[tuple[int, Mark]], str | None]:
    """Steps as (number, interval), and how they were found when no mark says it."""
    named = sorted(mark for mark in marks.annotations if stage_names().is_step(mark.name))
    if named:
        ((thread, _),) = Counter(mark.thread for mark in named).most_common(1)
        found = [
            (_number(mark.name, place), mark) for place, mark in enumerate(mark for mark in named if mark.thread == thread)
        ]
        return list(dict(found).items()), None
    updates = sorted(mark for mark in marks.annotations if mark.name.startswith(OPTIMIZER))
    ends = [mark.end for mark in updates]
    steps = [
        (place, Mark(before, end, "", updates[place + 1].thread))
        for place, (before, end) in enumerate(itertools.pairwise(ends))
    ]
    return steps, "no step marks: a step is from one optimizer update to the next" if steps else None


def _number(name: str, place: int) -> int:
    digits = "".join(char if char.isdigit() else " " for char in name).split()
    return int(digits[-1]) if digits and len(digits[-1]) < 18 else place


def batches(marks: Marks) -> Iterator[Batch | Problem]:
    """Rows of `steps` and `stage_spans`, and what had to be inferred or is not there."""
    steps, inferred = steps_of(marks)
    if inferred:
        yield Problem(inferred)
    if not steps:
        yield Problem("neither step marks nor optimizer updates: steps cannot be separated")
        return
    found, guessed, crowded = _stages(marks, steps)
    if crowded:
        yield Problem(f"steps overlap so much that the stages of {crowded} of them were not read")
    if guessed:
        yield Problem(f"forward or backward of {guessed} steps is not annotated and was read off the autograd engine")
    if not any(spans for _, spans in found):
        yield Problem("no annotation, update or gradient marks the stages: only the length of the steps is known")
    yield Batch("steps", _step_columns(steps))
    columns = _span_columns(found, marks.device)
    if marks.work is not None:
        columns["device_ns"] = marks.work.of_spans(columns["begin_ns"], columns["duration_ns"])
    if columns["step"]:
        yield Batch("stage_spans", columns)
    if marks.work is not None:
        yield from _unstaged(marks.work.outside(columns["begin_ns"], columns["duration_ns"]), steps)


def _stages(marks: Marks, steps: Sequence[tuple[int, Mark]]) -> tuple[list[tuple[int, list[_Span]]], int, int]:
    """The stages of each step, in how many steps some of them had to be inferred, and how many steps were not looked into.

    Steps of a sound trace share few marks. Where thousands of them overlap, all of them together would take the square.
    """
    everything, collectives = sorted(marks.annotations), sorted(marks.collectives)
    begins = [mark.begin for mark in everything]
    found: list[tuple[int, list[_Span]]] = []
    guessed, crowded, left = 0, 0, _MOST_SHARED * (len(everything) + len(collectives)) + _FEWEST_LOOKED_AT
    for number, step in steps:
        first, last = bisect_left(begins, step.begin - _ROUNDED_NS), bisect_right(begins, step.end)
        left -= last - first
        if left < 0:
            crowded += 1
            found.append((number, []))
            continue
        inside = everything[first:last]
        own = [mark for mark in inside if mark.thread == step.thread and not stage_names().is_step(mark.name)]
        spans = _resolved([mark for mark in own if stage_of(mark.name)], step)
        starts = [mark.begin for mark in own]
        if not any(span.stage == "backward" for span in spans):
            waits = _within(collectives, step)
            is_piped = not spans and any(MESSAGE.search(mark.name) for mark in waits)
            more = list(
                _between_messages(step, marks, waits) if is_piped else _from_autograd(spans, step, marks, waits, starts)
            )
            guessed += bool(more)
            spans = sorted([*spans, *more], key=lambda span: span.begin)
        found.append((number, _with_loss(spans, starts)))
    return found, guessed, crowded


def _resolved(marks: Sequence[Mark], step: Mark) -> list[_Span]:
    """Stages without overlap: the outer of two nested ones, unless it wraps an earlier stage, as a closure's does."""
    spans: list[_Span] = []
    outer: list[_Span] = []
    for mark in sorted(marks, key=lambda mark: (mark.begin, -mark.end)):
        stage = stage_of(mark.name)
        span = _Span(stage or "other", mark.name, max(mark.begin, step.begin), min(mark.end, step.end), mark.link)
        outer = [each for each in outer if each.end > span.begin]
        if span.end <= span.begin or _is_rounded_into(mark, step):
            continue
        if not outer:
            outer.append(span)
            spans.append(span)
        elif all(_ORDER[span.stage] < _ORDER[each.stage] for each in outer):
            wrapper = outer[-1]
            if wrapper in spans:
                spans.remove(wrapper)
            # What the wrapper does itself comes after the stages inside it.
            rest = _Span(wrapper.stage, wrapper.name, span.end, wrapper.end, wrapper.link)
            spans = [each for each in spans if not (each.stage == rest.stage and each.end == rest.end)]
            spans += [span, rest] if rest.end > rest.begin else [span]
            outer.append(span)
    return sorted(spans, key=lambda span: span.begin)


def _is_rounded_into(mark: Mark, step: Mark) -> bool:
    """Whether an interval of the step before or after reaches into this one by no more than times are rounded by."""
    is_of_another = mark.begin < step.begin or mark.end > step.end
    return is_of_another and min(mark.end, step.end) - max(mark.begin, step.begin) <= _ROUNDED_NS


def _from_autograd(
    spans: Sequence[_Span], step: Mark, marks: Marks, collectives: Sequence[Mark], starts: Sequence[int]
) -> Iterator[_Span]:
    """Backward after each forward pass, or one in the step; without a forward pass it is what comes before the gradients.

    Where loading data is not marked either, it lasts until the device is given work.
    """
    forward = [span.begin for span in spans if span.stage == "forward"]
    for begin, end in itertools.pairwise([step.begin, *forward, step.end]):
        own = marks.gradients.within(begin, end)
        if own is None:
            continue
        reached = _met(own, collectives, min([end, *(start for start in starts if start >= own[1])]))
        before = max([step.begin, *(span.end for span in spans if span.end <= own[0])])
        if not forward and before < own[0]:
            first = int(np.searchsorted(marks.launches, before))
            loaded = min(int(marks.launches[first]), own[0]) if first < len(marks.launches) else before
            if loaded > before and not any(span.stage == "data" for span in spans):
                yield _Span("data", "data", before, loaded)
                before = loaded
            yield _Span("forward", "forward", before, own[0])
        yield _Span("backward", "backward", own[0], reached)


def _between_messages(step: Mark, marks: Marks, collectives: Sequence[Mark]) -> Iterator[_Span]:
    """Passes of a stage of a pipeline, of which nothing is annotated: between two messages, gradients are a backward pass.

    What stands before and after them there is a forward pass; behind the last message of the step it may be anything.
    """
    messages = [mark for mark in collectives if MESSAGE.search(mark.name)]
    reached = step.begin
    for mark in messages:
        if mark.begin > reached:
            own = marks.gradients.within(reached, mark.begin)
            before, after = own or (mark.begin, mark.begin)
            found = (("forward", reached, before), ("backward", before, after), ("forward", after, mark.begin))
            yield from (_Span(stage, stage, begin, end) for stage, begin, end in found if end > begin)
        reached = max(reached, mark.end)
    if (own := marks.gradients.within(reached, step.end)) is not None:
        yield _Span("backward", "backward", *own)


def _met(own: tuple[int, int], collectives: Sequence[Mark], limit: int) -> int:
    """End of a backward pass: of its last gradient and the collectives that it waits for, not beyond `limit`.

    A thread of gloo's begins them one after the other, the last ones when the gradients are done.
    """
    begin, end = own
    for mark in collectives:
        if begin <= mark.begin <= end + WAKING_NS and mark.begin < limit:
            end = max(end, mark.end)
    return min(end, limit)


def _with_loss(spans: Sequence[_Span], starts: Sequence[int]) -> list[_Span]:
    """The mark of DDP or FSDP ends before the loss: what then leads to the backward pass is forward too."""
    found = list(spans)
    for place, (span, after) in enumerate(itertools.pairwise(spans)):
        is_open = not any(span.end <= start < after.begin for start in starts)
        if span.name.endswith(WRAPPED) and after.stage == "backward" and is_open:
            found[place] = replace(span, name="forward", end=max(span.end, after.begin))
    return found


def _within(marks: Sequence[Mark], step: Mark) -> Sequence[Mark]:
    return marks[bisect_left(marks, Mark(step.begin, 0)) : bisect_right(marks, Mark(step.end, 0))]


def _step_columns(steps: Sequence[tuple[int, Mark]]) -> dict[str, list[Any]]:
    return {
        "step": [number for number, _ in steps],
        "begin_ns": [mark.begin for _, mark in steps],
        "end_ns": [mark.end for _, mark in steps],
        "wall_ns": [mark.end - mark.begin for _, mark in steps],
    }


def _unstaged(work: DeviceWork, steps: Sequence[tuple[int, Mark]]) -> Iterator[Batch]:
    """Time of the device by step for what the host launched in no stage, as graphs and passes that nobody annotated are."""
    marks = sorted(mark for _, mark in steps)
    apart = all(mark.end <= after.begin for mark, after in itertools.pairwise(marks))
    begins, walls = [mark.begin for _, mark in steps], [mark.end - mark.begin for _, mark in steps]
    busy = work.of_spans(begins, walls) if apart else []
    if any(busy):
        count = len(steps)
        yield Batch(
            "stage_spans",
            {
                "step": [number for number, _ in steps], "stage": [UNSTAGED] * count, "begin_ns": begins,
                "duration_ns": walls, "device_ns": busy, "side_channel": [True] * count,
            },
        )  # fmt: skip


def _span_columns(found: Sequence[tuple[int, list[_Span]]], device: dict[int, int]) -> dict[str, list[Any]]:
    names = ("step", "stage", "substage", "order_index", "schema_hash", "substep", "begin_ns", "duration_ns", "device_ns")
    columns: dict[str, list[Any]] = {name: [] for name in names}
    forms = [tuple(bare_name(span.name)[:60] for span in spans) for _, spans in found]
    # Longest first: a step that does not save has the stages of one that does.
    whole_forms = sorted(dict.fromkeys(forms), key=len, reverse=True)
    wholes = {form: next(each for each in whole_forms if _is_part(form, each)) for form in whole_forms}
    for (number, spans), shown in zip(found, forms, strict=True):
        seen: dict[str, int] = {}
        for place, (span, name) in enumerate(zip(spans, shown, strict=True)):
            substep = seen[name] = seen.get(name, -1) + 1
            part = None if is_plain(name, span.stage) else name
            time = device.get(span.link) if span.link is not None else None
            length, schema = span.end - span.begin, schema_hash(wholes[shown])
            row = (number, span.stage, part, place, schema, substep, span.begin, length, time)
            for column, value in zip(names, row, strict=True):
                columns[column].append(value)
    return columns


def _is_part(part: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    rest = iter(whole)
    return all(name in rest for name in part)
