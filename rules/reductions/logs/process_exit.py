"""How a launcher saw a process of a rank end."""

from __future__ import annotations

import signal
from dataclasses import dataclass

ENDED_BY_LAUNCHER = frozenset({-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP, 128 + signal.SIGTERM, 128 + signal.SIGINT})
_OF_ITSELF = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
BY_ITSELF = frozenset({code for number in _OF_ITSELF for code in (-number, 128 + number)})
"""No error of a peer ends a process like this; shells and runtimes of containers add 128 to a signal."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a launcher saw a rank end; `first` marks the one it saw fail first.

    `time` is to the second as the launcher wrote it; `is_local` says that the launcher gave the number on its host, `by_mpi`
    that it was one that ends its job with the first process, `late` that another end stands above this one. `why` says what
    tells of the end where no line does, `node` is set where the whole node was lost. `host` is where it ran; `is_code_stated`
    shows whether the launcher said with which code, `is_for_memory` that it was for memory, `is_out_of_memory` that
    somebody speaks of a kill for memory.
    """

    rank: int
    code: int
    pid: int | None
    first: bool
    source: str
    time: str | None = None
    is_local: bool = False
    by_mpi: bool = False
    why: str | None = None
    node: str | None = None
    late: bool = False
    host: str | None = None
    is_code_stated: bool = True
    is_for_memory: bool = False
    is_out_of_memory: bool = False

    @property
    def by_itself(self) -> bool:
        """Whether neither an error of a peer nor the launcher ends a process like this."""
        return self.code in BY_ITSELF and not self.late

    @property
    def table(self) -> str:
        """The artefact that it stands in."""
        return self.source.partition("#")[0]
