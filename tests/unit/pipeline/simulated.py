"""Cases of the dumps that small simulated jobs leave behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.simulation import Simulation


@contextmanager
def case_of(
    made: Simulation, folder: Path, *, ring: int = 2000, timing: bool | None = None, missing: str = "",
    sources: tuple[str, ...] = ("recorder",),
) -> Iterator[DuckDBPyConnection]:  # fmt: skip
    """The dumps of all ranks but the missing ones; `timing` says whether they have the time inside calls."""
    only = losses.drawn(made.job.parallel.world, made.random("losses"), only=sources, missing=missing)
    given = {} if timing is None else {"timing": timing}
    bundle.write(made, bundle.options_of(made, ring=ring, **given), only, folder / "bundle.tar", replace=True)
    with open_case([folder / "bundle.tar"]) as connection:
        yield connection


@contextmanager
def traced_case_of(made: Simulation, folder: Path, steps: int) -> Iterator[DuckDBPyConnection]:
    """A case of traces alone: of up to so many of the newest steps, of all ranks."""
    lost = losses.drawn(made.job.parallel.world, made.random("losses"), only=("kineto",))
    bundle.write(made, bundle.options_of(made, traced_steps=steps), lost, folder / "bundle.tar")
    with open_case([folder / "bundle.tar"]) as connection:
        yield connection
