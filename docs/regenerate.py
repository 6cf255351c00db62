"""Regenerate what the documentation quotes from the program: the rule index, the examples, and whole reports.

Run by `make docs`; tests/scenarios checks that the pages are current.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

import forensics
from forensics.case.build import open_case
from forensics.cli import app
from forensics.errors import ExitCode
from forensics.model import Verdict
from forensics.report import markdown, text
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import discover, page, page_path
from forensics.rules.interface import Rule
from forensics.rules.known_defects import Defect, catalogue

ROOT = Path(__file__).parents[1]
INDEX = ROOT / "docs" / "rules.md"
MANUAL = ROOT / "docs" / "forensics.1"
DEFECTS = ROOT / "docs" / "known-defects.md"
_DEFECTS_HEAD = """\
# Known defects

Public defects of NCCL, PyTorch and the NVIDIA driver that look like a bad rank. Where a case states a version that has one and
shows its sign, the verdict names it beside the suspects; it never changes them, and the sign alone proves no cause. Where the
version (or the machine) is not stated, or several are, the verdict says *possible*; where they exclude the defect, nothing.
A job that moves has none.

Versions are read from lines of logs (`NCCL version`, `PyTorch version`, `torch==`), Flight Recorder dumps, NCCL RAS,
`versions.json` and `node.json` of the collector, `nvidia-smi -q -x` and the kernel log. A build between releases (`2.7.0a0`)
counts as not stated.

This page is made from [known_defects.toml](../rules/known_defects.toml), where an entry is added; each needs a public report in
which the repaired version stands. `tests/unit/rules/test_known_defects.py` tries it, and its look-alikes."""
HEAD_LINES = 3
_QUOTED = re.compile(r"<!-- report -->.*?<!-- /report -->", re.DOTALL)
_EXAMPLE = re.compile(r"```console\n\$ forensics diagnose (\S+)\n.*?```", re.DOTALL)


def rules_index() -> str:
    """Render docs/rules.md."""
    rows = [_row(rule) for rule in discover()]
    head = [
        "# Rules",
        "",
        "`forensics explain CODE` prints the page of a rule. Thresholds are overridden by",
        "`forensics diagnose --thresholds FILE` with `[rules.CODE]` tables.",
        "Only what a stable rule says may be `confirmed`; the page of each rule says what its maturity rests on.",
        "",
        "| code | name | maturity | concludes | needs | seed |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""])


def defects_page() -> str:
    """Render docs/known-defects.md."""
    return "\n".join([_DEFECTS_HEAD, *(line for defect in catalogue() for line in _defect(defect)), ""])


def _defect(defect: Defect) -> list[str]:
    machine = f", on {defect.machine}" if defect.machine else ""
    links = ", ".join(f"<{link}>" for link in defect.links)
    title = defect.title[0].upper() + defect.title[1:]
    affected = f"{defect.product} from {defect.since} on, before {defect.fixed}{machine}"
    return [
        "",
        f"## {defect.id}",
        "",
        f"{title}.",
        "",
        f"- Affected: {affected}",
        f"- Seen by: {_seen(defect)}",
        f"- {defect.action}",
        f"- {links}",
    ]


def _seen(defect: Defect) -> str:
    size = f" of at least {defect.members} ranks" if defect.members else ""
    signs = (
        *(f"`{name}` on a thread in each of its samples" for name in defect.frames),
        *(f"a line `{line}`" for line in defect.lines),
        *([f"a `{defect.call}` that all members of a group{size} entered and none finished"] if defect.call else []),
        *(f"`{name}={value}`" for name, value in defect.environment.items()),
        *(f"not `{name}={value}`" for name, value in defect.unless.items()),
    )
    return "; ".join(signs)


_EXIT_CODES = (
    (ExitCode.ANALYSED, "analysed, whatever the verdict; bundle written"),
    (ExitCode.INTERNAL, "internal error, the path of the crash log is printed; of doctor: something vital is missing"),
    (ExitCode.USAGE, "usage error"),
    (ExitCode.UNREADABLE, "the input cannot be read, or holds no evidence"),
    (ExitCode.INSUFFICIENT, "analysed, but the evidence is not enough for any verdict"),
    (
        ExitCode.PARTIAL,
        "collect --strict: something that exists could not be taken, or a rank is dead; verify: errors found; "
        "redact --check: the verdict is another one",
    ),
    (ExitCode.NOTHING_COLLECTED, "nothing collected"),
    (ExitCode.NO_RANKS, "no ranks found"),
    (ExitCode.CULPRIT, "with --exit-code: somebody is named (confirmed or likely)"),
    (ExitCode.SUSPECTS, "with --exit-code: suspects only"),
    (ExitCode.NO_HANG, "with --exit-code: no hang seen"),
    (ExitCode.INTERRUPTED, "interrupted; collect has written the bundle all the same"),
)


def manual() -> str:
    """Render docs/forensics.1 from the commands."""
    program: Any = typer.main.get_command(app)
    lines = [
        f'.TH FORENSICS 1 "" "forensics {forensics.__version__}" "User Commands"',
        *(".SH NAME", f"forensics \\- {_troff((program.help or '').partition(':')[0])}", ".SH SYNOPSIS"),
        *(".B forensics", "[\\-h] [\\-V]", ".I COMMAND", "[\\fIoptions\\fR] [\\fIarguments\\fR]", ".SH DESCRIPTION"),
        *(_troff(program.help or ""), ".PP", _troff(program.epilog or ""), ".SH COMMANDS"),
        *(line for name, command in _commands(program, "") for line in _command(name, command)),
        ".SH EXIT STATUS",
        *(line for code, meaning in _EXIT_CODES for line in (".TP", f".B {code:d}", _troff(meaning))),
    ]
    return "\n".join([*lines, ""])


def _commands(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def _command(name: str, command: Any) -> Iterator[str]:
    context = typer.Context(command, info_name=f"forensics {name}")
    yield f".SS {_troff(name)}"
    yield f".B {_troff(context.command_path)}"
    yield _troff(" ".join(command.collect_usage_pieces(context)))
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        yield from (".PP", _troff(" ".join(paragraph.split())))
    for parameter in command.params:
        record = parameter.get_help_record(context)
        if record is not None and parameter.name != "help":
            yield from (".TP", f".B {_troff(record[0])}", _troff(record[1]) or "\\&")


def _troff(text: str) -> str:
    """The text on one line, no character of which is a request or an escape."""
    line = " ".join(text.split()).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{line}" if line.startswith((".", "'")) else line


def _row(rule: Rule) -> str:
    where = page_path(rule).relative_to(ROOT)
    return f"| [{rule.code}](../{where}) | {rule.name} | {rule.maturity} | {rule.concludes} | {_needs(rule)} | {rule.seed} |"


def _needs(rule: Rule) -> str:
    return ", ".join(need.kind for need in rule.needs) or "any evidence"


def example(rule: Rule) -> str:
    """Render a rule's page with the head of the report that its example gives now."""
    return _EXAMPLE.sub(lambda found: f"```console\n$ forensics diagnose {found[1]}\n{_head(found[1])}\n```", page(rule))


def _head(path: str) -> str:
    return "\n".join(text.render(_verdict(path), 100).splitlines()[:HEAD_LINES])


def _verdict(path: str) -> Verdict:
    connection = open_case([ROOT / path])
    verdict = diagnose(connection)
    connection.close()
    return verdict


def quoted_reports() -> dict[Path, str]:
    """Render the pages that quote a whole report between `<!-- report -->` marks."""
    readme, study = ROOT / "README.md", ROOT / "docs/case-studies/part-of-a-checkpoint.md"
    report = text.render(_verdict("fixtures/recorded/recommender-hang.tar.zst"), 100)
    ticket = markdown.render(_verdict("fixtures/scenarios/checkpoint-stalled/bundle.tar.zst"))
    return {readme: _quote(readme, f"```text\n{report.rstrip()}\n```"), study: _quote(study, f"---\n\n{ticket.rstrip()}")}


def _quote(page: Path, report: str) -> str:
    return _QUOTED.sub(lambda _: f"<!-- report -->\n{report}\n<!-- /report -->", page.read_text(encoding="utf-8"))


def main() -> None:
    """Write the index, all rule pages and the quoted reports."""
    INDEX.write_text(rules_index(), encoding="utf-8")
    MANUAL.write_text(manual(), encoding="utf-8")
    DEFECTS.write_text(defects_page(), encoding="utf-8")
    for rule in discover():
        page_path(rule).write_text(example(rule), encoding="utf-8")
    for page_, content in quoted_reports().items():
        page_.write_text(content, encoding="utf-8")


if __name__ == "__main__":
    main()
