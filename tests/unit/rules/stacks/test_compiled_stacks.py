"""Ranks of a program in C++, by what gdb printed of each, once and again later."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, verdict_of

WAITS = (
    "#0  0x00007ffd1a3f5b63 in clock_gettime ()\n"
    "#1  0x00007f3d9c77 in cuStreamSynchronize () from /usr/lib/libcuda.so.1\n"
    "#2  0x0000560311f8 in ft::ftNcclAllReduceSum<__half> (send_buf=0x7f, size=25165824) at /src/utils/nccl_utils.cc:64\n"
    "#3  0x00005603301a in main (argc=1, argv=0x7ffd1a2e) at /src/train.cc:77\n"
)
READS = (
    "#0  0x00007f326ef0992e in __GI___libc_read (fd=23, buf=0x5603f110, nbytes=8191) at ../sysdeps/unix/sysv/linux/read.c:26\n"
    "#1  0x00007f326f1ee2c0 in std::istream::read(char*, long) () from /usr/lib/libstdc++.so.6\n"
    "#2  0x00005603301a in main (argc=1, argv=0x7ffd1a2e) at /src/train.cc:69\n"
)
ROUNDS = ("Fri Oct 28 09:12:40 UTC 2022", "Fri Oct 28 09:31:02 UTC 2022")


def rounds(folder: Path, *readers: int | None) -> Path:
    """A folder of files of gdb for each round, in which one rank reads; None: all wait."""
    for number, reader in enumerate(readers):
        (folder / f"round{number}").mkdir()
        for rank in range(4):
            head = f"$ date\n{ROUNDS[number]}\n(gdb) thread apply all bt\n\n"
            head += f'Thread 1 (Thread 0x7f32 (LWP {4000 + rank}) "train"):\n'
            stack = READS if rank == reader else WAITS
            (folder / f"round{number}" / f"rank{rank}.gdb.txt").write_text(f"{head}{stack}[Inferior 1 detached]\n")
    return folder


def test_the_rank_that_is_elsewhere_in_both_rounds_is_named(tmp_path: Path) -> None:
    verdict = verdict_of(rounds(tmp_path, 2, 2))
    assert (named(verdict), verdict.outcome) == ({2}, Outcome.HANG)


@pytest.mark.parametrize("readers", [(2, 1), (2, None), (None, None)], ids=["another one", "it came", "all wait"])
def test_nobody_is_named_where_it_moved_or_all_are_alike(tmp_path: Path, readers: tuple[int | None, ...]) -> None:
    verdict = verdict_of(rounds(tmp_path, *readers))
    assert named(verdict) == set(), verdict.outcome


def test_one_round_is_a_lead(tmp_path: Path) -> None:
    assert verdict_of(rounds(tmp_path, 2)).outcome is Outcome.INCONCLUSIVE
