"""Evidence that is no local file: standard input, and what lies in an object store or on a web server (`s3://bucket/incident/`)."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO

import typer

from forensics.bundle import limits
from forensics.cli import budget
from forensics.errors import ExitCode, ForensicsError

# A path keeps one slash of the two.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<rest>.+)", re.DOTALL)
_AT_ONCE = 16
"""Files that are copied side by side: a store answers each request after tens of milliseconds."""
_PIECE = 1 << 20
_STANDARD_INPUT = Path("-")
_NAME = "stdin.log"


def copied(context: typer.Context, paths: list[Path]) -> list[Path]:
    """The paths of an argument, URLs among them replaced by local copies that last as long as the command.

    Raises ForensicsError where a URL cannot be read or holds more than the budget allows.
    """
    return paths if context.resilient_parsing or not paths else [_local(context, path) for path in paths]


def copied_one(context: typer.Context, path: Path | None) -> Path | None:
    """The same for an argument or option of one path."""
    return path if context.resilient_parsing or path is None else _local(context, path)


def _local(context: typer.Context, path: Path) -> Path:
    parts = _URL.fullmatch(str(path))
    if parts is None or path.exists():
        return path
    if parts["scheme"] == "file":
        return Path("/", parts["rest"])
    folder = Path(context.with_resource(tempfile.TemporaryDirectory(prefix="forensics-")))
    url = f"{parts['scheme']}://{parts['rest']}"
    try:
        with budget.allowed(context.params.get("limit") or ""):
            return _copy(url, folder)
    except ForensicsError:
        raise
    except ImportError as error:
        needed = f"{error.msg}; pip install 'forensics[stores]', and the package of the store (s3fs, gcsfs, adlfs, ...)"
        raise ForensicsError(f"{url}: {needed}") from error
    except Exception as error:  # each store has errors of its own
        raise ForensicsError(f"{url}: {type(error).__name__}: {error}") from error


def _copy(url: str, folder: Path) -> Path:
    """Copy a file, or all files below a folder, and return where the copy lies."""
    from fsspec.core import url_to_fs

    store, root = url_to_fs(url)
    name = PurePosixPath(root).name or "evidence"
    found = {root: store.info(root)} if store.isfile(root) else store.find(root, detail=True)
    if not found:
        raise ForensicsError(f"{url}: nothing is there")
    _check([each.get("size") or 0 for each in found.values()])
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda path: _one(store, path, _below(folder / name, path, root)), found))
    return folder / name


def _below(folder: Path, path: str, root: str) -> Path:
    """Where a file lies in the copy; the names are the store's, and none may lead out of it."""
    parts = PurePosixPath(path.removeprefix(root)).parts
    kept = [part for part in parts if part not in ("/", "..")]
    return folder.joinpath(*kept)


def _check(sizes: Sequence[int]) -> None:
    """Raise where files of these sizes are more, or larger together, than the budget."""
    if len(sizes) > limits.budget().members:
        raise ForensicsError(limits.exceeded("members"))
    if sum(sizes) > limits.budget().bytes:
        raise ForensicsError(limits.exceeded("bytes"))


def _one(store: Any, path: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with store.open(path, "rb") as source, target.open("wb") as written:
        shutil.copyfileobj(source, written, _PIECE)


@contextmanager
def with_standard_input(paths: Sequence[Path]) -> Iterator[tuple[list[Path], Mapping[Path, str]]]:
    """The paths, and the names of those that have none: what stands on standard input, where one of the paths is `-`.

    It lies in a file without a name, which is gone when the process ends, however it ends.
    """
    if _STANDARD_INPUT not in paths:
        yield list(paths), {}
        return
    if sys.stdin.isatty():
        raise ForensicsError("nothing is piped in: `kubectl logs POD | forensics diagnose -`", ExitCode.USAGE)
    with tempfile.TemporaryFile() as target:
        _save(sys.stdin.buffer, target)
        saved = Path(f"/dev/fd/{target.fileno()}")
        yield [*dict.fromkeys(saved if path == _STANDARD_INPUT else path for path in paths)], {saved: _NAME}


def _save(source: BinaryIO, target: IO[bytes]) -> None:
    left = limits.budget().bytes
    while left > 0 and (piece := source.read(min(_PIECE, left))):
        target.write(piece)
        left -= len(piece)
    if left <= 0 and source.read(1):
        raise ForensicsError(f"standard input: {limits.exceeded('bytes')}")
    target.flush()
    if target.tell() == 0:
        raise ForensicsError("standard input is empty")
