"""`forensics watch`: stay beside a job, and collect by itself once it stands still."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forensics.cli.collect import AskSockets, Redact, WhichJob, packing

Folder = Annotated[Path, typer.Option("--into", help="Folder for the bundles; it is made where it is missing.")]
Every = Annotated[float, typer.Option("--interval", min=0.1, help="Seconds between two samples.")]
StuckAfter = Annotated[
    float, typer.Option(min=1.0, help="Seconds without movement that are a standstill; twice the longest pause so far if more.")
]
FirstAfter = Annotated[float, typer.Option(min=1.0, help="The same for a job that has not moved at all yet.")]
Window = Annotated[float, typer.Option(min=1.0, help="Seconds over which rates are taken; three in a row must be slow.")]
Drop = Annotated[float, typer.Option(min=1.1, help="Slow is this many times fewer operations or bytes a second than before.")]
Most = Annotated[int, typer.Option(min=0, help="Bundles to make at most.")]
Stay = Annotated[bool, typer.Option("--stay", help="Wait for the next job when one has ended.")]
Beside = Annotated[int | None, typer.Option("--beside", help="End when this process has ended, such as the job's launcher.")]
WaitFor = Annotated[float | None, typer.Option("--wait", min=0.0, help="Seconds to wait for a job. Default: until one comes.")]
Deadline = Annotated[float, typer.Option(min=1.0, help="Seconds after which a bundle is packed with what is there.")]


def watch(
    into: Folder = Path(),
    job: WhichJob = None,
    interval: Every = 10.0,
    stuck_after: StuckAfter = 60.0,
    first_after: FirstAfter = 900.0,
    window: Window = 60.0,
    drop: Drop = 2.0,
    most: Most = 3,
    stay: Stay = False,
    wait: WaitFor = None,
    beside: Beside = None,
    ask_sockets: AskSockets = False,
    is_redacted: Redact = False,
    deadline: Deadline = 120.0,
) -> None:
    """Watch the job on this host, and collect a bundle when it stands still, becomes slow, or loses a rank.

    Looks at ten ranks at most: counters of the collector inside the ranks or of Flight Recorder where they can be had, else
    stacks of three. What it sees goes to standard output, a JSON object a line. Ends with the job, on Ctrl-C or SIGTERM;
    the exit code is 0.

    Example: forensics watch --into /var/log/bundles &
    """
    from forensics.collect.interrupts import Interrupts
    from forensics.collect.session import Options
    from forensics.collect.target import Settings as Taken
    from forensics.watch.host import Host
    from forensics.watch.loop import Settings
    from forensics.watch.loop import watch as events
    from forensics.watch.readings import Means
    from forensics.watch.rhythm import Limits

    _prepare(into)
    taken = Taken(ask_sockets=ask_sockets)
    options = Options(into, job=job, deadline_s=deadline, settings=taken, pack=packing(is_redacted, "", None))
    settings = Settings(interval, most, stay, wait, Limits(stuck_after, window, first_after, drop))
    with Interrupts() as interrupts:
        for event in events(Host(into, options, interrupts, Means(ask_sockets=ask_sockets), beside), settings):
            _say(event)


def _prepare(folder: Path) -> None:
    """Make the folder, and step back behind the job."""
    import os

    from forensics.collect.child import yield_memory
    from forensics.errors import ExitCode, ForensicsError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ForensicsError(f"cannot make {folder}: {error.strerror}", ExitCode.USAGE) from error
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    yield_memory()


def _say(event: dict[str, object]) -> None:
    import datetime
    import sys

    import orjson

    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    sys.stdout.buffer.write(orjson.dumps({"time": now, **event}, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()
