"""`forensics doctor`: what is in place to see a hang, what is not, and what to do about it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.shim.doctor import Check


def doctor(
    pid: Annotated[int | None, typer.Option("--pid", help="Also look into this running process, such as a rank.")] = None,
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Check collector, NCCL, log folder, stacks and Flight Recorder settings; exit 1 when something vital is missing.

    Example: forensics doctor --pid 4711
    """
    from forensics.shim.doctor import Health, host_checks
    from forensics.shim.live_dumps import host_live_dumps
    from forensics.shim.process_checks import process_checks

    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    checks = list(process_checks(pid) if pid is not None else (*host_checks(os.environ), *host_live_dumps(os.environ)))
    if form == "json":
        _as_json(checks)
    else:
        _as_text(checks)
    if any(check.health is Health.MISSING for check in checks):
        raise typer.Exit(1)


def _as_json(checks: list[Check]) -> None:
    import json

    rows = [{"name": c.name, "status": c.health.value, "reason": c.reason, "advice": c.advice or None} for c in checks]
    typer.echo(json.dumps({"schema": "forensics.doctor/1", "checks": rows}, indent=2))


def _as_text(checks: list[Check]) -> None:
    from forensics.report.plain import plain

    width = max((len(check.name) for check in checks), default=0)
    for check in checks:
        typer.echo(plain(f"{check.health.value:<8}{check.name:<{width}}  {check.reason}"))
        for number, line in enumerate(check.advice.splitlines()):
            typer.echo(plain(f"{'':<8}{'':<{width}}  {'   ' if number else '-> '}{line}"))
