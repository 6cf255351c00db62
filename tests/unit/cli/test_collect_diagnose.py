"""`forensics collect --diagnose`, and the manual page."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer.main

from forensics.cli import app, collect
from forensics.collect.summary import Summary
from forensics.errors import ExitCode
from tests.recordings.commands import Command
from tests.recordings.rank_logs import one_behind

MANUAL = Path(__file__).parents[3] / "docs/forensics.1"
WRITTEN = Summary(Path(), 1, (0, 1, 2, 3), (), 4, (), (), False, False, True, True)


def collected(monkeypatch: pytest.MonkeyPatch, summary: Summary) -> None:
    monkeypatch.setattr(collect, "_run", lambda options: summary)


@pytest.mark.slow
def test_the_verdict_of_the_bundle_follows(bundle: Path, monkeypatch: pytest.MonkeyPatch, forensics: Command) -> None:
    collected(monkeypatch, replace(WRITTEN, output=bundle))
    answer = forensics("collect", "--diagnose")
    assert answer.code == ExitCode.ANALYSED
    assert answer.out.splitlines()[0] == forensics("diagnose", bundle).out.splitlines()[0]
    assert f"wrote {bundle}" in answer.err and "next: " not in answer.err


def test_how_the_collection_went_decides_the_exit_code(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, forensics: Command
) -> None:
    collected(monkeypatch, replace(WRITTEN, output=bundle, complete=False))
    answer = forensics("collect", "--diagnose", "--strict")
    assert answer.code == ExitCode.PARTIAL and answer.out.startswith("HANG")
    collected(monkeypatch, replace(WRITTEN, output=bundle, anything=False))
    answer = forensics("collect", "--diagnose")
    assert (answer.code, answer.out) == (ExitCode.NOTHING_COLLECTED, "")


def test_a_bundle_that_is_not_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forensics: Command) -> None:
    log = one_behind().write_together(tmp_path / "job.log")
    log.write_text("epoch 1\n")
    collected(monkeypatch, replace(WRITTEN, output=log))
    code = forensics("diagnose", log).code
    assert code != ExitCode.ANALYSED
    assert forensics("collect", "--diagnose").code == code


def commands(group: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        yield from commands(command, f"{prefix}{name} ") if hasattr(command, "commands") else [(f"{prefix}{name}", command)]


def test_the_manual_page_has_every_command_and_option() -> None:
    page = MANUAL.read_text(encoding="utf-8").replace("\\-", "-")
    for name, command in commands(typer.main.get_command(app)):
        section = page.partition(f"\n.SS {name}\n")[2].partition("\n.SS ")[0]
        shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
        for option in (option for parameter in shown for option in parameter.opts if option.startswith("--")):
            assert option == "--help" or option in section, f"{option} of {name}: run `make docs`"
    assert {str(int(code)) for code in ExitCode} <= set(re.findall(r"^\.B (\d+)$", page, re.MULTILINE))


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
def test_the_manual_page_is_sound() -> None:
    done = subprocess.run(["groff", "-man", "-Tascii", "-ww", MANUAL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
