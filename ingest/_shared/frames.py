"""Frames and call paths, each stored once under a content hash so that artefacts of all ranks agree on the number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def _numbered(frames: tuple[Frame, ...]) -> tuple[int, tuple[int, ...]]:
    """The number of a call path, and those of its frames."""
    numbers = tuple(frame_number(*frame) for frame in frames)
    return path_number(numbers), numbers


# Ranks of one job are in the same places.
_numbered_before = lru_cache(maxsize=1 << 12)(_numbered)


class FrameTable:
    """Collects the frames and call paths of one artefact."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        self._paths: dict[int, tuple[int, ...]] = {}

    def call_path(self, frames: Sequence[Frame | None]) -> int | None:
        """The number of a call path (innermost frame first), None when it has no frames."""
        known = tuple([frame for frame in frames[:MAX_DEPTH] if frame is not None])
        if not known:
            return None
        path, numbers = (_numbered_before if len(known) <= _USUAL_DEPTH else _numbered)(known)
        if path not in self._paths:
            self._frames.update(zip(numbers, known, strict=True))
            self._paths[path] = numbers
        return path

    def batches(self) -> Iterator[Batch]:
        """What was collected, for the tables `frames` and `call_paths`."""
        if self._frames:
            yield from _packed(tuple(self._frames.items()), tuple(self._paths.items()))


# Dumps of one job come one after the other, and their ranks issue their calls from the same places.
@lru_cache(maxsize=4)
def _packed(frames: Sequence[tuple[int, Frame]], paths: Sequence[tuple[int, tuple[int, ...]]]) -> Sequence[Batch]:
    """The rows of frames and call paths, each with its number."""
    names, files, lines = zip(*(frame for _, frame in frames), strict=True)
    numbers = [number for number, _ in frames]
    rows = [(path, depth, frame) for path, inside in paths for depth, frame in enumerate(inside)]
    columns = zip(("call_path", "depth", "frame"), zip(*rows, strict=True), strict=True)
    return (
        Batch(
            "frames",
            {
                "frame": pack(numbers, "BIGINT"),
                "name": pack(names, "VARCHAR"),
                "filename": pack(files, "VARCHAR"),
                "line": pack(lines, "BIGINT"),
            },
        ),
        Batch("call_paths", {name: pack(values, "BIGINT") for name, values in columns}),
    )
