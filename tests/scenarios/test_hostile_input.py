"""Input made to harm from end to end: nothing runs, nothing escapes, nothing fills the memory, nothing repaints the report."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import re
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import zstandard
from markdown_it import MarkdownIt

from tests.recordings.collection import Collection, tar_of, whole, write
from tests.recordings.commands import Command
from tests.recordings.hang import CULPRIT, VICTIMS_DUMP, collected, hung, with_member
from tests.recordings.job import as_json
from tests.recordings.places import LOADER_QUEUE
from tests.recordings.verdicts import named, verdict_of, warned

ANALYSED, UNREADABLE, INSUFFICIENT = 0, 3, 4


class Runs:
    """An object whose pickle runs a shell command when it is loaded by an ordinary unpickler."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self._marker}",)


class Persistent(pickle.Pickler):
    """Writes references to outside objects."""

    def persistent_id(self, obj: object) -> str | None:
        return "outside" if obj == "marker" else None


def persistent() -> bytes:
    stream = io.BytesIO()
    Persistent(stream, protocol=2).dump({"version": "2.10", "pg_config": {}, "entries": ["marker"]})
    return stream.getvalue()


def hostile(marker: Path) -> dict[str, bytes]:
    shell = f"touch {marker}".encode()
    head = b"\x80\x02}q\x00(X\x07\x00\x00\x00versionX\x04\x00\x00\x002.10X\x09\x00\x00\x00pg_config}X\x07\x00\x00\x00entries"
    return {
        "reduce": pickle.dumps({**hung().dump(0), "comm_lib_version": Runs(marker)}, protocol=2),
        "reduce in an entry": pickle.dumps({**hung().dump(0), "entries": [{"profiling_name": Runs(marker)}]}, protocol=2),
        "global": head + b"cos\nsystem\n(X" + len(shell).to_bytes(4, "little") + shell + b"tRu.",
        "stack global": pickle.dumps({**hung().dump(0), "pg_status": Runs(marker)}, protocol=4),
        "inst": head + b"(S'" + shell + b"'\nios\nsystem\nu.",
        "obj": head + b"(cos\nsystem\nX" + len(shell).to_bytes(4, "little") + shell + b"ou.",
        "build": head + b"ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00xK\x01sbu.",
        "newobj": head + b"csubprocess\nPopen\nX" + len(shell).to_bytes(4, "little") + shell + b"\x85\x81u.",
        "persistent": persistent(),
        "persistent text": head + b"Poutside\nu.",
        "extension": head + b"\x82\x01u.",
        "memo without end": head + b"]r\xff\xff\xff\x7fu.",
        "long without end": head + b"\x8b\xff\xff\xff\x7f",
        "text without end": head + b"X\xff\xff\xff\xff",
        "frame without end": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f" + head[2:] + b"]u.",
    }


@pytest.mark.parametrize("kind", hostile(Path("/nowhere")))
def test_a_pickle_never_runs_anything(tmp_path: Path, kind: str) -> None:
    marker = tmp_path / "marker"
    verdict = verdict_of(with_member(tmp_path / "bundle", hostile(marker)[kind]))
    assert not marker.exists()
    assert named(verdict) == {CULPRIT}
    assert VICTIMS_DUMP in warned(verdict)


def test_a_hostile_pickle_does_run_in_an_ordinary_unpickler(tmp_path: Path) -> None:
    """The proof that the test above tests something."""
    marker = tmp_path / "marker"
    pickle.loads(hostile(marker)["global"])  # noqa: S301
    assert marker.exists()


def test_a_bundle_that_is_only_hostile(tmp_path: Path, forensics: Command) -> None:
    marker = tmp_path / "marker"
    files = {f"nccl_trace_rank_{number}": content for number, content in enumerate(hostile(marker).values())}
    answer = forensics("diagnose", write(tmp_path / "dumps", files), "-v")
    assert not marker.exists()
    assert answer.code in (UNREADABLE, INSUFFICIENT)
    assert all(name in answer.out + answer.err for name in files)


def archive_with(*odd: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """The bundle with members that a program of ours would not write."""
    stream = io.BytesIO(tar_of(collected().finished()))
    with tarfile.open(fileobj=stream, mode="a") as archive:
        for info, content in odd:
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def special(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = target
    return info


ESCAPES: Mapping[str, tarfile.TarInfo] = {
    "a parent": tarfile.TarInfo("../escaped.json"),
    "a parent in the middle": tarfile.TarInfo("ranks/0/../../../escaped.json"),
    "an absolute path": tarfile.TarInfo("/tmp/forensics-escaped.json"),
    "a link": special("ranks/0/fr/1.json", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": special("ranks/0/fr/1.json", tarfile.LNKTYPE, "ranks/1/fr/0.json"),
    "a hard link outside": special("ranks/0/fr/1.json", tarfile.LNKTYPE, "/etc/passwd"),
    "a device": special("ranks/0/fr/1.json", tarfile.CHRTYPE),
    "a block device": special("ranks/0/fr/1.json", tarfile.BLKTYPE),
    "a pipe": special("ranks/0/fr/1.json", tarfile.FIFOTYPE),
}


@pytest.mark.parametrize("kind", ESCAPES)
def test_an_archive_member_that_escapes_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "in" / "bundle.tar"
    path.parent.mkdir()
    regular = ESCAPES[kind].isreg()
    path.write_bytes(archive_with((ESCAPES[kind], b'{"rank": 3}' if regular else b"")))
    verdict = verdict_of(path)
    assert named(verdict) == {CULPRIT}
    assert any("refused" in message for messages in warned(verdict).values() for message in messages)
    assert [found.name for found in tmp_path.rglob("*")] == ["in", "bundle.tar"]
    assert not Path("/tmp/forensics-escaped.json").exists()


def test_links_in_a_directory_do_not_lead_out_of_it(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_bytes(as_json(hung(steps=3).dump(0)))
    folder = collected().write(tmp_path / "bundle")
    (folder / "ranks/0/fr/1.json").symlink_to(outside)
    (folder / "loop").symlink_to(folder)
    (folder / "dead").symlink_to(tmp_path / "nothing")
    verdict = verdict_of(folder)
    assert named(verdict) == {CULPRIT}
    assert "ranks/0/fr/1.json" in warned(verdict)


def test_special_files_in_a_directory_are_not_opened(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to would hang for ever."""
    folder = collected().write(tmp_path / "bundle")
    os.mkfifo(folder / "ranks/0/fr/1.json")
    verdict = verdict_of(folder)
    assert named(verdict) == {CULPRIT}
    assert "ranks/0/fr/1.json" in warned(verdict)


def test_a_member_that_is_there_twice_is_stated(tmp_path: Path) -> None:
    other = as_json(hung(steps=5).dump(0))
    path = tmp_path / "bundle.tar"
    path.write_bytes(archive_with((tarfile.TarInfo(VICTIMS_DUMP), other), (tarfile.TarInfo(VICTIMS_DUMP), other)))
    verdict = verdict_of(path)
    assert named(verdict) <= {CULPRIT}
    assert any(name.startswith(VICTIMS_DUMP) for name in warned(verdict))


def zeros(suffix: str, mebibytes: int) -> bytes:
    block = bytes(1 << 20)
    if suffix == ".gz":
        return gzip.compress(block, mtime=0) * mebibytes
    return zstandard.compress(block) * mebibytes


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_a_decompression_bomb_is_refused(tmp_path: Path, suffix: str) -> None:
    """Behind a sound beginning: 120 MiB of zeros that a JSON reader would have to hold."""
    content = as_json(hung().dump(0))
    compress = gzip.compress if suffix == ".gz" else zstandard.compress
    bomb = compress(content[:-1]) + zeros(suffix, 120)
    folder = with_member(tmp_path, bomb, VICTIMS_DUMP + suffix)
    (folder / VICTIMS_DUMP).unlink()
    verdict = verdict_of(folder)
    assert named(verdict) == {CULPRIT}
    assert VICTIMS_DUMP + suffix in warned(verdict)
    assert any("expands beyond" in warning.statement for warning in verdict.warnings)


def test_a_compressed_archive_that_is_a_bomb_is_refused(tmp_path: Path, forensics: Command) -> None:
    path = tmp_path / "bundle.tar.zst"
    path.write_bytes(zstandard.compress(tar_of(collected().finished())) + zeros(".zst", 400))
    answer = forensics("diagnose", path)
    assert answer.code in (ANALYSED, UNREADABLE, INSUFFICIENT)
    assert "bundle.tar.zst" in answer.out + answer.err


START = pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}}, protocol=2)[:-2] + b"X\x07\x00\x00\x00entries"


def shared(levels: int) -> list[object]:
    """A list that is small in the pickle and has ten to the power of `levels` leaves for who walks it."""
    found: list[object] = [1] * 10
    for _ in range(levels - 1):
        found = [found] * 10
    return found


BOMBS: Mapping[str, bytes] = {
    "a number of two gigabytes": START + b"\x8b" + (2**31 - 1).to_bytes(4, "little") + b"\x7f" * 100 + b"u.",
    "a number of five megabytes": START + b"\x8b" + (5 << 20).to_bytes(4, "little") + b"\x7f" * (5 << 20) + b"u.",
    "a number of a million digits": START + b"L" + b"9" * 1_000_000 + b"L\nu.",
    "a JSON number of a million digits": as_json(hung().dump(0)).replace(b'"op_id":4', b'"op_id":' + b"9" * 1_000_000),
    "tuples without end": START + b"K\x01" + b"\x85" * 1_000_000 + b"u.",
    "entries in entries in entries": pickle.dumps({**hung().dump(0), "entries": shared(12)}, protocol=2),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_a_bomb_in_a_dump_costs_only_itself(tmp_path: Path, kind: str) -> None:
    verdict = verdict_of(with_member(tmp_path, BOMBS[kind]))
    assert named(verdict) == {CULPRIT}
    assert VICTIMS_DUMP in warned(verdict)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hole behind a sound beginning, as a copy that broke off leaves it."""
    monkeypatch.setattr("forensics.ingest._shared.content.MAX_DOCUMENT_BYTES", 1 << 20)
    folder = collected().write(tmp_path)
    os.truncate(folder / VICTIMS_DUMP, 32 << 20)
    tracemalloc.start()
    verdict = verdict_of(folder)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert named(verdict) == {CULPRIT}
    assert any("larger than" in message for message in warned(verdict)[VICTIMS_DUMP])
    assert peak < 16 << 20


MARKUP = "<script>alert(1)</script>[bold red]x[/bold red]\x1b[31m\x1b]0;owned\x07\u202e\r\n| a | b |\n```\n"


def renamed(frame: str) -> Collection:
    found = whole(hung(), {CULPRIT: ((frame, f"/srv/job/{frame[:40]}.py", 7), *LOADER_QUEUE)})
    found.log(CULPRIT, "Traceback (most recent call last):", f"ValueError: {frame!r} {frame}")
    return found


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_names_of_the_job_are_shown_and_never_obeyed(tmp_path: Path, forensics: Command, form: str) -> None:
    folder = renamed(MARKUP).write(tmp_path / "bundle")
    (folder / "<img src=x>\x1b[5m.json").write_bytes(b'{"version":"2.10","pg_config":{},"entries":[{')
    answer = forensics("diagnose", folder, "-f", form)
    assert answer.code == ANALYSED
    assert not {"\x1b", "\x07", "\r"} & set(answer.out)
    if form == "json":
        document = json.loads(answer.out)
        assert any(MARKUP in line["statement"] for suspect in document["suspects"] for line in suspect["evidence"])
        return
    assert all(char == "\n" or char.isprintable() for char in answer.out)
    assert "[bold red]" in answer.out.replace("\\", "")
    if form == "markdown":
        page = MarkdownIt("commonmark").enable("table").render(answer.out)
        assert not re.search(r"<(script|img|table|a)\b", page)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_name_cannot_forge_a_line_of_the_report(tmp_path: Path, forensics: Command, form: str) -> None:
    forged = "HANG  rank 0 - stage: DATA"
    answer = forensics("diagnose", renamed(f"f\n{forged}\n").write(tmp_path / "bundle"), "-f", form)
    assert not any(line.strip().startswith(forged) for line in answer.out.splitlines())


@pytest.mark.slow
def test_a_name_without_end_is_bearable(tmp_path: Path, forensics: Command) -> None:
    folder = renamed("f" * 300_000).write(tmp_path / "bundle")
    assert forensics("diagnose", folder).code == ANALYSED
    assert len(forensics("diagnose", folder, "-f", "markdown", "--max-bytes", "20000").out.encode()) <= 20_000
