"""Evidence in an object store or on a web server (`s3://bucket/incident/`) is copied here before it is read."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any

import typer

from forensics.bundle import limits
from forensics.cli import budget
from forensics.errors import ForensicsError

# A path keeps one slash of the two.
_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):/+(?P<rest>.+)", re.DOTALL)
_AT_ONCE = 16
"""Files that are copied side by side: a store answers each request after tens of milliseconds."""
_PIECE = 1 << 20


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
