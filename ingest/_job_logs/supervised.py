"""How what keeps programs running on a host says that one of several ended by a signal: supervisord, and systemd of its units.

Of programs that end one after the other the first by a signal counts: those that exit with a code may have lost it.
Upstream: supervisor/process.py of Supervisor 4, src/systemctl/systemctl-show.c of systemd.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator

from forensics.ingest._job_logs.ended import DESCRIBED, Ended

WORDS = ("exited: ", ".service - ", "Active: failed ", "Main PID: ")
_EXITED = re.compile(
    r"\bexited: (?P<name>[\w.:-]{1,120}) "
    r"\((?:terminated by (?P<signal>SIG[A-Z]{2,6})[^();]{0,20}(?:\([^()]{0,40}\))?|exit status \d{1,3}); not expected\)"
)
_UNIT = re.compile(r"^(?:\S )?(?P<unit>[\w.:-]{1,120}@[\w.:-]{1,120}\.service) - ")
_SINCE = re.compile(r"^\s{1,12}Active: failed .{0,80}? since \w{3} (?P<day>\d{4}-\d\d-\d\d) (?P<time>\d\d:\d\d:\d\d) ")
_MAIN = re.compile(r"^\s{1,12}Main PID: \d{1,9} \(code=(?:killed|dumped), signal=(?P<signal>[A-Z]{2,6})\)")
_ASKED = frozenset({"SIGTERM", "SIGINT", "SIGHUP"})


class Supervised:
    """Reads their lines; a unit stands above what is said of it."""

    def __init__(self) -> None:
        self._unit: str | None = None
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
        elif exited := _EXITED.search(line):
            yield from _ended(exited["name"], exited["signal"]) if exited["signal"] and not self._has_failed else ()
            self._has_failed = True


def _ended(name: str, by: str, since: str = "") -> Iterator[Ended]:
    number = signal.Signals.__members__.get(by)
    if number is not None and by not in _ASKED:
        yield Ended(None, f"exitcode=-{int(number)} service={name}{since}{DESCRIBED}", f"service {name}")
