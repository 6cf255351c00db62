"""`forensics doctor`: what is in place to see a hang, what is not, and what to do about it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from forensics.errors import ExitCode, ForensicsError

if TYPE_CHECKING:
    from forensics.shim.doctor import Check


def doctor(
    pid: Annotated[int | None, typer.Option("--pid", help="Also inspect this running process, such as a rank.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when anything is to be improved, too.")] = False,
    form: Annotated[str, typer.Option("--format", help="text or json.")] = "text",
) -> None:
    """Check, before a job or on a running rank, what would be seen of a hang; each line says what to add.

    Collector and NCCL, log folder, Flight Recorder (on, where it writes, how it is asked), stacks, kernel log (Xid), GPUs,
    disk. Run it in the environment of the job. Exit codes: 0, or 1 when something vital is missing (with --strict: anything).

    Example: forensics doctor --strict --format json, or forensics doctor --pid 4711
    """
    from forensics.shim.doctor import Health, host_checks
    from forensics.shim.host_access import access_checks
    from forensics.shim.live_dumps import host_live_dumps
    from forensics.shim.process_checks import process_checks
    from forensics.shim.reader_libraries import library_checks

    if form not in ("text", "json"):
        raise ForensicsError(f"--format {form}: choose text or json", ExitCode.USAGE)
    kinds = (host_checks(os.environ), host_live_dumps(os.environ), access_checks(os.environ), library_checks())
    host = [check for kind in kinds for check in kind] if pid is None else []
    checks = host if pid is None else list(process_checks(pid))
    if form == "json":
        _as_json(checks)
    else:
        _as_text(checks)
    blamed = (Health.MISSING, Health.WARN) if strict else (Health.MISSING,)
    if any(check.health in blamed for check in checks):
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
