"""`forensics merge`: one bundle of several that were collected by hand, host by host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli import inputs
from forensics.cli.whole_job import tell
from forensics.errors import ExitCode, ForensicsError


def merge(
    paths: Annotated[
        list[Path], typer.Argument(help="Bundles of single hosts: tar files or directories.", callback=inputs.copied)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="Bundle to write: .tar, .tar.gz or .tar.zst.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing bundle.")] = False,
) -> None:
    """Make one bundle of the bundles of several hosts; what contradicts is left out and named.

    A rank is taken from the bundle that saw its process. Exit codes: 0 written, 2 usage, 3 an input is no bundle.

    Example: forensics merge node1.tar node2.tar -o job.tar && forensics diagnose job.tar
    """
    from forensics.collect.cluster.session import merge_bundles

    if absent := [str(path) for path in paths if not path.exists()]:
        raise ForensicsError(f"{', '.join(absent)}: not found", ExitCode.USAGE)
    tell(merge_bundles(paths, output, force=force))
