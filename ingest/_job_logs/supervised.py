"""How what keeps programs running says that one of several ended by a signal: supervisord, systemd of its units, Nomad.

Of programs that end one after the other the first by a signal counts: those that exit with a code may have lost it.
Upstream: supervisor/process.py of Supervisor 4, src/systemctl/systemctl-show.c of systemd.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from forensics.ingest._job_logs.ended import DESCRIBED, Ended

WORDS = (
    "exited: ",
    ".service - ",
    "Active: failed ",
    "Main PID: ",
    "Name                = ",
    "Client Status  ",
    " Exit Code: ",
)
_EXITED = re.compile(
    r"\bexited: (?P<name>[\w.:-]{1,120}) "
    r"\((?:terminated by (?P<signal>SIG[A-Z]{2,6})[^();]{0,20}(?:\([^()]{0,40}\))?|exit status \d{1,3}); not expected\)"
)
_UNIT = re.compile(r"^(?:\S )?(?P<unit>[\w.:-]{1,120}@[\w.:-]{1,120}\.service) - ")
_SINCE = re.compile(r"^\s{1,12}Active: failed .{0,80}? since \w{3} (?P<day>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d) ")
_MAIN = re.compile(r"^\s{1,12}Main PID: \d{1,9} \(code=(?:killed|dumped), signal=(?P<signal>[A-Z]{2,6})\)")
# `nomad alloc status` of one allocation of a group, the newest events first.
_ALLOCATION = re.compile(r"^Name {16}= (?P<name>[\w./-]{1,120}\[\d{1,6}\])")
_STATUS = re.compile(r"^Client Status {1,20}= failed\b")
_TERMINATED = re.compile(r"\bTerminated {1,20}Exit Code: (?P<code>\d{1,3})\b")
_NAMES = {int(number): name for name, number in signal.Signals.__members__.items()}
_ASKED = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})


class Supervised:
    """Reads their lines; a unit stands above what is said of it."""

    def __init__(self) -> None:
        self._unit: str | None = None
        self._allocation: str | None = None
        self._has_ended = False
        self._since = ""
        self._has_failed = False

    def feed(self, line: str) -> Iterator[Ended]:
        """The program, or the unit, that a signal ended which nobody sends in good order."""
        if unit := _UNIT.match(line):
            self._unit, self._since = unit["unit"], ""
        elif since := _SINCE.match(line):
            self._since = f" since={since['day']}T{since['time']}"
        elif self._unit is not None and (main := _MAIN.match(line)):
            yield from _ended(self._unit, f"SIG{main['signal']}", self._since)
        elif allocation := _ALLOCATION.match(line):
            self._allocation, self._has_ended = allocation["name"], False
        elif _STATUS.match(line):
            self._has_ended = True
        elif self._allocation is not None and self._has_ended and (ended := _TERMINATED.search(line)):
            number = int(ended["code"]) - 128
            yield from _ended(self._allocation, _NAMES.get(number, ""))
            self._allocation = None
        elif exited := _EXITED.search(line):
            yield from _ended(exited["name"], exited["signal"]) if exited["signal"] and not self._has_failed else ()
            self._has_failed = True


def _ended(name: str, by: str, since: str = "") -> Iterator[Ended]:
    number = signal.Signals.__members__.get(by)
    if number is not None and by not in _ASKED:
        yield Ended(None, f"exitcode=-{int(number)} service={name}{since}{DESCRIBED}", f"service {name}")
