"""What `forensics collect` understands on its command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.errors import ExitCode
from tests.recordings.commands import Command

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
