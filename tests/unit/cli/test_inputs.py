"""Evidence in a store gives what it gives as a file; what cannot be had is stated in one line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from tests.recordings.commands import Command

USAGE, UNREADABLE = 2, 3


@pytest.fixture
def store() -> Iterator[fsspec.AbstractFileSystem]:
    """A store within this process, which is that of the command as well."""
    found = fsspec.filesystem("memory")
    yield found
    found.rm("/", recursive=True)


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["file", "folder"])
def test_a_bundle_in_a_store_has_the_verdict_of_the_file(
    shape: str, store: fsspec.AbstractFileSystem, forensics: Command, bundle: Path
) -> None:
    store.pipe("/bucket/incident/bundle.tar", bundle.read_bytes())
    url = "memory://bucket/incident" + ("/bundle.tar" if shape == "file" else "/")
    here, there = (forensics("diagnose", place, "--format", "json") for place in (bundle, url))
    assert (there.code, there.err) == (0, "")
    if shape == "file":
        assert there.out == here.out
    assert '"ranks":[2]' in there.out.replace(" ", "").replace("\n", "")


def test_a_url_of_a_local_file_is_its_path(forensics: Command, bundle: Path) -> None:
    here, there = (forensics("verify", place) for place in (bundle, bundle.resolve().as_uri()))
    assert there.out and (there.code, there.out) == (here.code, here.out)


def test_every_file_below_a_folder_is_copied(store: fsspec.AbstractFileSystem, forensics: Command) -> None:
    for rank in range(3):
        store.pipe(f"/bucket/logs/node{rank}/rank{rank}.log", f"[rank{rank}]: RuntimeError: CUDA out of memory\n".encode())
    answer = forensics("show", "memory://bucket/logs")
    assert [f"node{rank}/rank{rank}.log" in answer.out for rank in range(3)] == [True] * 3


def test_a_name_that_leads_out_of_the_folder_stays_in_it(
    store: fsspec.AbstractFileSystem, forensics: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
    (tmp_path / "copies").mkdir()
    store.store["/bucket/logs/../../../escaped.log"] = store.open("/bucket/x", "wb")
    store.store["/bucket/logs/../../../escaped.log"].write(b"line\n")
    assert "escaped.log" in forensics("show", "memory://bucket/logs").out
    assert not list(tmp_path.rglob("escaped.log"))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("memory://bucket/nothing", "nothing is there"),
        ("nostore://bucket/x", "nostore"),
        ("s3://bucket/x.tar", "s3fs"),
    ],
)
def test_what_cannot_be_had_is_stated(url: str, said: str, forensics: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    answer = forensics("diagnose", url)
    assert (answer.code, answer.out) == (UNREADABLE, "")
    assert url in answer.err and said in answer.err and answer.err.count("\n") == 1


def test_a_store_that_holds_too_much_is_not_copied(store: fsspec.AbstractFileSystem, forensics: Command) -> None:
    store.pipe("/bucket/large.tar", b"x" * 5000)
    answer = forensics("diagnose", "memory://bucket/large.tar", "--budget", "bytes=4K")
    assert answer.code == UNREADABLE and "4096 bytes, the budget" in answer.err


def test_a_bundle_that_is_not_there_is_not_merged(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    answer = forensics("merge", bundle, tmp_path / "absent.tar", "-o", tmp_path / "job.tar")
    assert answer.code == USAGE and "absent.tar: not found" in answer.err


def test_a_local_folder_may_look_like_a_url(
    forensics: Command, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    Path("s3:/bundle.tar").write_bytes(bundle.read_bytes())
    assert forensics("diagnose", "s3:/bundle.tar", "-q").out.startswith("HANG")
