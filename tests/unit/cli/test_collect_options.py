"""What `forensics collect` understands on its command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.cli import collect
from forensics.errors import ExitCode
from tests.recordings.collection import write
from tests.recordings.commands import Command
from tests.unit.sharing.canaries import URL, leaks

GONE = (2**22 + 1, 2**22 + 2)


@pytest.mark.parametrize("options", [("--pid", f"{GONE[0]},{GONE[1]}"), ("--pid", GONE[0], "--pid", GONE[1])])
def test_processes_are_named_in_one_list_or_in_several(options: tuple[object, ...], tmp_path: Path, forensics: Command) -> None:
    answer = forensics("collect", "-o", tmp_path / "bundle.tar", *options)
    assert answer.code == ExitCode.NO_RANKS
    assert f"there is no process {GONE[0]}, {GONE[1]}" in answer.err


def test_a_name_is_no_process(tmp_path: Path, forensics: Command) -> None:
    answer = forensics("collect", "-o", tmp_path / "bundle.tar", "--pid", "12", "--pid", "python")
    assert answer.code == ExitCode.USAGE
    assert "--pid" in answer.err


def test_a_redacted_collection_is_packed_without_secrets(tmp_path: Path) -> None:
    staging = tmp_path / "x.tar.partial"
    folder = write(staging, {"bundle.json": b'{"nodes": ["dgx-7"]}', "ranks/0/stacks/0.json": f'["{URL}", "dgx-7"]'.encode()})
    names = tmp_path / "names.json"
    size = collect._packing(False, "hosts", names)(folder, tmp_path / "x.tar", False, None)
    assert (tmp_path / "x.tar").stat().st_size == size
    assert leaks(tmp_path / "x.tar") == leaks(tmp_path / "x.tar", ("dgx-7",)) == []
    assert json.loads(names.read_text())["hosts"] == {"dgx-7": "host-00001"}


def test_a_collection_is_packed_as_it_is_unless_asked(tmp_path: Path) -> None:
    folder = write(tmp_path / "x.tar.partial", {"bundle.json": b"{}", "ranks/0/stacks/0.json": URL.encode()})
    collect._packing(False, "", None)(folder, tmp_path / "x.tar", False, None)
    assert {place for place, _ in leaks(tmp_path / "x.tar")} == {"raw", "ranks/0/stacks/0.json"}
