"""How much of the machine an unknown input may take: the `--budget` of commands that read evidence."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from forensics.bundle import limits
from forensics.errors import ForensicsError

Text = Annotated[
    str,
    typer.Option(
        "--budget",
        help="What the input may take: bytes=64G (unpacked), members=200000 (files), seconds=600 (a file), memory=0 (any).",
        show_default=False,
        is_eager=True,  # known before a store is asked for the input
    ),
]


@contextmanager
def allowed(text: str) -> Iterator[None]:
    """Read within the budget that `text` asks for."""
    found = limits.parse_budget(text)
    if found.memory:
        _, most = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (found.memory, most))
    try:
        with limits.within(found):
            yield
    except MemoryError as error:
        raise ForensicsError(f"the input needs {limits.exceeded('memory')}") from error
