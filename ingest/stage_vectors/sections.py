"""Sections of a stage-vector file: headers, names, and slots as arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from forensics.ingest._shared.stage_names import is_plain, schema_hash, stage_of
from forensics.ingest._shared.values import rank_number, text
from forensics.ingest.interface import Problem
from forensics.recorder import layout

_STEP = np.dtype(
    [
        ("serial", "<u8"),
        ("step", "<i8"),
        ("begin", "<i8"),
        ("wall", "<i8"),
        ("batch", "<i8"),
        ("spans", "<u2"),
        ("flags", "<u2"),
        ("accumulation", "<u4"),
    ]
)
_SPAN = np.dtype(
    [("name", "<u2"), ("substep", "<u2"), ("flags", "<u4"), ("begin", "<i8"), ("duration", "<i8"), ("device", "<i8")]
)
_LONGEST_NS = 86_400_000_000_000
_MOST_SCHEMAS = 64  # that a list is compared with; a job has a few
_MOST_SPANS = 4096
_NOT_TIMED = {
    layout.NO_TORCH: "torch was not imported", layout.NO_CUDA: "CUDA was not initialised",
    layout.CAPTURING: "a CUDA graph was being captured",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Name:
    """One name of the table: its stage (None when no pattern knows it), and whether it says no more than the stage."""

    text: str
    stage: str | None
    is_plain: bool
    side_channel: bool


@dataclass(frozen=True, slots=True)
class Flat:
    """Spans of all steps one after the other: row of the step, the span, its order, schema, side channel.

    `schema` is a code into `hashes`; `home` is the name of the stage in which a side-channel span lies, its own for none.
    """

    row: npt.NDArray[np.intp]
    span: npt.NDArray[Any]
    order: npt.NDArray[np.int64]
    schema: npt.NDArray[np.int32]
    hashes: list[str | None]
    side: npt.NDArray[np.bool_]
    home: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Section:
    """One rank's file. `steps` and `spans` (steps x slots) are in the order of the steps; times in ns."""

    rank: int | None
    world_size: int | None
    local_rank: int | None
    pid: int
    host: str | None
    role: str | None
    device: str | None
    realtime_ns: int
    monotonic_ns: int
    written: int
    counts: tuple[int, int, int, int]
    torn: int
    names: tuple[Name, ...]
    steps: npt.NDArray[Any]
    spans: npt.NDArray[Any]

    def losses(self) -> Iterator[str]:
        """What the recorder or the reading lost, in sentences, and device times that could not be taken."""
        words = (
            "steps were dropped, the disk did not answer",
            "stages lay inside another one and were left out",
            "stages lay outside a step and were left out",
            "stages did not fit into their slot",
        )
        for count, what in zip(self.counts, words, strict=True):
            if count:
                yield f"rank {self.rank}: {count} {what}"
        if self.device in _NOT_TIMED:
            yield f"rank {self.rank}: device times were asked for and none was taken, {_NOT_TIMED[self.device]}"
        if self.torn:
            yield f"rank {self.rank}: {self.torn} slots were half written or are damaged, and left out"

    def flat(self) -> Flat:
        """The spans of all steps; a stage that a step left out does not change its schema, another order does."""
        count = self.steps["spans"].astype(np.intp)
        inside = np.arange(self.spans.shape[1])[None, :] < count[:, None]
        row, place = np.nonzero(inside)
        span = self.spans[row, place]
        flags = np.array([name.side_channel for name in self.names] + [True])
        side = flags[np.minimum(span["name"], len(self.names))]
        order = place.astype(np.int64)
        schema, hashes = self._schemas(row, span, side)
        return Flat(row, span, order, schema, hashes, side, _homes(row, span, side))

    def _schemas(self, row: npt.NDArray[np.intp], span: Any, side: Any) -> tuple[npt.NDArray[np.int32], list[str | None]]:
        """One code a span: steps whose ordered stages are part of the longest list share its hash."""
        keys = span["name"].astype(np.int64) * 65536 + span["substep"]
        bounds = np.searchsorted(row, np.arange(len(self.steps) + 1))
        lists = [tuple(keys[a:b][~side[a:b]].tolist()) for a, b in itertools.pairwise(bounds)]
        longest = sorted(set(lists), key=lambda item: (-len(item), item))
        kept: list[tuple[int, ...]] = []
        codes = {}
        for item in longest:
            home = next((place for place, whole in enumerate(kept[:_MOST_SCHEMAS]) if _is_part(item, whole)), None)
            if home is None:
                kept.append(item)
                home = len(kept) - 1
            codes[item] = home
        of_step = np.array([codes[item] for item in lists], dtype=np.int32)
        return of_step[row], [schema_hash(f"{key >> 16}.{key & 65535}" for key in item) for item in kept]


def _homes(row: npt.NDArray[np.intp], span: Any, side: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Name of the ordered stage of the same step in which each side-channel span begins."""
    homes: npt.NDArray[np.int64] = span["name"].astype(np.int64)
    ordered = np.nonzero(~side)[0]
    starts = np.searchsorted(row[ordered], row[side], side="left")
    for place, first in zip(np.nonzero(side)[0], starts, strict=True):
        for other in ordered[first : first + _MOST_SPANS]:
            if row[other] != row[place]:
                break
            if span["begin"][other] <= span["begin"][place] < span["begin"][other] + span["duration"][other]:
                homes[place] = span["name"][other]
    return homes


def _is_part(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    rest = iter(whole)
    return all(key in rest for key in part)


def sections(content: bytes) -> Iterator[Section | Problem]:
    """Every section of a file; after damage that hides where the next one begins, the rest is left out."""
    place = 0
    while place < len(content):
        if len(content) - place < layout.SLOTS_OFFSET or content[place : place + 8] != layout.MAGIC:
            yield Problem("no (whole) header here; the rest is left out", f"byte={place}", fatal=place == 0)
            return
        fields = layout.HEADER.unpack_from(content, place)
        version, slot, slots = fields[1], fields[5], fields[6]
        most = (slot - layout.STEP.size - layout.TAIL.size) // layout.SPAN.size
        if version != layout.VERSION or not 0 < most <= _MOST_SPANS or layout.slot_bytes(most) != slot:
            yield Problem(f"version {version} with slots of {slot} bytes is not known", f"byte={place}", fatal=place == 0)
            return
        start = place + layout.SLOTS_OFFSET
        there = min(slots, (len(content) - start) // slot)
        yield _section(content, place, fields, np.frombuffer(content, np.uint8, there * slot, start).reshape(there, slot), most)
        place = start + slots * slot


def _section(content: bytes, place: int, fields: tuple[Any, ...], slots: npt.NDArray[np.uint8], most: int) -> Section:
    rank, world, local, pid, size = fields[7:12]
    texts = _texts(content[place + layout.HEADER_BYTES :][: min(size, layout.TEXT_BYTES)])
    table = content[place + layout.NAMES_OFFSET :][: min(fields[-1], layout.NAMES) * layout.NAME_BYTES]
    steps = slots[:, : _STEP.itemsize].copy().view(_STEP).reshape(-1)
    spans = slots[:, _STEP.itemsize : _STEP.itemsize + most * _SPAN.itemsize].copy().view(_SPAN).reshape(-1, most)
    tails = slots[:, -layout.TAIL.size :].copy().view("<u8").reshape(-1)
    used = steps["serial"] > 0
    sound = used & (tails == steps["serial"]) & (steps["wall"] >= 0) & (steps["wall"] < _LONGEST_NS) & (steps["spans"] <= most)
    listed = np.arange(most)[None, :] < steps["spans"][:, None]
    sane = (spans["duration"] >= 0) & (spans["duration"] < _LONGEST_NS)
    sound &= (sane | ~listed).all(axis=1)
    order = np.argsort(steps["serial"][sound], kind="stable")
    return Section(
        rank=rank_number(rank),
        world_size=world if world > 0 else None,
        local_rank=rank_number(local),
        pid=pid,
        host=text(texts.get("host")),
        role=text(texts.get("role")),
        device=text(texts.get("device")),
        realtime_ns=fields[12],
        monotonic_ns=fields[13],
        written=fields[14],
        counts=(fields[15], *fields[16:19]),
        torn=int((used & ~sound).sum()),
        names=tuple(_name(entry) for entry in layout.NAME.iter_unpack(table)),
        steps=steps[sound][order],
        spans=spans[sound][order],
    )


def _name(entry: tuple[int, int, bytes]) -> Name:
    flags, size, raw = entry
    name = raw[: min(size, len(raw))].decode("utf-8", "replace")
    stage = stage_of(name)
    return Name(name, stage or "other", bool(stage) and is_plain(name, stage or ""), bool(flags & layout.SIDE_CHANNEL))


def _texts(content: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        return {}
    return found if isinstance(found, dict) else {}
