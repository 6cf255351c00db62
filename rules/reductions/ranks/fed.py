"""Whether data comes to a thread that reads: one that waits for data that never comes is not woken."""

from __future__ import annotations

import re
from collections.abc import Sequence

# Kernel functions (Linux 4.18 to 6.12, net/core, net/unix, fs/pipe.c) that a read without a limit sleeps in until data comes.
_READ = re.compile(
    r"wait_woken|sk_wait_data|tcp_recvmsg\w*|unix_stream_(?:read_generic|data_wait)|(?:anon_)?pipe_read|pipe_wait_readable"
)
# Switches between samples: a read that stands has none or one, as other waits do; a download of 640 KB/s had ten a second.
_FED = 6


def is_fed(samples: Sequence[tuple[str | None, bool | None, int | None]]) -> bool:
    """Whether a thread was in such a read in each sample, and woken again and again between them.

    Samples are (kernel function, whether the process handles a signal that timers send, context switches), oldest first.
    """
    counts = [switches for _, _, switches in samples if switches is not None]
    reads = all(timed is False and wchan is not None and _READ.fullmatch(wchan) for wchan, timed, _ in samples)
    return reads and len(counts) == len(samples) > 1 and counts[-1] - counts[0] >= _FED
