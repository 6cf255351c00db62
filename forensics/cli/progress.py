"""Progress bars on standard error; silent in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

Report = Callable[[int, int, str], None]


@contextmanager
def counting(name: str, *columns: str) -> Iterator[Callable[..., Any]]:
    """Yield what sets `completed`, `total` and `description` of a bar; `columns` are those of rich behind it."""
    if not sys.stderr.isatty():
        yield lambda **_: None
        return
    from rich import progress
    from rich.console import Console

    behind = (getattr(progress, column)() for column in columns)
    shown = (progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), *behind)
    with progress.Progress(*shown, console=Console(stderr=True), transient=True) as bar:
        yield partial(bar.update, bar.add_task(name, total=None))


@contextmanager
def reading() -> Iterator[Report]:
    """Yield a callback `(done, total, path)` for artefacts that are read."""
    with counting("reading", "MofNCompleteColumn") as advance:
        yield lambda done, total, path: advance(completed=done, total=total, description=path[-40:])


@contextmanager
def simulating() -> Iterator[Callable[[int, int], None]]:
    """Yield a callback `(done, total)` for a simulation of three steps and the files that it then writes."""
    with counting("simulating", "TimeElapsedColumn") as advance:
        yield lambda done, total: advance(completed=done, total=total, description="simulating" if total == 3 else "writing")
