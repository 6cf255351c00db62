"""Frames and call paths, each stored once under a content hash so that artefacts of all ranks agree on the number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from forensics.frame_form import function_name, is_native, is_upside_down
from forensics.ingest._shared.packed import pack
from forensics.ingest._shared.values import positive
from forensics.ingest.interface import Batch

Frame = tuple[str, str | None, int | None]
"""Function name, file and line, as the sampler wrote them."""

PEER_ARGUMENTS = ("dst", "src")
_MESSAGES = frozenset({"send", "isend", "recv", "irecv"})
_LINE_LIMIT = 1 << 31
MAX_DEPTH = 10_000
_USUAL_DEPTH = 200


@lru_cache(maxsize=1 << 17)
def frame_number(name: str, filename: str | None, line: int | None) -> int:
    """Signed 64-bit content hash of one frame."""
    key = f"{name}\0{filename or ''}\0{'' if line is None else line}"
    return _number(key.encode("utf-8", "replace"))


def path_number(frames: Sequence[int]) -> int:
    """Signed 64-bit content hash of a call path, given its frames innermost first."""
    return _number(b"".join(frame.to_bytes(8, "little", signed=True) for frame in frames))


def _number(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=8).digest(), "little", signed=True)


def read_frame(frame: Any) -> Frame | None:
    """A frame of Flight Recorder or py-spy (an object with name, filename, line); None when it has no name."""
    if not isinstance(frame, dict) or not isinstance(name := frame.get("name"), str):
        return None
    filename = frame.get("filename")
    line = positive(frame.get("line"))
    return name, filename if isinstance(filename, str) else None, line if line and line < _LINE_LIMIT else None


def innermost_first(frames: Sequence[Frame]) -> Sequence[Frame]:
    """The frames in the order of a case, whichever end the sampler began with."""
    return frames[::-1] if is_upside_down(frames) else frames


def is_entry(frames: Sequence[Frame]) -> bool:
    """Whether a thread (innermost frame first) runs the program itself: its outermost Python frame is a module's body."""
    outermost = next((frame for frame in reversed(frames) if not is_native(*frame)), None)
    return outermost is not None and function_name(outermost[0]) in ("<module>", "_run_module_as_main")


def names_peer(frame: Frame) -> bool:
    """Whether a frame is a send or receive of torch, whose arguments `dst` and `src` are ranks of the whole job."""
    name, filename, _ = frame
    return function_name(name) in _MESSAGES and (filename or "").endswith("distributed/distributed_c10d.py")


@dataclass(frozen=True, slots=True)
class CallPath:
    """A call path, innermost frame first, with its number and those of its frames."""

    number: int
    numbers: tuple[int, ...]
    frames: tuple[Frame, ...]


def _numbered(frames: tuple[Frame, ...]) -> CallPath:
    numbers = tuple(frame_number(*frame) for frame in frames)
    return CallPath(path_number(numbers), numbers, frames)


# Ranks of one job are in the same places.
_numbered_before = lru_cache(maxsize=1 << 12)(_numbered)


def call_path(frames: Sequence[Frame | None]) -> CallPath | None:
    """The call path of these frames (innermost first), None when there are none."""
    known = tuple([frame for frame in frames[:MAX_DEPTH] if frame is not None])
    if not known:
        return None
    return (_numbered_before if len(known) <= _USUAL_DEPTH else _numbered)(known)


class FrameTable:
    """Collects the frames and call paths of one artefact."""

    def __init__(self) -> None:
        self._paths: dict[int, CallPath] = {}

    def call_path(self, frames: Sequence[Frame | None]) -> int | None:
        """The number of a call path (innermost frame first), None when it has no frames."""
        return self.add(call_path(frames))

    def add(self, path: CallPath | None) -> int | None:
        """The number of a call path, None when there is none."""
        if path is None:
            return None
        self._paths.setdefault(path.number, path)
        return path.number

    def batches(self) -> Iterator[Batch]:
        """What was collected, for the tables `frames` and `call_paths`."""
        if self._paths:
            yield from _packed(_Collected(tuple(self._paths), tuple(self._paths.values())))


@dataclass(frozen=True, slots=True)
class _Collected:
    """Call paths of one artefact, the same as any with these numbers."""

    numbers: tuple[int, ...]
    paths: tuple[CallPath, ...] = field(compare=False)


# Dumps of one job come one after the other, and their ranks issue their calls from the same places.
@lru_cache(maxsize=4)
def _packed(collected: _Collected) -> Sequence[Batch]:
    """The rows of frames and call paths, each with its number."""
    frames = {number: frame for path in collected.paths for number, frame in zip(path.numbers, path.frames, strict=True)}
    names, files, lines = zip(*frames.values(), strict=True)
    rows = [(path.number, depth, frame) for path in collected.paths for depth, frame in enumerate(path.numbers)]
    columns = zip(("call_path", "depth", "frame"), zip(*rows, strict=True), strict=True)
    return (
        Batch(
            "frames",
            {
                "frame": pack(list(frames), "BIGINT"),
                "name": pack(names, "VARCHAR"),
                "filename": pack(files, "VARCHAR"),
                "line": pack(lines, "BIGINT"),
            },
        ),
        Batch("call_paths", {name: pack(values, "BIGINT") for name, values in columns}),
    )
