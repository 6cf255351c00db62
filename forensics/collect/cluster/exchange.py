"""One exchange with one node: start the command there, hear its clock, take its bundle, say how it ended."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import forensics
from forensics.bundle.layout import Status
from forensics.bundle.redaction import redact
from forensics.collect.cluster.frames import FrameReader, NoExchangeError, Received
from forensics.collect.cluster.launchers import Target

NUMBER = "{number}"
"""Stands in the command of a target for the number of the exchange, which is another one for each."""

RESERVE_BYTES = 1 << 30
"""Of the disk of the output, left free whatever nodes send."""

_READ = 1 << 18
_GRACE_S = 2.0
_TAIL = 4096
_OTHER_VERSION = re.compile(r"no such option|unexpected extra argument", re.IGNORECASE)
# bash and sudo, runc for kubectl, slurmstepd.
_NOT_THERE = re.compile(r"command not found|executable file not found|execve\(\).*no such file", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The clock of a node minus the clock here, ns: the truth lies within `bound_ns` of `offset_ns` unless a clock was set."""

    offset_ns: int
    bound_ns: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """What came of one target. `bundle` is the file that was received, which may be cut; times are CLOCK_REALTIME here, ns."""

    name: str
    status: Status
    reason: str | None
    begin_ns: int
    end_ns: int
    bundle: Path | None = None
    offset: ClockOffset | None = None


@dataclass(slots=True)
class _Ending:
    """How the process of an exchange ended."""

    begin_ns: int
    asked_ns: int | None = None
    code: int | None = None
    timed_out: bool = False
    refusal: str | None = None
    errors: bytes = b""


async def exchange(target: Target, spool: Path, deadline_s: float) -> Delivery:
    """Collect from one target into the file `spool`; whatever happens there, a delivery says what."""
    ending = _Ending(time.time_ns())
    if target.refusal is not None:
        return Delivery(target.name, Status.NODE_UNREACHABLE, target.refusal, ending.begin_ns, ending.begin_ns)
    number = secrets.token_hex(16)
    with spool.open("wb") as sink:
        reader = FrameReader(number, sink, _room(spool))
        await _run(target, number, reader, ending, deadline_s)
    return _delivery(target, spool, reader, ending, deadline_s)


def _room(spool: Path) -> int:
    found = os.statvfs(spool.parent)
    return max(0, found.f_bavail * found.f_frsize - RESERVE_BYTES)


async def _run(target: Target, number: str, reader: FrameReader, ending: _Ending, deadline_s: float) -> None:
    """The process from its start to its end, which comes at the deadline at the latest."""
    argv = [word.replace(NUMBER, number) for word in target.argv]
    pipe = asyncio.subprocess.PIPE
    environ: Mapping[str, str] | None = target.environ
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=pipe, stdout=pipe, stderr=pipe, env=environ, start_new_session=True
        )
    except OSError as error:
        ending.refusal = f"{argv[0]}: {error.strerror}"
        return
    listening = asyncio.create_task(_listen_to_errors(process, ending))
    try:
        async with asyncio.timeout(deadline_s):
            await _listen(process, number, reader, ending)
            if not reader.received.is_whole:
                ending.code = await process.wait()
                await listening
    except TimeoutError:
        ending.timed_out = True
    except NoExchangeError as error:
        ending.refusal = str(error)
    except OSError as error:  # the disk here is full
        ending.refusal = f"cannot keep what it sends: {error.strerror}"
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await _end(process)


async def _listen(process: asyncio.subprocess.Process, number: str, reader: FrameReader, ending: _Ending) -> None:
    """Feed the reader until the bundle is whole or the output ends; answer the first word of the node's clock."""
    assert process.stdout is not None and process.stdin is not None
    while not reader.received.is_whole and (data := await process.stdout.read(_READ)):
        reader.feed(data, time.time_ns())
        if reader.received.clocks and ending.asked_ns is None:
            ending.asked_ns = time.time_ns()
            with suppress(ConnectionError):
                process.stdin.write(f"{number}\n".encode())
                await process.stdin.drain()


async def _listen_to_errors(process: asyncio.subprocess.Process, ending: _Ending) -> None:
    assert process.stderr is not None
    while data := await process.stderr.read(_READ):
        ending.errors = (ending.errors + data)[-_TAIL:]


async def _end(process: asyncio.subprocess.Process) -> None:
    """Ask the process and what it started to end, then make it; one that sleeps in the kernel is left."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, how)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                await process.wait()
    if process.stdin is not None:
        process.stdin.close()
    for stream in filter(None, (process.stdout, process.stderr)):  # what is left in the pipes keeps them open
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_S):
                while await stream.read(_READ):
                    pass


def _delivery(target: Target, spool: Path, reader: FrameReader, ending: _Ending, deadline_s: float) -> Delivery:
    got = reader.received
    status, reason = _outcome(reader, ending, deadline_s)
    kept = spool if got.size is not None and got.stored else None
    if kept is None:
        spool.unlink(missing_ok=True)
    return Delivery(target.name, status, reason, ending.begin_ns, time.time_ns(), kept, _offset(got, ending))


def _outcome(reader: FrameReader, ending: _Ending, deadline_s: float) -> tuple[Status, str | None]:
    """Status and reason: first what came, then how it ended, then what the other side wrote of it."""
    got, said = reader.received, _line(ending.errors)
    if got.size is not None:
        return _of_a_bundle(reader, ending, deadline_s)
    if ending.timed_out:
        if got.clocks:
            return Status.TIMEOUT, f"it began to collect and sent no bundle within {deadline_s:.0f} s"
        return Status.NODE_UNREACHABLE, f"no answer within {deadline_s:.0f} s{said and f': {said}'}"
    if ending.refusal is not None:
        return Status.NODE_UNREACHABLE if not got.clocks else Status.PARTIAL, ending.refusal
    if got.failure is not None:
        return Status.KILLED, f"forensics {got.version} there ended with {got.code}: {_plain(got.failure)}"
    return _of_silence(got, ending.code, ending.errors)


def _of_a_bundle(reader: FrameReader, ending: _Ending, deadline_s: float) -> tuple[Status, str | None]:
    got = reader.received
    if not got.is_whole:
        why = f" within {deadline_s:.0f} s" if ending.timed_out else f"; {ending.refusal}" if ending.refusal else ""
        return Status.PARTIAL, f"{got.stored} of {got.size} bytes of its bundle came{why}"
    if not reader.is_sound:
        return Status.PARTIAL, "its bundle was changed in transit: another digest than was sent"
    return Status.OK, None if got.version == forensics.__version__ else f"collected by forensics {got.version}"


def _of_silence(got: Received, code: int | None, errors: bytes) -> tuple[Status, str]:
    """The process ended and had sent nothing."""
    if got.clocks:
        return Status.KILLED, f"it began to collect and ended without a bundle: {_words(code, _line(errors))}"
    if line := _line(errors, _OTHER_VERSION):
        return Status.UNSUPPORTED, f"forensics there is of another version, which cannot send its bundle: {_words(code, line)}"
    line = _line(errors, _NOT_THERE)
    if line or code in (126, 127):
        words = _words(code, line or _line(errors))
        return Status.NOT_FOUND, f"forensics could not be started there (--remote-command names it): {words}"
    return Status.NODE_UNREACHABLE, _words(code, _line(errors))


def _words(code: int | None, line: str) -> str:
    return f"exit {code}{line and f': {line}'}"


def _line(errors: bytes, telling: re.Pattern[str] = re.compile(r"\w")) -> str:
    """The last line on standard error of which `telling` is found, fit to be shown; empty without one."""
    lines = [_plain(line) for line in errors.decode("utf-8", "replace").splitlines()]
    stated = [line for line in lines if telling.search(line)]
    return stated[-1][:300] if stated else ""


def _plain(text: str) -> str:
    kept = "".join(char if char.isprintable() else " " for char in text).strip(" │╭╮╰╯─")
    return redact(kept, Counter())


def _offset(got: Received, ending: _Ending) -> ClockOffset | None:
    """What the clock of the node is ahead: each reading was made between what was asked and what was heard here."""
    asked = [ending.begin_ns, ending.asked_ns]
    between = [
        (read - heard, read - since) for (read, heard), since in zip(got.clocks, asked, strict=False) if since is not None
    ]
    if not between:
        return None
    low, high = max(low for low, _ in between), min(high for _, high in between)
    return ClockOffset((low + high) // 2, -(-(high - low) // 2)) if low <= high else None
