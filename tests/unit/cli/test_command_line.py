"""The commands as a whole: help, rules and their pages, versions, and a start that costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import forensics as package
from forensics.cli import app
from forensics.rules.engine import discover, page
from tests.recordings.commands import Command

OK, USAGE = 0, 2
ROOT = Path(__file__).parents[3]
COMMANDS = ("collect", "diagnose", "ingest", "query", "show", "explain", "rules")


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_every_command_has_an_example(forensics: Command, command: str) -> None:
    answer = forensics(command, "--help")
    assert answer.code == OK
    assert f"forensics {command}" in answer.out.partition("xample")[2]


def test_no_help_is_broken_in_the_middle_of_a_sentence() -> None:
    texts = {info.help or "" for info in app.registered_commands}
    assert len(texts) > 15 and all("\n" not in text.replace("\n\n", " ") for text in texts)


def test_help_lists_every_command(forensics: Command) -> None:
    answer = forensics("--help")
    assert answer.code == OK
    assert all(command in answer.out for command in COMMANDS)
    assert "Example: forensics collect" in " ".join(answer.out.split())


def test_without_arguments_there_is_help(forensics: Command) -> None:
    answer = forensics()
    assert "diagnose" in answer.out + answer.err


def test_version(forensics: Command) -> None:
    answer = forensics("--version")
    assert (answer.code, answer.out) == (OK, f"forensics {package.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [("diagnos",), ("--verbose",), ("explain",), ("rules", "extra"), ("rules", "--format", "xml")]
)
def test_wrong_use_is_stated(forensics: Command, arguments: tuple[str, ...]) -> None:
    answer = forensics(*arguments)
    assert answer.code == USAGE
    assert answer.err.strip()


def test_rules_lists_every_rule_with_what_it_concludes(forensics: Command) -> None:
    lines = forensics("rules").out.splitlines()
    assert [line.split()[:3] for line in lines] == [[rule.code, rule.name, rule.maturity] for rule in discover()]
    assert all(rule.concludes in line for rule, line in zip(discover(), lines, strict=True))


def test_rules_as_json(forensics: Command) -> None:
    found = json.loads(forensics("rules", "--format", "json").out)["rules"]
    assert [(each["code"], each["maturity"]) for each in found] == [(rule.code, rule.maturity) for rule in discover()]


@pytest.mark.parametrize("rule", discover(), ids=lambda rule: rule.code)
def test_explain_prints_the_page(forensics: Command, rule: object) -> None:
    (known,) = [each for each in discover() if each is rule]
    text = forensics("explain", known.code).out
    assert text.rstrip("\n") == page(known).rstrip("\n")
    assert known.code in text.splitlines()[0]


def test_explain_takes_the_name_of_a_rule_and_its_code_in_any_case(forensics: Command) -> None:
    known = discover()[0]
    assert len({forensics("explain", name).out for name in (known.code, known.code.lower(), known.name)}) == 1


def test_explain_of_no_rule_lists_those_there_are(forensics: Command) -> None:
    answer = forensics("explain", "FX999")
    assert (answer.code, answer.out) == (USAGE, "")
    assert all(rule.code in answer.err for rule in discover())


def test_the_module_is_the_command() -> None:
    done = python("-m", "forensics", "--version")
    assert (done.returncode, done.stdout) == (OK, f"forensics {package.__version__}\n")


@pytest.mark.slow
def test_a_closed_pipe_is_no_error(bundle: Path) -> None:
    """`forensics diagnose bundle.tar | head -1` is how people look."""
    command = f"{sys.executable} -m forensics diagnose {bundle} | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("HANG")
    assert done.stderr == ""


@pytest.mark.parametrize("module", ["forensics", "forensics.cli", "forensics.cli.diagnose", "forensics.cli.collect"])
def test_starting_loads_no_heavy_library(module: str) -> None:
    heavy = ("duckdb", "numpy", "networkx", "rich.console", "torch")
    code = f"import sys, {module}; print([name for name in {heavy!r} if name in sys.modules])"
    assert python("-c", code).stdout.strip() == "[]"


def test_an_unexpected_failure_is_one_line_and_a_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, bundle: Path
) -> None:
    """What goes wrong inside must not pour the job's values over a shared terminal."""
    import tempfile

    from forensics.case import build
    from forensics.cli import main

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("token=hunter2")

    monkeypatch.setattr(build, "open_case", broken)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["forensics", "diagnose", str(bundle)])
    with pytest.raises(SystemExit) as leaving:
        main()
    streams = capsys.readouterr()
    assert leaving.value.code == 1
    assert "hunter2" not in streams.out + streams.err
    (log,) = tmp_path.glob("forensics-crash-*.log")
    assert str(log) in streams.err
    assert "hunter2" in log.read_text()
