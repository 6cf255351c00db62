"""A whole bundle without secrets and names: every artefact is rewritten into a folder beside the output, then packed.

What the input says of itself is kept true: `collectors.jsonl` gets the new paths, sizes and digests, `redactions.json` every
replacement by kind and file, `SHA256SUMS` is made anew. Memory is bounded by the largest binary artefact, for text by some MiB.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, cast

import orjson
import zstandard

from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import BUNDLE, CHECKSUMS, REDACTIONS, Status, member_order
from forensics.bundle.manifest import parsed
from forensics.bundle.reader import Bundle, open_bundle
from forensics.bundle.writer import Content, write_bundle
from forensics.sharing.known_names import stated_hosts, stated_users
from forensics.sharing.left_out import LeftOutError
from forensics.sharing.pseudonyms import Pseudonyms
from forensics.sharing.rewriting import rewritten
from forensics.sharing.scrub import Scrub

_RUNS = re.compile(r"(?:^|/)collectors\.jsonl(?:\.gz|\.zst)?$")
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Replaced:
    """How often one kind of thing was replaced in one file of the output."""

    path: str
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a bundle: replacements by file and kind, artefacts that were left out and why, and what to know.

    `size` is that of the output in bytes.
    """

    replaced: Sequence[Replaced]
    left_out: Mapping[str, str]
    warnings: Sequence[str]
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class _Written:
    """A file of the output: its path, digest and size, and the digest of what it was made from."""

    path: str
    sha256: str
    size: int
    before: str | None


@dataclass(slots=True)
class _Work:
    """The state of one run: pseudonyms, what lies in the folder so far, and what was written by its old path.

    `damage` says what was wrong with the input as a whole.
    """

    folder: Path
    pseudonyms: Pseudonyms
    replaced: list[Replaced] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    written: dict[str, _Written] = field(default_factory=dict)
    contents: dict[str, Content] = field(default_factory=dict)


def redact_bundle(
    paths: Sequence[Path],
    output: Path,
    pseudonyms: Pseudonyms,
    *,
    replace: bool = False,
    owner: tuple[int, int] | None = None,
    progress: Progress = lambda done, total, path: None,
) -> Report:
    """Write the evidence of `paths` to the bundle `output`, without secrets and without names of the kinds of `pseudonyms`.

    Raises ForensicsError for input that cannot be used at all, OSError (FileExistsError) where the output cannot be written.
    """
    bundle = open_bundle(paths)
    with tempfile.TemporaryDirectory(dir=output.parent, prefix=f".{output.name}.") as folder:
        work = _Work(Path(folder), pseudonyms)
        _learn(bundle, work)
        for number, artefact in enumerate(_in_order(bundle)):
            progress(number, len(bundle.artefacts), artefact.path)
            _rewrite(artefact, work, rewritten)
        for artefact in bundle.artefacts:
            if _RUNS.search(artefact.path):
                _rewrite(artefact, work, lambda found, scrub: _corrected(rewritten(found, scrub), work))
            elif artefact.path == BUNDLE:
                _rewrite(artefact, work, lambda found, scrub: _with_damage(rewritten(found, scrub), work))
        _add_report(bundle, work)
        found = [work.contents[path] for path in sorted(work.contents, key=member_order)]
        size = write_bundle(output, found, replace=replace, owner=owner)
    return Report(work.replaced, work.left_out, work.warnings, len(found), size)


def _learn(bundle: Bundle, work: _Work) -> None:
    """Know the names before anything is written, and what of the input could not be read."""
    kinds = work.pseudonyms.kinds
    if "hosts" in kinds:
        hosts, ordinary = stated_hosts(bundle.artefacts)
        work.pseudonyms.know("hosts", hosts)
        work.warnings += [f"host name {name} is an ordinary word of logs and was left" for name in sorted(ordinary)]
    if "users" in kinds:
        work.pseudonyms.know("users", stated_users(bundle.artefacts))
    for warning in bundle.warnings:
        place = _name(warning.path or "input", work)
        work.damage.append(f"{place}: {Scrub(work.pseudonyms).text(warning.message)}")
    work.warnings += work.damage


def _in_order(bundle: Bundle) -> Iterator[Artefact]:
    """The artefacts whose rewriting does not depend on that of others."""
    own = (REDACTIONS, CHECKSUMS)
    names = ((one, one.path.rpartition("/")[2]) for one in bundle.artefacts)
    return (one for one, name in names if name not in own and one.path != BUNDLE and not _RUNS.search(one.path))


def _rewrite(artefact: Artefact, work: _Work, content: Callable[[Artefact, Scrub], Iterator[bytes]]) -> None:
    scrub = Scrub(work.pseudonyms)
    path = _free(_name(artefact.path, work), work)
    target = work.folder / f"{len(work.contents)}"
    try:
        digest, size = _write(target, path, content(artefact, scrub))
    except LeftOutError as error:
        work.left_out[path] = scrub.text(str(error))
        return
    except OSError as error:
        work.warnings.append(f"{path}: {error.strerror or error}: kept up to there")
        digest, size = hashlib.sha256(target.read_bytes()).hexdigest(), target.stat().st_size
    work.written[artefact.path] = _Written(path, digest, size, artefact.sha256)
    work.contents[path] = Content(path, target, (artefact.modified_ns or 0) // 1_000_000_000)
    work.replaced += [Replaced(path, kind, count) for kind, count in sorted(scrub.counts.items())]


def _name(path: str, work: _Work) -> str:
    return "/".join(Scrub(work.pseudonyms).name(part) for part in path.split("/"))


def _free(path: str, work: _Work) -> str:
    """The path, or with a number behind it when two names became the same one."""
    number = 2
    free = path
    while free in work.contents:
        free, number = f"{path}~{number}", number + 1
    return free


def _write(target: Path, path: str, pieces: Iterable[bytes]) -> tuple[str, int]:
    """Write the pieces, compressed as the name says, and give digest and size; nothing stays of what is left out."""
    first = next(iter_ := iter(pieces), b"")
    with ExitStack() as stack:
        file = stack.enter_context(target.open("wb"))
        stream = cast(IO[bytes], file)
        if path.endswith(".gz"):
            stream = cast(IO[bytes], stack.enter_context(gzip.GzipFile("", "wb", 6, file, mtime=0)))
        elif path.endswith(".xz"):
            stream = cast(IO[bytes], stack.enter_context(lzma.LZMAFile(file, "wb")))
        elif path.endswith(".bz2"):
            stream = cast(IO[bytes], stack.enter_context(bz2.BZ2File(file, "wb")))
        elif path.endswith(".zst"):
            stream = stack.enter_context(zstandard.ZstdCompressor(level=3).stream_writer(file, closefd=False))
        stream.write(first)
        for piece in iter_:
            stream.write(piece)
    with target.open("rb") as written:
        return hashlib.file_digest(written, "sha256").hexdigest(), target.stat().st_size


def _corrected(pieces: Iterable[bytes], work: _Work) -> Iterator[bytes]:
    """Lines of collectors.jsonl with size and digest of what each run wrote, as it lies in the output.

    A digest that did not hold before is left: the content had been changed after it was collected, which stays to be seen.
    """
    by_name = {one.path: one for one in work.written.values()}
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield b"".join(_run(line, by_name, work.left_out) + b"\n" for line in lines)
    if rest:
        yield _run(rest, by_name, work.left_out)


def _with_damage(pieces: Iterable[bytes], work: _Work) -> Iterator[bytes]:
    """bundle.json with what was wrong with the bundle it was part of: the output is whole, and would not show it."""
    content = b"".join(pieces)
    document = parsed(content)
    if work.damage and isinstance(document, dict):
        said = document.get("warnings")
        document["warnings"] = [*(said if isinstance(said, list) else []), *work.damage]
        content = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    yield content


def _run(line: bytes, written: Mapping[str, _Written], left_out: Mapping[str, str]) -> bytes:
    try:
        row: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        return line
    path = row.get("path") if isinstance(row, dict) else None
    if not isinstance(path, str):
        return line
    if path in written and row.get("sha256") in (None, written[path].before):
        row.update(sha256=written[path].sha256, bytes=written[path].size)
    elif path in left_out:
        reason = f"left out when the bundle was redacted: {left_out[path]}"
        row.update(path=None, sha256=None, bytes=0, status=Status.SKIPPED_BY_POLICY.value, reason=reason)
    return orjson.dumps(row)


def _add_report(bundle: Bundle, work: _Work) -> None:
    """`redactions.json`: what earlier runs replaced, with today's paths, and what this one did."""
    rows = [
        {"rule": row["rule"], "path": _name(row["path"], work), "count": row["count"]}
        for artefact in bundle.artefacts
        if artefact.path == REDACTIONS
        for row in _earlier(artefact)
    ]
    rows += [{"rule": one.kind, "path": one.path, "count": one.count} for one in work.replaced]
    document = orjson.dumps(rows, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    work.contents[REDACTIONS] = Content(REDACTIONS, document)


def _earlier(artefact: Artefact) -> Iterator[dict[str, Any]]:
    kinds = {"rule": str, "path": str, "count": int}
    try:
        with artefact.open() as stream:
            rows: Any = orjson.loads(stream.read(64 << 20))
    except (OSError, orjson.JSONDecodeError):
        return
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and all(isinstance(row.get(key), kind) for key, kind in kinds.items()):
            yield row
