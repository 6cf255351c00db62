"""The node whose daemon Open MPI before 3 lost: its name stands two lines below the words (help-errmgr-base.txt)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.ingest._job_logs.nccl_tests import Failed

WORDS = ("lost communication with its daemon",)
_NAME = re.compile(r"^\s{1,8}hostname: {1,8}(?P<host>[\w.-]{1,253})\s*$")
_NEAR = 4


class LostDaemons:
    """Reads the words, and the name below them."""

    def __init__(self) -> None:
        self._left = 0

    @property
    def is_open(self) -> bool:
        """Whether a name may follow."""
        return self._left > 0

    def feed(self, line: str) -> Iterator[Failed]:
        """The node, once its name stands there."""
        if WORDS[0] in line:
            self._left = _NEAR
        elif self._left:
            self._left -= 1
            if found := _NAME.match(line):
                self._left = 0
                yield Failed("node_failed", found["host"], None)
