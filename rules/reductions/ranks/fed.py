"""Whether data moves through a thread that reads or writes: one that waits for what never comes is not woken."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

# Kernel functions (Linux 4.18 to 6.12, net/core, net/unix, fs/pipe.c) that a read without a limit sleeps in until data comes.
_READ = re.compile(
    r"wait_woken|sk_wait_data|tcp_recvmsg\w*|unix_stream_(?:read_generic|data_wait)|(?:anon_)?pipe_read|pipe_wait_readable"
)
# And those that a write sleeps in until there is room; a socket's may be below a function that reads sleep in as well.
_WRITE = re.compile(r"sk_stream_wait_memory|sock_alloc_send_pskb|(?:anon_)?pipe_write|pipe_wait_writable")
_WRITE_TO_SOCKET = "sk_stream_wait_memory"
# Switches between samples: a read that stands has none or one, as other waits do; a download of 640 KB/s had ten a second.
_FED = 6
# A writer is woken once for a third of its buffer: an upload of 400 KB/s had one in four seconds.
_TAKEN = 3


class Look(NamedTuple):
    """One look at a thread: kernel function, whether the process handles a signal that timers send, switches, kernel stack."""

    wchan: str | None
    timed: bool | None
    switches: int | None
    stack: str | None = None

    @property
    def writes(self) -> bool:
        """Whether it waits for room for what it sends."""
        return _WRITE.fullmatch(self.wchan or "") is not None or (self.reads and _WRITE_TO_SOCKET in (self.stack or ""))

    @property
    def reads(self) -> bool:
        """Whether it sleeps in a function that a read without a limit sleeps in."""
        return _READ.fullmatch(self.wchan or "") is not None


def is_fed(looks: Sequence[Look]) -> bool:
    """Whether a thread was in such a read or write in each look, oldest first, and woken again and again between them."""
    counts = [look.switches for look in looks if look.switches is not None]
    if len(counts) < len(looks) or len(looks) < 2 or any(look.timed is not False for look in looks):
        return False
    if all(look.writes for look in looks):
        return counts[-1] - counts[0] >= _TAKEN and all(before < after for before, after in pairwise(counts))
    return all(look.reads for look in looks) and counts[-1] - counts[0] >= _FED


def least_growth(counts: Sequence[int | None]) -> int | None:
    """By how much a counter grew at least from one sample to the next; None with less than two samples, or one without it."""
    known = [count for count in counts if count is not None]
    return min(later - earlier for earlier, later in pairwise(known)) if 1 < len(known) == len(counts) else None


def mean_growth(counts: Sequence[int | None]) -> int | None:
    """By how much a counter grew on average from one sample to the next; None as in `least_growth`, or where it fell."""
    least = least_growth(counts)
    if least is None or least < 0 or counts[0] is None or counts[-1] is None:
        return None
    return (counts[-1] - counts[0]) // (len(counts) - 1)
