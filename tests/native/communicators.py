"""One process that leads communicators of two ranks through their lives by ctypes; see test_testbed.py.

Run as a script: `communicators.py LIBRARY STREAMS`. Prints what it did, one word each.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from collections.abc import Callable

SUM, INT32, IN_PROGRESS, NO_COLOR, ABORT_FIRST = 0, 2, 7, -1, 1
Comm = ctypes.c_void_p


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Config(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("numbers", ctypes.c_uint * 2),
        ("blocking", ctypes.c_int),
        ("more", ctypes.c_int * 3),
        ("net", ctypes.c_char_p),
        ("last", ctypes.c_int * 2),
        ("name", ctypes.c_char_p),
    ]


nccl, streams = ctypes.CDLL(sys.argv[1]), ctypes.CDLL(sys.argv[2])


def check(result: int, expected: int = 0) -> None:
    if result != expected:
        raise SystemExit(f"result {result}, not {expected}")


def together(calls: list[Callable[[], int]]) -> list[int]:
    """The results of calls that wait for each other."""
    results = [99] * len(calls)

    def run(index: int) -> None:
        results[index] = calls[index]()

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def reduce(comms: list[Comm], numbers: list[int]) -> list[int]:
    """Each rank's number summed over the communicator, all ranks from this thread in one group."""
    stream = [ctypes.c_void_p() for _ in comms]
    cells = [ctypes.c_int32(number) for number in numbers]
    check(nccl.ncclGroupStart())
    for comm, cell, at in zip(comms, cells, stream, strict=True):
        check(streams.testbed_stream_create(ctypes.byref(at)))
        check(nccl.ncclAllReduce(ctypes.byref(cell), ctypes.byref(cell), ctypes.c_size_t(1), INT32, SUM, comm, at))
    check(nccl.ncclGroupEnd())
    for at in stream:
        check(streams.testbed_stream_destroy(at))
    return [cell.value for cell in cells]


def number(call: Callable[..., int], comm: Comm) -> int:
    value = ctypes.c_int()
    check(call(comm, ctypes.byref(value)))
    return value.value


def split_and_shrink(comms: list[Comm]) -> None:
    """Split reverses the order; a color of -1 gives none; shrink leaves the last one out."""
    made = [Comm(), Comm(), Comm()]
    colors = [4, 4, NO_COLOR]
    together([lambda i=i: nccl.ncclCommSplit(comms[i], colors[i], -i, ctypes.byref(made[i]), None) for i in range(3)])  # type: ignore[misc]
    assert made[2].value is None and [number(nccl.ncclCommUserRank, comm) for comm in made[:2]] == [1, 0]
    assert reduce(made[:2], [5, 6]) == [11, 11]
    last = (ctypes.c_int * 1)(2)
    small = [Comm(), Comm()]
    shrink = nccl.ncclCommShrink
    assert together([lambda i=i: shrink(comms[i], last, 1, ctypes.byref(small[i]), None, 0) for i in range(2)]) == [0, 0]  # type: ignore[misc]
    assert [number(nccl.ncclCommCount, comm) for comm in small] == [2, 2]
    assert reduce(small, [1, 2]) == [3, 3]
    for comm in (*made[:2], *small):
        check(nccl.ncclCommDestroy(comm))
    print("split")


def open_without_blocking() -> None:
    """Creation returns at once and is in progress until the other rank comes."""
    identity = UniqueId()
    check(nccl.ncclGetUniqueId(ctypes.byref(identity)))
    config = Config(size=ctypes.sizeof(Config), name=b"early")
    comms = [Comm(), Comm()]
    check(nccl.ncclCommInitRankConfig(ctypes.byref(comms[0]), 2, identity, 0, ctypes.byref(config)), IN_PROGRESS)
    assert number(nccl.ncclCommGetAsyncError, comms[0]) == IN_PROGRESS
    check(nccl.ncclCommInitRank(ctypes.byref(comms[1]), 2, identity, 1))
    while number(nccl.ncclCommGetAsyncError, comms[0]) == IN_PROGRESS:
        time.sleep(0.001)
    assert reduce(comms, [3, 4]) == [7, 7]
    for comm in comms:
        check(nccl.ncclCommDestroy(comm))
    print("nonblocking")


def abort_while_waiting(comms: list[Comm]) -> None:
    """One rank waits for the others in a collective; abort ends the wait, revoke refuses what follows."""
    stream, cell = ctypes.c_void_p(), ctypes.c_int32(1)
    check(streams.testbed_stream_create(ctypes.byref(stream)))
    where = (comms[0], stream)
    check(nccl.ncclAllReduce(ctypes.byref(cell), ctypes.byref(cell), ctypes.c_size_t(1), INT32, SUM, *where))
    assert streams.testbed_stream_query(stream) == 0
    check(nccl.ncclCommAbort(comms[0]))
    check(streams.testbed_stream_synchronize(stream))
    check(nccl.ncclCommRevoke(comms[1], 0))
    cells = ctypes.byref(cell), ctypes.byref(cell)
    check(nccl.ncclAllReduce(*cells, ctypes.c_size_t(1), INT32, SUM, comms[1], stream), 5)
    for comm in comms[1:]:
        check(nccl.ncclCommAbort(comm))
    print("abort")


def main() -> None:
    """All of it, with communicators of three devices in one process."""
    comms = (Comm * 3)()
    check(nccl.ncclCommInitAll(comms, 3, None))
    each = [Comm(comm) for comm in comms]
    assert reduce(each, [1, 2, 3]) == [6, 6, 6]
    print("all")
    split_and_shrink(each)
    open_without_blocking()
    abort_while_waiting(each)


if __name__ == "__main__":
    main()
