"""Workers that their executor saw die, and those that were there still when the executor ended for it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from forensics.rules.reductions.logs.raised import Failure

_DIED = re.compile(r"died worker=(\d{1,7})$")


@dataclass(slots=True)
class Workers:
    """Collects them: the executor's word on each worker that died, and the ranks that say that their parent ended."""

    died: dict[int, Failure] = field(default_factory=dict)
    outlived: set[int] = field(default_factory=set)

    @property
    def ranks(self) -> set[int]:
        """Those that died."""
        return set(self.died)

    def feed(self, kind: str, rank: int | None, subject: str | None, text: str, source: str) -> None:
        """Take an event."""
        if kind == "process_exit" and (worker := _DIED.match(subject or "")):
            self.died.setdefault(int(worker[1]), Failure(int(worker[1]), text, source))
        if kind == "parent_exited" and rank is not None:
            self.outlived.add(rank)

    def own(self, speaking: int) -> dict[int, Failure]:
        """The only one that died, where all others of the `speaking` ranks were there still."""
        is_pair = self.outlived | self.died.keys() == {0, 1}
        is_whole = len(self.outlived) >= (1 if is_pair else max(2, speaking - 1)) and self.outlived.isdisjoint(self.died)
        return self.died if len(self.died) == 1 and is_whole else {}
