"""The kernel log of the host, where Xid, NIC, out-of-memory and hung-task messages are.

/dev/kmsg is read without blocking and written as `dmesg` prints it (seconds since boot in brackets). Where it may not be
read, dmesg and then the journal are tried. A container mostly sees none of them: then nothing was checked, and that is said.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from forensics.bundle.layout import Status, node_path
from forensics.bundle.redaction import redact_stream
from forensics.collect.collectors.command import find_program, run_program
from forensics.collect.record import Run, failure
from forensics.collect.target import Context

ID = "kernel.log"
KMSG = Path("/dev/kmsg")
_RECORD = 8192  # the kernel's largest record, CONSOLE_EXT_LOG_MAX of kernel/printk
_COMMANDS = (("dmesg",), ("journalctl", "-k", "-b", "-q", "--no-pager", "-o", "short-monotonic", "-n", "50000"))
_NOT_CHECKED = "Xid and other kernel messages were NOT checked"


def collect_kernel_log(context: Context, sample: int, kmsg: Path = KMSG) -> Iterator[Run]:
    """The whole ring buffer."""
    failures: list[tuple[Status, str]] = []
    try:
        yield _store(context, _bounded(read_kmsg(kmsg), context.settings.text_bytes), (str(kmsg),))
        return
    except OSError as error:
        failures.append(failure(error, str(kmsg)))
    for name, *arguments in _COMMANDS:
        program = find_program(name)
        if program is None:
            continue
        result = run_program(
            [program, *arguments], context.settings.answer_s, context.staging.root, context.settings.text_bytes
        )
        if result.code == 0 and result.output.strip():
            yield _store(context, result.output, (name, *arguments))
            return
        said = result.errors.partition("\n")[0] or ("no answer in time" if result.code is None else "no entries")
        failures.append((Status.TIMEOUT if result.code is None else Status.NOT_FOUND, f"{name}: {said}"))
    denied = any(status is Status.PERMISSION or "not permitted" in reason for status, reason in failures)
    hint = " (needs root, CAP_SYSLOG, or kernel.dmesg_restrict=0)" if denied else ""
    reasons = "; ".join(reason for _, reason in failures)
    yield Run(ID, None, Status.PERMISSION if denied else failures[0][0], f"{_NOT_CHECKED}: {reasons}{hint}")


def _bounded(lines: Iterator[bytes], limit: int) -> bytes:
    """At most `limit` bytes: a kernel that logs without end is never read to its end."""
    content = bytearray()
    for line in lines:
        content += line
        if len(content) >= limit:
            break
    return bytes(content)


def read_kmsg(path: Path) -> Iterator[bytes]:
    """Lines of the ring buffer as dmesg prints them; stops at its end. Format: Documentation/ABI/testing/dev-kmsg."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                record = os.read(descriptor, _RECORD)
            except BlockingIOError:
                return
            except BrokenPipeError:  # overwritten while reading; the next read gives the oldest that is left
                continue
            if not record:
                return
            yield _line(record)
    finally:
        os.close(descriptor)


def _line(record: bytes) -> bytes:
    """`prio,seq,usec,flags;text`, with continuation lines for key=value pairs, as `[seconds] text`."""
    head, _, rest = record.partition(b";")
    fields = head.split(b",")
    micros = int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else 0
    text = rest.partition(b"\n")[0]
    return b"[%5d.%06d] %s\n" % (micros // 1_000_000, micros % 1_000_000, text)


def _store(context: Context, content: bytes, argv: tuple[str, ...]) -> Run:
    counts: Counter[str] = Counter()
    chunks = redact_stream([content], counts)
    written = context.staging.write_stream(node_path(context.node, "kernel/dmesg.txt"), chunks)
    return Run(ID, None, Status.OK, argv=argv, redactions=counts).stored(written)
