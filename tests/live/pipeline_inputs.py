"""Inputs of the jobs with pipelines: a store of activations that answers late or never, tables with an odd number of tokens."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

HEADER = struct.Struct("<cIIII")
FORWARD, BACKWARD = "forward", "backward"
USUAL, ODD = 6, 7


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of one rank."""

    rank: int
    step: int
    direction: str
    microbatch: int


@contextmanager
def activation_store(address: Path, odd: Pass | None, seconds: float | None, *, lasts: bool = False) -> Iterator[None]:
    """Keep activations; the first request of the pass `odd` is answered after `seconds`, never where None.

    `lasts`: so is that of this pass in every later step.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(address))
        listener.listen()
        threading.Thread(target=accept_ranks, args=(listener, odd, seconds, lasts), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def accept_ranks(listener: socket.socket, odd: Pass | None, seconds: float | None, lasts: bool) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer_rank, args=(connection, odd, seconds, lasts), daemon=True).start()


def answer_rank(connection: socket.socket, odd: Pass | None, seconds: float | None, lasts: bool) -> None:
    """Until the rank leaves: a job that was killed resets its connection, or ends within a request."""
    kept: dict[int, list[bytes]] = {}
    before = None
    with connection, suppress(ConnectionError):
        while len(header := connection.recv(HEADER.size, socket.MSG_WAITALL)) == HEADER.size:
            letter, rank, step, microbatch, size = HEADER.unpack(header)
            content = connection.recv(size, socket.MSG_WAITALL) if letter == b"P" else kept[microbatch].pop()
            if letter == b"P":
                kept.setdefault(microbatch, []).append(content)
            asked = Pass(rank, step, FORWARD if letter == b"P" else BACKWARD, microbatch)
            if asked != before and is_odd(asked, odd, lasts):
                if seconds is None:
                    threading.Event().wait()
                else:
                    time.sleep(seconds)
            before = asked
            connection.sendall(b"." if letter == b"P" else content)


def is_odd(asked: Pass, odd: Pass | None, lasts: bool) -> bool:
    if odd is None or (asked.rank, asked.direction, asked.microbatch) != (odd.rank, odd.direction, odd.microbatch):
        return False
    return asked.step == odd.step or (lasts and asked.step > odd.step)


def routing_tables(
    folder: Path, world: int, steps: int, microbatches: int, odd: Pass | None, tokens: int = ODD, *, lasts: bool = False
) -> None:
    """`tokens/again` for each microbatch of each step; the pass `odd` has another number of them."""
    for rank in range(world):
        lines = []
        for step in range(steps):
            cells = []
            for microbatch in range(microbatches):
                forward, backward = (
                    tokens if is_odd(Pass(rank, step, direction, microbatch), odd, lasts) else USUAL
                    for direction in (FORWARD, BACKWARD)
                )
                cells.append(f"{forward}/{backward}")
            lines.append(" ".join(cells))
        (folder / f"routing-{rank}.txt").write_text("\n".join(lines) + "\n")


def kernel_lock(folder: Path, odd: Pass, tokens: int = ODD) -> Path:
    """The lock that only the pass `odd` wants."""
    return folder / f"kernel-{odd.rank}-{'out' if odd.direction == FORWARD else 'again'}-{tokens}.lock"
