"""`forensics recorder`: the recorder of stages for a job that has not this package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.errors import ExitCode, ForensicsError


def recorder(
    copy: Annotated[Path, typer.Option("--copy", help="File (.py) to write, or an existing folder for forensics_recorder.py.")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write the recorder of training stages as one file: no other package, nothing but the standard library.

    Put it beside the trainer, in the environment of the job: from forensics_recorder import Recorder

    Example: forensics recorder --copy src/
    """
    from forensics.recorder.single_file import NAME, single_file

    path = copy / NAME if copy.is_dir() else copy
    if path.suffix != ".py":
        raise ForensicsError(f"{copy} is neither a folder nor the name of a Python file", ExitCode.USAGE)
    try:
        with path.open("w" if force else "x", encoding="utf-8") as target:
            target.write(single_file())
    except FileExistsError:
        raise ForensicsError(f"{path} exists: --force replaces it", ExitCode.USAGE) from None
    except OSError as error:
        raise ForensicsError(f"cannot write {path}: {error.strerror}", ExitCode.USAGE) from error
    typer.echo(f"wrote {path}; in the trainer: from {path.stem} import Recorder")
