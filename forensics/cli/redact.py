"""`forensics redact`: a bundle that may be shared, without secrets and, if asked, without names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.cli import budget, inputs
from forensics.cli.progress import reading
from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.sharing.pseudonyms import Pseudonyms
    from forensics.sharing.redacting import Report

Names = Annotated[
    str,
    typer.Option(
        "--pseudonyms",
        help="Replace names too: hosts, users, addresses, paths (comma-separated), or all.",
        show_default=False,
    ),
]
MapFile = Annotated[
    Path | None,
    typer.Option("--map", help="Keep the map of pseudonyms in this file; one that exists is gone on with. Never share it."),
]

_SHOWN = 40


def redact(
    paths: Annotated[list[Path], typer.Argument(help="A bundle, a directory, or loose files.", callback=inputs.copied)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Bundle to write: .tar, .tar.gz or .tar.zst.")],
    pseudonyms: Names = "",
    map_file: MapFile = None,
    check: Annotated[bool, typer.Option("--check", help="Diagnose before and after; exit 5 when the verdicts differ.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing output.")] = False,
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
    limit: budget.Text = "",
) -> None:
    """Write a bundle that may be shared: no secrets, and pseudonyms for names if asked; say what was replaced.

    Exit codes: 0 written, 2 usage, 3 unreadable, 5 written, but with --check the verdict is another one.

    Example: forensics redact bundle.tar -o share.tar --pseudonyms all --map names.json --check
    """
    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    if output.exists() and not force:
        raise ForensicsError(f"{output} exists; --force replaces it", ExitCode.USAGE)
    names = read_names(pseudonyms, map_file)
    report = _written(paths, output, names, force, limit)
    write_map(names, map_file)
    differences = _differences(paths, output, names, limit) if check else None
    _show(report, output, differences, form)
    if differences:
        raise typer.Exit(ExitCode.PARTIAL)


def read_names(kinds: str, map_file: Path | None) -> Pseudonyms:
    """The pseudonyms asked for, with the map of an earlier run where there is one."""
    import orjson

    from forensics.sharing.pseudonyms import KINDS, Pseudonyms, from_document

    wanted = frozenset(KINDS if kinds == "all" else filter(None, kinds.split(",")))
    if unknown := sorted(wanted - set(KINDS)):
        raise ForensicsError(f"--pseudonyms {unknown[0]}: choose from {', '.join(KINDS)}, or all", ExitCode.USAGE)
    if map_file is not None and not wanted:
        raise ForensicsError("--map needs --pseudonyms: without them there is nothing to map", ExitCode.USAGE)
    if map_file is None or not map_file.exists():
        return Pseudonyms(wanted)
    try:
        found = from_document(orjson.loads(map_file.read_bytes()), wanted)
    except (OSError, orjson.JSONDecodeError, AttributeError):
        found = None
    if found is None:
        raise ForensicsError(f"{map_file} is no map of pseudonyms", ExitCode.USAGE)
    return found


def write_map(names: Pseudonyms, map_file: Path | None) -> None:
    """Keep the map, readable by its owner only."""
    import os

    import orjson

    if map_file is None:
        return
    partial = map_file.with_name(f".{map_file.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(orjson.dumps(names.document(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        partial.replace(map_file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ForensicsError(f"cannot write {map_file}: {error.strerror}", ExitCode.USAGE) from error


def _written(paths: list[Path], output: Path, names: Pseudonyms, force: bool, limit: str) -> Report:
    from forensics.sharing.redacting import redact_bundle

    try:
        with budget.allowed(limit), reading() as progress:
            return redact_bundle(paths, output, names, replace=force, progress=progress)
    except OSError as error:
        raise ForensicsError(f"cannot write {output}: {error.strerror or error}", ExitCode.USAGE) from error


def _differences(paths: list[Path], output: Path, names: Pseudonyms, limit: str) -> list[str]:
    from forensics.case.build import open_case
    from forensics.report.equality import differing_keys
    from forensics.rules.diagnosis import diagnose

    verdicts = []
    with budget.allowed(limit):
        for found in (paths, [output]):
            connection = open_case(found)
            verdicts.append(diagnose(connection))
            connection.close()
    return differing_keys(verdicts[0], verdicts[1], names)


def _show(report: Report, output: Path, differences: list[str] | None, form: str) -> None:
    if form == "json":
        _show_json(report, differences)
        return
    from forensics.report.plain import plain

    for one in report.replaced[:_SHOWN]:
        typer.echo(plain(f"{one.count:>8}  {one.kind:<18}  {one.path}"))
    if len(report.replaced) > _SHOWN:
        typer.echo(f"... and {len(report.replaced) - _SHOWN} more: redactions.json in the bundle, or --format json")
    for path, reason in report.left_out.items():
        typer.echo(plain(f"left out: {path}: {reason}"))
    for warning in report.warnings:
        typer.echo(plain(f"warning: {warning}"), err=True)
    if differences:
        typer.echo(f"the verdict changed: {', '.join(differences)}", err=True)
    elif differences is not None:
        typer.echo("the verdict is the same")
    total = sum(one.count for one in report.replaced)
    typer.echo(f"wrote {output}: {report.files} files, {total} replacements, {len(report.left_out)} files left out")


def _show_json(report: Report, differences: list[str] | None) -> None:
    import json
    from dataclasses import asdict

    document = {
        "schema": "forensics.redaction/1",
        "replaced": [asdict(one) for one in report.replaced],
        "left_out": dict(report.left_out),
        "warnings": list(report.warnings),
        "files": report.files,
        "bytes": report.size,
        "verdict_differs_in": differences,
    }
    typer.echo(json.dumps(document, indent=2))
