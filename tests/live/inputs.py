"""Inputs of the jobs: deterministic data in which one file or one record of one rank is out of the ordinary."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def noise(seed: int, size: int, low: int = 1, high: int = 250) -> bytes:
    source = random.Random(seed)
    return bytes(source.randint(low, high) for _ in range(size))


def token_shards(folder: Path, world: int, *, blocked: tuple[int, int]) -> None:
    """One file a sequence; the file `blocked` = (rank, number) is a fifo that nobody writes."""
    count = blocked[1] + 20
    for rank in range(world):
        for number in range(count):
            path = folder / f"tokens-{rank:03d}-{number:05d}.bin"
            if (rank, number) == blocked:
                os.mkfifo(path)
            else:
                path.write_bytes(noise(rank * count + number, 65))


def feature_cache(folder: Path, world: int) -> None:
    for rank in range(world):
        (folder / f"features-{rank}.bin").write_bytes(noise(rank, 64 * 96))


@contextmanager
def held_lock(path: Path) -> Iterator[None]:
    """Hold the lock file that a reader wants."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def feature_service(path: Path, silent_to: int, after: int) -> Iterator[None]:
    """Serve rows on a UNIX socket; rank `silent_to` gets no more answers after `after` rows."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=accept_readers, args=(listener, silent_to, after), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def accept_readers(listener: socket.socket, silent_to: int, after: int) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=answer_reader, args=(connection, silent_to, after), daemon=True).start()


def answer_reader(connection: socket.socket, silent_to: int, after: int) -> None:
    served = 0
    with connection:
        while request := connection.recv(8, socket.MSG_WAITALL):
            rank, width = struct.unpack("<II", request)
            if rank != silent_to or served < after:
                connection.sendall(noise(served, width))
            served += 1


def blocked_file(path: Path) -> None:
    """A fifo nobody reads: who opens it for writing waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


@contextmanager
def full_pipe(path: Path) -> Iterator[None]:
    """A fifo that is open for reading and never read: who writes more than it holds waits."""
    blocked_file(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield
    finally:
        os.close(reader)


def query_streams(folder: Path, world: int, *, barren: tuple[int, int]) -> None:
    """Twenty documents a query, thirteen bytes each, the last one the relevance; query `barren` has no relevant one."""
    for rank in range(world):
        queries = []
        for number in range(barren[1] + 20):
            documents = [noise(rank * 997 + number * 20 + place, 12) for place in range(20)]
            grades = [0 if (rank, number) == barren or place % 3 else 200 for place in range(20)]
            queries.append(b"".join(d + bytes([g]) for d, g in zip(documents, grades, strict=True)))
        (folder / f"queries.{rank}").write_bytes(b"".join(queries))


def sentences(folder: Path, world: int, *, empty: tuple[int, int]) -> None:
    """Four sentences of 32 bytes a batch; batch `empty` = (rank, number) is padding only."""
    for rank in range(world):
        text = [bytes(128) if (rank, n) == empty else noise(rank * 1000 + n, 128) for n in range(empty[1] + 13)]
        (folder / f"sentences-{rank}.txt").write_bytes(b"".join(text))


def activations(folder: Path, world: int, *, hot: tuple[int, int]) -> None:
    """128 bytes a batch; batch `hot` = (rank, number) holds one saturated value."""
    for rank in range(world):
        parts = [bytearray(noise(rank * 1000 + n, 128, high=240)) for n in range(hot[1] + 20)]
        parts[hot[1]][7] = 255 if rank == hot[0] else 100
        (folder / f"{rank}.act").write_bytes(b"".join(parts))


def pairs(folder: Path, world: int, *, flipped: tuple[int, int]) -> None:
    """One letter and 40 bytes a pair: `t` text first, `p` picture first."""
    for rank in range(world):
        letters = [b"p" if (rank, n) == flipped else b"t" for n in range(flipped[1] + 20)]
        parts = [letter + noise(rank * 1000 + n, 40) for n, letter in enumerate(letters)]
        (folder / f"pairs-{rank}.bin").write_bytes(b"".join(parts))
