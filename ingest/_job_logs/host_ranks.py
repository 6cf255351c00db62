"""Which ranks each host of a job has, where every rank states its number, how many there are, and its host in one line.

`[gpu-c07] rank 2/3 initialized`, `gpu-c07: rank 2 of 3`, `rank 2/3 is up on gpu-c07`: words of people's own programs, so they
count only where all ranks from 0 on say so, each of one host.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

from forensics.ingest._job_logs.patterns import mentions

EXPRESSIONS = {"rank 0/0": r"(?i:rank)[ =:]{1,2}\d{1,7} ?/ ?\d", "rank 0 of": r"(?i:rank)[ =:]{1,2}\d{1,7} of \d"}
_WORDS = ("ank ", "ank=", "ank:")
_HOST = r"(?P<host>(?=[\w.-]{0,80}\d)[A-Za-z][\w.-]{1,80})"
_NUMBER = r"(?<![\w.-])(?i:rank)[ =:]{1,2}(?P<rank>\d{1,7})(?: ?/ ?| of )(?P<size>\d{1,7})(?![\w.])"
_FORMS = (
    re.compile(rf"^\[?{_HOST}(?:\]:?|:) {{1,4}}(?:.{{0,40}}[ \[(])?{_NUMBER}"),
    re.compile(rf"{_NUMBER}.{{0,40}}? (?:on|host[=:]?) {{0,2}}{_HOST}"),
)
_MOST = 1 << 17


class HostRanks:
    """Collects them over a file."""

    def __init__(self) -> None:
        self._hosts: dict[str, set[int]] = defaultdict(set)
        self._stated: set[tuple[int, int]] = set()

    def feed(self, line: str) -> None:
        """Take one line."""
        if len(self._stated) >= _MOST or not mentions(line, _WORDS):
            return
        said = next((found for form in _FORMS if (found := form.search(line))), None)
        # A number that is as high as their count is counted from 1.
        if said and int(said["rank"]) < int(said["size"]):
            self._hosts[said["host"]].add(int(said["rank"]))
            self._stated.add((int(said["rank"]), int(said["size"])))

    @property
    def by_host(self) -> Mapping[str, set[int]]:
        """All ranks of each host, where those of all hosts are all ranks of one job."""
        sizes = {size for _, size in self._stated}
        placed = sum(map(len, self._hosts.values()))
        return self._hosts if len(self._stated) == placed and sizes == {placed} else {}

    def of_node(self, host: str) -> frozenset[int]:
        """Those of one host."""
        return frozenset(self.by_host.get(host, ()))
