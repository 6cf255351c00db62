"""Hosts of a job, and hosts that are down, as PBS and LSF list them.

Upstream: `exec_host` of `qstat -f` and rows of `pbsnodes -l` of OpenPBS, which lists hosts that are down or set aside (offline)
below no heading; `Started 24 Task(s) on Host(s) <8*h01> <8*h02>` of `bjobs -l` and the table of `bhosts` of LSF.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_HEADER = re.compile(r"HOST_NAME {1,40}STATUS {1,40}JL/U\b.*")
_LIST = re.compile(r".{0,200}\bpbsnodes -\w{0,4}l\w{0,4}\s*")
BEGIN = re.compile(rf"Job Id: \d\S{{0,200}}$|Job <\d{{1,12}}>, Job Name <|{_HEADER.pattern}|{_LIST.pattern}$")
"""What `qstat -f`, `bjobs -l`, `bhosts` and, with its command, `pbsnodes -l` begin with."""
_NAME = r"[A-Za-z0-9][\w.-]{0,252}"
_OF_PBS = re.compile(rf"\s{{1,8}}exec_host = (?P<hosts>{_NAME}/\S{{1,4000}})")
_OF_LSF = re.compile(rf".{{0,60}}\bStarted .{{0,60}}on (?:Host\(s\) )?(?P<hosts><(?:\d{{1,6}}\*)?{_NAME}>.{{0,4000}})")
_OF_TASK = re.compile(rf"<(?:\d{{1,6}}\*)?({_NAME})>")
_LISTED = re.compile(rf"(?P<host>{_NAME}) {{1,40}}(?P<state>[a-z][a-z,-]{{2,100}})(?: {{1,80}}\S.{{0,200}})?\s*")
_GONE = re.compile(rf"(?P<host>{_NAME}) {{1,40}}(?:unavail|unreach) {{1,20}}\S.*")


def hosts_of_job(line: str) -> tuple[str, ...]:
    """The hosts that a line says a job runs on."""
    if said := _OF_PBS.match(line):
        return tuple(part.partition("/")[0] for part in said["hosts"].split("+"))
    said = _OF_LSF.match(line)
    return tuple(_OF_TASK.findall(said["hosts"])) if said else ()


class DownHosts:
    """Reads the lines; `feed` gives the host that one of them says is down and that nobody set aside."""

    def __init__(self) -> None:
        self._row: re.Pattern[str] | None = None

    def feed(self, line: str) -> Iterator[str]:
        """Take one line."""
        if _LIST.fullmatch(line):
            self._row = _LISTED
        elif _HEADER.match(line):
            self._row = _GONE
        elif self._row is _LISTED:
            row = _LISTED.fullmatch(line)
            states = row["state"].split(",") if row else []
            self._row = _LISTED if row else None
            if row and "down" in states and "offline" not in states:
                yield row["host"]
        elif self._row is _GONE and (row := _GONE.fullmatch(line)):
            yield row["host"]
