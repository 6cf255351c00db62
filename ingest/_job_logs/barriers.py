"""Barriers that tell who is missing: gloo's monitored barrier, the one in the store when a group is made, and the first call.

Upstream: `monitoredBarrier` of torch/csrc/distributed/c10d/ProcessGroupGloo.cpp (ranks of the group, waited for in order
from 1), `_store_based_barrier` of torch/distributed/distributed_c10d.py (ranks of the job), `broadcastUniqueNCCLID` of
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp: at the first call of a group its first rank puts an identity into the store.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from forensics.ingest._job_logs.patterns import MISSED_BARRIER
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, ranks_of, report
from forensics.ingest._shared.values import rank_number

WORDS = (
    *("monitoredBarrier", "store based barrier", "retrieving ncclUniqueId", "GLOBAL_RANK: "),
    *("DistStoreError", "DistNetworkError"),
)
_FAILED = re.compile(MISSED_BARRIER)
_REACHED = re.compile(r"Rank (?P<rank>\d{1,7}) (?:successfully reached monitoredBarrier|timed out in monitoredBarrier)")
_STORE = re.compile(
    r"store based barrier (?:on|to initialize process group for) rank:? "
    r"(?P<rank>\d{1,7})\b.{0,200}?\(world_size=(?P<size>\d{1,7}), worker_count=(?P<came>\d{1,7})"
)
_CLIENTS = re.compile(
    r"DistStoreError: Timed out after \d{1,9} seconds waiting for clients\. (?P<came>\d{1,7})/(?P<size>\d{1,7})\b"
)
# Who came has lost the store once rank 0 gave up; who cannot reach it may have come too late.
_LOST = re.compile(r"Dist(?:Network|Store)Error: (?!.*(?:failed to connect|client socket|failed to listen|address))")
# Lightning, right before it goes to the barrier in the store.
_ANNOUNCED = re.compile(r"(?i:initializing \w{2,20}): GLOBAL_RANK: (?P<rank>\d{1,7}), MEMBER: \d{1,7}/(?P<size>\d{1,7})\b")
# A store that cannot be reached, or whose host is gone, says nothing of who came.
_FIRST_CALL = re.compile(
    r"(?:\[rank(?P<own>\d{1,7})\]: .{0,200}?)?\[(?P<rank>\d{1,7})\] is setting up NCCL communicator and retrieving "
    r"ncclUniqueId from \[0\] .{1,200}? got error: (?P<late>(?:Socket |wait )?[Tt]imed? ?out)?"
)


class Barriers:
    """Collects who came and who did not, over all barriers of a file."""

    def __init__(self) -> None:
        self._missing: set[int] = set()
        self._reached: set[int] = set()
        self._line = 0
        self._stores: dict[int, tuple[int, set[int], int]] = {}
        self._announced: dict[int, set[int]] = defaultdict(set)
        self._first_call: tuple[int, set[int]] = 0, set()
        self._has_first = True
        self._clients: tuple[int, int, int] | None = None
        self._joined: set[int] = set()

    def feed(self, number: int, line: str, rank: int | None = None) -> None:
        """Take one line of a rank, where that is known."""
        if rank is not None and _LOST.search(line) and len(self._joined) < MOST_RANKS:
            self._joined.add(rank)
            if clients := _CLIENTS.search(line):
                self._clients = number, int(clients["came"]), int(clients["size"])
        if "monitoredBarrier" in line:
            for failed in _FAILED.finditer(line):
                self._missing |= ranks_of(failed["ranks"])
                self._line = self._line or number
            for reached in _REACHED.finditer(line) if len(self._reached) < MOST_RANKS else ():
                rank = rank_number(reached["rank"])
                self._reached |= {rank} if rank is not None else set()
                self._line = self._line or number
        elif "store based barrier" in line and (said := _STORE.search(line)):
            self._waits_in_store(number, int(said["rank"]), int(said["size"]), int(said["came"]))
        elif "GLOBAL_RANK: " in line and (said := _ANNOUNCED.search(line)):
            if int(said["rank"]) < int(said["size"]) <= MOST_RANKS:
                self._announced[int(said["size"])].add(int(said["rank"]))
        elif "retrieving ncclUniqueId" in line and (said := _FIRST_CALL.search(line)):
            # A number that is not that of the job is one of a smaller group, whose first rank is another one.
            is_of_job = said["own"] in (None, said["rank"])
            self._has_first = self._has_first and is_of_job and said["late"] is not None
            if len(self._first_call[1]) < MOST_RANKS:
                self._first_call = self._first_call[0] or number, self._first_call[1] | {int(said["rank"])}

    def _waits_in_store(self, number: int, rank: int, size: int, came: int) -> None:
        if came < size <= MOST_RANKS and rank < size:
            _, waiting, most = self._stores.setdefault(size, (number, set(), 0))
            waiting.add(rank)
            self._stores[size] = (number, waiting, max(most, came))

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of all kinds; a rank that says it came and is said to be missing is neither."""
        missing = self._missing - self._reached
        if missing:
            # Ranks are waited for in order, so that all below the last missing one were heard or are named.
            present = set(range(max(missing))) - self._missing | self._reached - missing
            yield from report("barrier", self._line, "monitored_barrier", present, missing, kind="barrier")
        for size, (line, waiting, came) in sorted(self._stores.items()):
            # Not all who wait say so; who announced that it begins and who waits are all that came.
            waiting = waiting if len(waiting) == came else waiting | self._announced[size]
            if len(waiting) == came:
                missing = set(range(size)) - waiting
                yield from report("barrier", line, "store_barrier", waiting, missing, size, kind="barrier")
        if self._clients is not None:
            line, came, size = self._clients
            missing = set(range(size if size <= MOST_RANKS else 0)) - self._joined
            if came == len(self._joined) < size and size - came == len(missing):
                yield from report("barrier", line, "store", self._joined, missing, size, kind="initialization")
        line, waiting = self._first_call
        if waiting and self._has_first and 0 not in waiting:
            yield from report("barrier", line, "ncclUniqueId", waiting, {0}, kind="initialization")
