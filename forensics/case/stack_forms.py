"""Stack captures of a process in the form in which they are compared, and which of several forms of a moment is richest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from forensics.case.database import Connection
from forensics.case.moments import Taken
from forensics.frame_form import PlainFrame, is_native, plain_frame

Path = tuple[PlainFrame, ...]


@dataclass(frozen=True, slots=True)
class ThreadForm:
    """One thread of a capture; `active` and `owns_gil` are null where the sampler does not tell."""

    is_main: bool
    number: int | None
    name: str | None
    active: bool | None
    owns_gil: bool | None
    path: Path

    def is_same_thread(self, other: ThreadForm) -> bool:
        """By role, by number, else by title; threads without either cannot be distinguished."""
        if self.is_main or other.is_main:
            return self.is_main and other.is_main
        if self.number is not None and other.number is not None:
            return self.number == other.number
        return self.name is not None and self.name == other.name

    def agrees(self, other: ThreadForm) -> bool:
        """Whether both show the thread at the same place, in the same state as far as both tell."""
        flags = ((self.active, other.active), (self.owns_gil, other.owns_gil))
        return self.path == other.path and all(one is None or two is None or one == two for one, two in flags)


@dataclass(frozen=True, slots=True)
class StackCapture:
    """One process in one dump of one source; `dump` is its number there, `detail` how much it tells."""

    rank: int
    process: tuple[bool, int | None]
    source_id: int
    dump: int
    path: str
    sha256: str
    taken: Taken
    threads: tuple[ThreadForm, ...] = ()
    detail: tuple[int, ...] = ()
    clock_s: int | None = None
    timer_s: int | None = None

    @property
    def place(self) -> Path | None:
        """Where the main thread is."""
        return next((thread.path for thread in self.threads if thread.is_main), None)

    @property
    def functions(self) -> frozenset[tuple[str, str]]:
        """Functions that the main thread is in, with their files; not those of Python's own start."""
        return frozenset((function, file) for function, file, _ in self.place or () if not file.startswith("<"))

    @property
    def richness(self) -> tuple[object, ...]:
        """Sort key, richest first; equally rich ones by content, so that names of files decide nothing."""
        return (*(-number for number in self.detail), self.sha256, self.dump, self.path)

    def agrees(self, other: StackCapture) -> bool:
        """Whether everything that both show is the same, and something is."""
        pairs = [(one, two) for one in self.threads for two in other.threads if one.is_same_thread(two)]
        return bool(pairs) and all(one.agrees(two) for one, two in pairs)


_THREADS = """
SELECT k.source_id, k.sample, coalesce(k.is_child, false), k.pid, coalesce(k.is_main, false), k.thread, k.thread_name,
       k.active, k.owns_gil, k.call_path
FROM stacks k WHERE k.rank IN (SELECT unnest($ranks::INTEGER[])) ORDER BY ALL
"""
_FRAMES = """
SELECT p.call_path, f.name, f.filename, f.line
FROM (SELECT DISTINCT call_path, depth, frame FROM call_paths
      WHERE call_path IN (SELECT call_path FROM stacks WHERE rank IN (SELECT unnest($ranks::INTEGER[])))) p
JOIN (SELECT DISTINCT frame, name, filename, line FROM frames) f USING (frame)
ORDER BY p.call_path, p.depth
"""

Key = tuple[int, int, bool, int | None]
"""Source, dump in it, whether it is of a child, pid."""
_Frame = tuple[str, str | None, int | None]


def forms(connection: Connection, ranks: Iterable[int]) -> Mapping[Key, tuple[tuple[ThreadForm, ...], tuple[int, ...]]]:
    """Threads and detail of each capture of some ranks."""
    chosen = {"ranks": sorted(ranks)}
    paths: dict[int, list[_Frame]] = defaultdict(list)
    for call_path, *frame in connection.execute(_FRAMES, chosen).fetchall():
        paths[call_path].append((frame[0], frame[1], frame[2]))
    plain = {call_path: _plain(frames) for call_path, frames in paths.items()}
    found: dict[Key, list[tuple[ThreadForm, int | None]]] = defaultdict(list)
    rows = connection.execute(_THREADS, chosen).fetchall()
    for source, sample, is_child, pid, is_main, number, name, active, gil, call_path in rows:
        thread = ThreadForm(is_main, number, name, active, gil, plain.get(call_path, ()))
        found[source, sample or 0, is_child, pid].append((thread, call_path))
    return {key: (tuple(thread for thread, _ in rows), _detail(rows, paths)) for key, rows in found.items()}


def _plain(frames: Iterable[_Frame]) -> Path:
    return tuple(plain_frame(*frame) for frame in frames if not is_native(*frame))


def _detail(rows: Iterable[tuple[ThreadForm, int | None]], paths: Mapping[int, list[_Frame]]) -> tuple[int, ...]:
    """Main thread, its Python frames, threads, whole paths, states, whole names, native frames, in this order."""
    listed = list(rows)
    main = max((len(thread.path) for thread, _ in listed if thread.is_main), default=-1)
    frames = [frame for _, call_path in listed for frame in paths.get(call_path or 0, ())]
    absolute = sum((filename or "").startswith("/") and not is_native(name, filename, line) for name, filename, line in frames)
    states = sum(thread.active is not None for thread, _ in listed)
    native = sum(is_native(*frame) for frame in frames)
    qualified = sum("." in name and not is_native(name, filename, line) for name, filename, line in frames)
    return main, sum(bool(thread.path) for thread, _ in listed), absolute, states, qualified, native
