"""Text that makes a search for patterns slow: what the patterns of the log readers begin with, over and over."""

from __future__ import annotations

from collections.abc import Iterator

from tests.property.hostile import SIZE, filled

WORDS = (
    "a", " ", "0", "[", ":", "]", "(", "-", ".", ",", "\\", '"', "/", "=", "\t", "\r", "\x1b[", "\x1b]", "\x1b", "ü",
    "a.", "A", "A.", "Read error ", "Connection closed by peer ", "gloo ", "NCCL ",
    "Got completion from peer 1 with error 1 ", "vendor err 1 ", "NET/IB : a:1 Got async event", "] a:1 NCCL WARN ",
    "[PG 0 Rank 1]", "[PG ", "last enqueued work: 1,", "last enqueued work: 1, last completed work: ",
    "Timed out waiting 1ms for ", "wait timeout after 1ms, keys: ", "enforce fail at gloo] ", "enforce fail at gloo",
    "1 vs ", "srun: error: ", "srun: error: a: task 1: ", "srun: ", "line 1: 1 ", "DataLoader worker (pid 1",
    "JOB 1 ON ", "STEP a STEPD TERMINATED ON ", "Detected 1 oom_kill event in ", "[1, 2] ", "ranks [1,",
    "Call to recv from ", "NVRM: Xid (PCI:0): 1, ", "SXid (PCI:0): 1 ", "Out of memory ", "oom-kill: ",
    "oom-kill: pid=", "task a:", "task ", "soft lockup - CPU#1 stuck for [", "Lustre: ",
    "Lustre: Request sent has timed out for slow reply: ", "nfs_x: server ", "nfs4_a: ", "a: link ", "00:0",
    "0000:00: ", "Nodes ", "Node a", "requeue job JobId=", "Normal  A", "Warning Aa pod/a ", "Killing JobId=a ",
    "Watchdog caught collective operation timeout: Work", "host:1:1 [0] NCCL INFO ", "h:1:1 [0] a:1 (",
    "comm 0x1 rank 1 nranks 1 ", "comm 0x1 ", "commId 0x1 ", "NET/IB : ", "Traceback (most recent call last):",
    '  File "a', "    a (", 'Thread 1 (idle): "', "Thread 0x1 [", "    (a (", '  File "a", line 1, in ', "  rank : 1 (",
    "  exitcode : ", "[save_count 1] [1.000000001] [Rank 0] Fun A Data 1 stream 0x1 opCount 1 ", " groupHash 1",
    "2026-01-01T00:00:00", "[a]:", "[rank1]", "1: ", "  The missing ranks: 1, ", "  Rank 1 ", " 1 1",
    "  1 ranks reported a ", "Job summary", "from peer 1 with status=1(", "Last enqueued work: 1 Last started work: 1 ",
)  # fmt: skip


def lines(size: int = SIZE) -> Iterator[tuple[str, bytes]]:
    """Text of one word over and over: on one line, on lines of 4000 and of 100 characters, and on lines of it alone."""
    for word in WORDS:
        raw = word.encode()
        long = filled(raw, 4000) + b"\n"
        short = filled(raw, 100) + b"\n"
        yield f"one line of {word!r}", filled(raw, size)
        yield f"long lines of {word!r}", filled(long, size)
        yield f"lines of {word!r}", filled(short, size)
        yield f"{word!r} on a line", filled(raw + b"\n", size)


HEADS: dict[str, tuple[str, bytes]] = {
    "train.log": ("training_log", b""),
    "nccl.log": ("nccl_log", b"host:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 - Init START\n"),
    "dmesg.txt": ("kernel_log", b"[    1.000000] a\n"),
    "slurmd.log": ("scheduler_log", b"[2026-01-01T00:00:00] launch task StepId=1.0\n"),
    "ras.txt": ("nccl_ras_text", b"Job summary\n===========\n\n  Nodes  Processes\n"),
    "stacks.txt": ("python_stacks_text", b'Thread 1 (idle): "MainThread"\n    a (b.py:1)\n'),
    "rank_0.log": ("megatrace_log", b"[save_count 1] [1.000000001] [Rank 0] Fun A Data 1 stream 0x1 opCount 1\n"),
    "nsight.csv": ("nsight", b""),
    "smi.txt": ("nvidia_smi", b""),
}
