"""Pickles as plain data: dictionaries, lists, tuples, strings and numbers, and nothing that could run code."""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

from forensics.ingest.flight_recorder.plain_pickle import ForbiddenPickle, PlainPickle
from forensics.ingest.interface import Problem

MAX_SALVAGE_BYTES = 64 << 20
_MEMORY_FLOOR = 16 << 20
_MEMORY_PER_BYTE = 28
# Integers beyond 61 bits and tuples have hashes that whoever writes the file can choose. A dump has one tuple an entry.
_MOST_CHOSEN = 8_000
_INTEGERS = re.compile(rb"\x8a[\x09-\xff]|\x8b[\x00-\xff]{3}\x00|[IL]-?\d{18}")
# No dump has byte arrays. CPython 3.11 prints a SystemError when it has no memory for one of 16 MB or more.
_LARGE_ARRAY = re.compile(rb"\x96(?!.{3}\0{5})", re.DOTALL)
_LIMIT = Lock()


def load_pickle(content: bytes) -> tuple[Any, Problem | None]:
    """The value, and what was wrong; a cut or damaged pickle gives the pairs and complete entries before the damage."""
    if _may_collide(content) or _LARGE_ARRAY.search(content):
        return _salvage(content, "")
    try:
        with _bounded_memory(len(content)):
            return _Closed(io.BytesIO(content)).load(), None
    except MemoryError:
        return None, Problem("the pickle asks for more memory than its size warrants; refused", fatal=True)
    except pickle.UnpicklingError as error:
        if isinstance(error, ForbiddenPickle):
            return None, Problem(str(error), fatal=True)
        return _salvage(content, str(error))
    except Exception as error:  # a hostile or damaged pickle can make the C unpickler raise nearly anything
        return _salvage(content, f"{type(error).__name__}: {error}")


class _NoWayOut:
    """Both ways in which a pickle can reach beyond plain data, closed."""

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Refuse: looking anything up is the first step of running it."""
        raise ForbiddenPickle(f"the pickle wants to load {module}.{name}: it is no dump of plain data and was refused")

    def persistent_load(self, pid: Any, /) -> NoReturn:
        """Refuse references to outside objects."""
        raise ForbiddenPickle("the pickle refers to an outside object: it is no dump of plain data and was refused")


class _Closed(_NoWayOut, pickle.Unpickler):
    """The C unpickler, for sound dumps."""


@contextmanager
def _bounded_memory(size: int) -> Iterator[None]:
    """Bound the address space while unpickling: one opcode of five bytes can ask the C unpickler for 64 GiB of memo.

    Linux only, where the limit is enforced; elsewhere the size limit of documents has to do.
    """
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    import resource

    with _LIMIT:
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        used = int(statm.read_text().split()[0]) * resource.getpagesize()
        bound = used + _MEMORY_FLOOR + size * _MEMORY_PER_BYTE
        lowest = min(limit for limit in (bound, soft, hard) if limit != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, (lowest, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _may_collide(content: bytes) -> bool:
    """Whether there may be so many chosen hashes that a dictionary of them takes more than a second for each MB."""
    tuples = sum(map(content.count, (b"\x85", b"\x86", b"\x87", b"\x91"))) + min(content.count(b"t"), content.count(b"("))
    bound: float = _MOST_CHOSEN * max(1.0, len(content) / 1e6) ** 0.5
    return bool(tuples + sum(1 for _ in _INTEGERS.finditer(content)) > bound)


def _salvage(content: bytes, reason: str) -> tuple[Any, Problem | None]:
    """Read in Python to the end or the failure, and keep the complete values on its stack."""
    if len(content) > MAX_SALVAGE_BYTES and reason:
        return None, Problem(f"the pickle is cut or damaged, and too large to be salvaged: {reason}", fatal=True)
    reader = PlainPickle(content)
    try:
        with _bounded_memory(len(content)):
            return reader.load(), None
    except ForbiddenPickle as error:
        return None, Problem(str(error), fatal=True)
    except Exception as error:
        reason = str(error) or reason
    value = _complete_values(reader.levels)
    message = f"the pickle is cut or damaged at byte {reader.at} of {len(content)}"
    if value is None:
        return None, Problem(f"{message}: {reason}", f"byte={reader.at}", fatal=True)
    return value, Problem(f"{message}; kept what is complete", f"byte={reader.at}")


def _complete_values(levels: list[list[Any]]) -> dict[str, Any] | None:
    """The dump as far as it was read: a key on the stack is followed by its value, and complete entries lie open above."""
    found: dict[str, Any] = {}
    for level in levels:
        for key, value in pairwise(level):
            if isinstance(key, str) and key.startswith(("version", "entries", "pg_", "comm_lib", "nccl_")):
                found.setdefault(key, value)
    begun = found.get("entries")
    opened = [item for level in levels for item in level if isinstance(item, dict) and "profiling_name" in item]
    found["entries"] = [*(begun if isinstance(begun, list) else []), *opened]
    return found if found["entries"] or len(found) > 1 else None
