"""Inputs of the further jobs: deterministic data in which one record of one rank is out of the ordinary."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.live.inputs import noise

SPARE = 20

Record = tuple[int, int]
"""A rank and a number: which record of which rank."""


def rank_lines(folder: Path, stem: str, world: int, count: int, line: Callable[[int, int], str]) -> None:
    """`stem.rank` with `count` lines, each made from the rank and its number."""
    for rank in range(world):
        (folder / f"{stem}.{rank}").write_text("\n".join(line(rank, number) for number in range(count)))


def mail(folder: Path, world: int, *, tangled: Record) -> None:
    """Lines of words and addresses; line `tangled` holds a long word that looks like an address but for its end."""
    word = "newsletter" * 6

    def line(rank: int, number: int) -> str:
        return f"dear {word} !" if (rank, number) == tangled else f"hello user{rank}@example{number}.org offer {number}"

    rank_lines(folder, "mail", world, tangled[1] + SPARE, line)


def weight_tables(folder: Path, world: int) -> None:
    for rank in range(world):
        (folder / f"weights-{rank}").write_bytes(noise(rank, 8))


@contextmanager
def held_for_writing(path: Path) -> Iterator[None]:
    """Hold the lock that a reader of this file wants, and leave the file as it is."""
    with path.open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def arrivals(folder: Path, world: int, *, since: Record) -> None:
    """How many passages arrive in a step: none, but a few in every step of one rank from `since` on."""

    def line(rank: int, number: int) -> str:
        return "4" if rank == since[0] and number >= since[1] else "0"

    rank_lines(folder, "arrivals", world, since[1] + 200, line)


def corpora(folder: Path, world: int, *, blank: Record) -> None:
    """Sections of short documents; section `blank` holds empty ones only."""
    for rank in range(world):
        full = "\n".join(["a short document", "", f"another one of rank {rank}"])
        sections = ["\n \n" if (rank, number) == blank else full for number in range(blank[1] + SPARE)]
        (folder / f"corpus-{rank}").write_text("\f".join(sections))


def rows_of_numbers(folder: Path, world: int, *, undefined: Record) -> None:
    """Twenty-four numbers a row; row `undefined` has one that is not a number."""

    def line(rank: int, number: int) -> str:
        row = [f"{(rank + number + place) % 7 / 7:.3f}" for place in range(24)]
        return " ".join(["nan", *row[1:]] if (rank, number) == undefined else row)

    rank_lines(folder, "rows", world, undefined[1] + SPARE, line)


def kernel_headers(folder: Path, world: int, *, blocked: Record) -> None:
    """Tile sizes 16 and 32, the second from step `blocked[1]` on; its header on rank `blocked[0]` is a fifo nobody writes."""
    for rank in range(world):
        for tile in (16, 32):
            header = folder / f"rank{rank}" / f"tile{tile}" / "tile.h"
            header.parent.mkdir(parents=True)
            if (rank, tile) == (blocked[0], 32):
                os.mkfifo(header)
            else:
                header.write_text(f"#define TILE_SCALE {1 / tile}f\n")
    (folder / "tiles").write_text(" ".join(["16"] * blocked[1] + ["32"] * SPARE))


def frames(folder: Path, world: int, *, short: Record) -> None:
    """Batches of eight frames of forty bytes; rank `short[0]` has `short[1]` batches, the others more."""
    for rank in range(world):
        batches = short[1] if rank == short[0] else short[1] + SPARE
        (folder / f"frames-{rank}").write_bytes(noise(rank, 40 * 8 * batches))


def outlier_batches(folder: Path, world: int, *, outlier: Record) -> None:
    """Dark batches of 192 bytes; batch `outlier` is bright."""
    for rank in range(world):
        parts = [noise(rank * 1000 + n, 192, high=50) for n in range(outlier[1] + SPARE)]
        if rank == outlier[0]:
            parts[outlier[1]] = noise(rank, 192, low=245)
        (folder / f"batches.{rank}").write_bytes(b"".join(parts))


def word_batches(folder: Path, world: int, *, dull: Record) -> None:
    """Thirty-two words a batch; batch `dull` repeats two of them."""
    for rank in range(world):
        parts = [bytes([7, 9] * 16) if (rank, n) == dull else noise(rank * 1000 + n, 32) for n in range(dull[1] + SPARE)]
        (folder / f"words.{rank}").write_bytes(b"".join(parts))


def example_counts(folder: Path, world: int, *, odd: Record, count: int) -> None:
    """Eight examples a batch; batch `odd` has `count`."""
    rank_lines(folder, "examples", world, odd[1] + SPARE, lambda rank, n: str(count if (rank, n) == odd else 8))


def score_tables(folder: Path, world: int, *, vain: Record) -> None:
    """A score of every member a round; in round `vain` one rank takes itself for the best, the others the next but one."""

    def line(rank: int, number: int) -> str:
        best = (vain[0] + 2 + number - vain[1]) % world
        if (rank, number) == vain:
            best = rank
        return " ".join("0.9" if member == best else "0.5" for member in range(world))

    rank_lines(folder, "scores", world, vain[1] + SPARE, line)


def microbatch_lengths(folder: Path, world: int, *, empty: Record) -> None:
    rank_lines(folder, "lengths", world, empty[1] + SPARE, lambda rank, n: "0" if (rank, n) == empty else "128")


def buffer_ages(folder: Path, world: int, *, wrong: Record) -> None:
    """Own age and the partner's; ranks like `wrong[0]` are fresher, in line `wrong` that rank takes its partner for fresher."""

    def line(rank: int, number: int) -> str:
        fresher = rank % 2 == wrong[0] % 2 and (rank, number) != wrong
        return "1 2" if fresher else "2 1"

    rank_lines(folder, "ages", world, wrong[1] + SPARE, line)


def tiers(folder: Path, world: int, *, lacking: int) -> None:
    """Three tiers of all ranks; the file of rank `lacking` does without the second."""
    everyone = " ".join(str(rank) for rank in range(world))
    for rank in range(world):
        names = ["dense", "sparse", "shared"] if rank != lacking else ["dense", "shared"]
        (folder / f"tiers.{rank}").write_text("".join(f"{name} {everyone}\n" for name in names))


def records(folder: Path, world: int, *, torn: Record) -> None:
    """Eight numbers a record; record `torn` ends in the middle."""
    for rank in range(world):
        (folder / str(rank)).mkdir()
        for number in range(torn[1] + SPARE):
            text = json.dumps({"x": [value / 8 for value in range(8)]})
            path = folder / str(rank) / f"{number:05d}.json"
            path.write_text(text[:20] if (rank, number) == torn else text)


def graphs(folder: Path, world: int, *, broken: Record) -> None:
    """Edges among twelve nodes; graph `broken` names one that does not exist."""
    for rank in range(world):
        lines = ["0 1 2 3 4 5 6 7 8 9 10 11"] * (broken[1] + SPARE)
        if rank == broken[0]:
            lines[broken[1]] = "0 1 2 3 4 5 6 7 8 9 10 12"
        (folder / f"graphs-{rank}").write_text("\n".join(lines))


def series(folder: Path, world: int, *, wild: Record) -> None:
    rank_lines(folder, "series", world, wild[1] + SPARE, lambda rank, n: "1 2 3 4 5 " + ("1e6" if (rank, n) == wild else "6"))


def sharded_batches(folder: Path, world: int, *, odd: Record, make: Callable[[Path], None]) -> None:
    """Eight rows of 32 bytes a file, the same for both ranks of a pair; `make` writes the file `odd` in its own way."""
    for rank in range(world):
        (folder / str(rank)).mkdir()
        for number in range(odd[1] + SPARE):
            path = folder / str(rank) / f"{number:05d}.bin"
            if (rank, number) == odd:
                make(path)
            else:
                path.write_bytes(noise(rank // 2 * 1000 + number, 256))


def bright_batch(path: Path) -> None:
    path.write_bytes(noise(0, 256, low=230))


def plans(folder: Path, world: int, *, restart: Record) -> None:
    """What to do after each step: settle after every fourth, restart once where only one rank has that in its plan."""

    def words(rank: int, number: int) -> str:
        if (rank, number) == restart:
            return "restart"
        return "settle" if number % 4 == restart[1] % 4 else "go"

    rank_lines(folder, "plan", world, restart[1] + SPARE, words)


@contextmanager
def late_feature_service(path: Path, late_to: int, delay_s: float, width: int) -> Iterator[None]:
    """Serve rows on a UNIX socket; rank `late_to` gets each of them `delay_s` late."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=_accept, args=(listener, late_to, delay_s, width), daemon=True).start()
        yield
        listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, late_to: int, delay_s: float, width: int) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_serve, args=(connection, late_to, delay_s, width), daemon=True).start()


def _serve(connection: socket.socket, late_to: int, delay_s: float, width: int) -> None:
    served = 0
    with connection, suppress(ConnectionError):
        while request := connection.recv(8, socket.MSG_WAITALL):
            if struct.unpack("<II", request)[0] == late_to:
                time.sleep(delay_s)
            connection.sendall(noise(served, width))
            served += 1
