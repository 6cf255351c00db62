"""How well the clock of this host is kept: the words of chronyc, else of timedatectl. Its readings are in node.json."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.bundle.layout import Status
from forensics.collect.collectors.command import find_program, run_program
from forensics.collect.record import Run
from forensics.collect.target import Context

ID = "clock"
SYNC_FILE = ".clock_sync"
_PROGRAMS = (("chronyc", "-n", "tracking"), ("timedatectl", "show"))
_LIMIT = 1 << 16


def collect_sync(context: Context, sample: int) -> Iterator[Run]:
    """What keeps the clock; left in a hidden file of the staging directory for node.json."""
    tried: list[str] = []
    for name, *arguments in _PROGRAMS:
        program = find_program(name)
        if program is None:
            tried.append(f"{name} is not installed")
            continue
        result = run_program([program, *arguments], context.settings.answer_s, context.staging.root, _LIMIT)
        if result.code == 0 and result.output.strip():
            context.staging.write(SYNC_FILE, result.output)
            yield Run(ID, None, Status.OK, argv=(name, *arguments))
            return
        tried.append(f"{name}: {(result.errors or 'no answer').partition(chr(10))[0]}")
    yield Run(ID, None, Status.NOT_FOUND, "synchronisation unknown: " + "; ".join(tried), counts=False)
