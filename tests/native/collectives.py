"""One rank that calls every collective of a library through ctypes and checks each result; see test_testbed.py.

Run as a script: `collectives.py LIBRARY STREAMS COUNT`, with RANK, WORLD_SIZE and the unique id in hexadecimal in JOB_ID.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable

INT32, FLOAT32, SUM, PROD, MAX, MIN, AVG = 2, 7, 0, 1, 2, 3, 4
Numbers = list[float]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


class Rank:
    """A communicator of this process, and buffers of `count` elements per rank."""

    def __init__(self, nccl: ctypes.CDLL, streams: ctypes.CDLL, count: int) -> None:
        self.nccl, self.streams, self.count = nccl, streams, count
        self.rank, self.size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.comm, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        identity = UniqueId.from_buffer_copy(bytes.fromhex(os.environ["JOB_ID"]))
        self.check(nccl.ncclCommInitRank(ctypes.byref(self.comm), self.size, identity, self.rank))
        self.check(streams.testbed_stream_create(ctypes.byref(self.stream)))

    def check(self, result: int) -> None:
        if result != 0:
            raise SystemExit(f"rank {self.rank}: result {result}")

    def fed(self, rank: int, index: int) -> int:
        """What rank `rank` puts at `index`."""
        return (rank + 1) * (index % 7 + 1)

    def run(
        self, name: str, send: int, receive: int, call: Callable[[object, object], list[int]], kind: int = INT32
    ) -> Numbers:
        """The receive buffer after a call with buffers of that many elements."""
        element = ctypes.c_int32 if kind == INT32 else ctypes.c_float
        given = (element * max(send, 1))(*[self.fed(self.rank, index) for index in range(send)])
        taken = (element * max(receive, 1))()
        for result in call(given, taken):
            self.check(result)
        self.check(self.streams.testbed_stream_synchronize(self.stream))
        return list(taken)[:receive]

    def expect(self, name: str, found: Numbers, expected: Numbers) -> None:
        if found != expected:
            wrong = next(i for i, pair in enumerate(zip(found, expected, strict=True)) if pair[0] != pair[1])
            raise SystemExit(f"rank {self.rank}: {name}: element {wrong} is {found[wrong]}, not {expected[wrong]}")


def reductions(me: Rank) -> None:
    """AllReduce, Reduce and ReduceScatter."""
    count, where, ranks = me.count, (me.comm, me.stream), range(me.size)
    sums: Numbers = [sum(me.fed(rank, index) for rank in ranks) for index in range(count * me.size)]
    n = ctypes.c_size_t(count)
    found = me.run("AllReduce", count, count, lambda a, b: [me.nccl.ncclAllReduce(a, b, n, INT32, SUM, *where)])
    me.expect("AllReduce", found, sums[:count])
    found = me.run("maximum", count, count, lambda a, b: [me.nccl.ncclAllReduce(a, b, n, INT32, MAX, *where)])
    me.expect("maximum", found, [me.fed(me.size - 1, index) for index in range(count)])
    found = me.run("average", count, count, lambda a, b: [me.nccl.ncclAllReduce(a, b, n, FLOAT32, AVG, *where)], FLOAT32)
    me.expect("average", found, [value / me.size for value in sums[:count]])
    root = me.size - 1
    found = me.run("Reduce", count, count, lambda a, b: [me.nccl.ncclReduce(a, b, n, INT32, SUM, root, *where)])
    me.expect("Reduce", found, sums[:count] if me.rank == root else [0] * count)
    whole = count * me.size
    found = me.run("ReduceScatter", whole, count, lambda a, b: [me.nccl.ncclReduceScatter(a, b, n, INT32, SUM, *where)])
    me.expect("ReduceScatter", found, sums[me.rank * count : (me.rank + 1) * count])


def copies(me: Rank) -> None:
    """Broadcast, Bcast, AllGather, AlltoAll, Gather, Scatter, and a ring of sends."""
    count, where, whole, root = me.count, (me.comm, me.stream), me.count * me.size, me.size // 2
    n = ctypes.c_size_t(count)
    of: Callable[[int, int], Numbers] = lambda rank, start: [me.fed(rank, start + index) for index in range(count)]  # noqa: E731
    found = me.run("Broadcast", count, count, lambda a, b: [me.nccl.ncclBroadcast(a, b, n, INT32, root, *where)])
    me.expect("Broadcast", found, of(root, 0))
    found = me.run("AllGather", count, whole, lambda a, b: [me.nccl.ncclAllGather(a, b, n, INT32, *where)])
    me.expect("AllGather", found, [value for rank in range(me.size) for value in of(rank, 0)])
    found = me.run("AlltoAll", whole, whole, lambda a, b: [me.nccl.ncclAlltoAll(a, b, n, INT32, *where)])
    me.expect("AlltoAll", found, [value for rank in range(me.size) for value in of(rank, me.rank * count)])
    found = me.run("Gather", count, whole, lambda a, b: [me.nccl.ncclGather(a, b, n, INT32, root, *where)])
    me.expect("Gather", found, [v for rank in range(me.size) for v in of(rank, 0)] if me.rank == root else [0] * whole)
    found = me.run("Scatter", whole, count, lambda a, b: [me.nccl.ncclScatter(a, b, n, INT32, root, *where)])
    me.expect("Scatter", found, of(root, me.rank * count))
    after, before = (me.rank + 1) % me.size, (me.rank - 1) % me.size

    def ring(given: object, taken: object) -> list[int]:
        results = [me.nccl.ncclGroupStart(), me.nccl.ncclSend(given, n, INT32, after, *where)]
        return [*results, me.nccl.ncclRecv(taken, n, INT32, before, *where), me.nccl.ncclGroupEnd()]

    me.expect("SendRecv", me.run("SendRecv", count, count, ring), of(before, 0))


def main() -> None:
    """Every collective twice, so that links are used again."""
    streams = ctypes.CDLL(sys.argv[2])
    me = Rank(ctypes.CDLL(sys.argv[1]), streams, int(sys.argv[3]))
    for _ in range(2):
        reductions(me)
        copies(me)
    me.check(me.nccl.ncclCommDestroy(me.comm))


if __name__ == "__main__":
    main()
