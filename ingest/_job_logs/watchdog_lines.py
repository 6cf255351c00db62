"""What the watchdog and the heartbeat monitor of torch's NCCL process group say, from torch 2.1 to 2.13.

Upstream: torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (`createLogPrefix`, `checkTimeout`, `Watchdog::runLoop`,
`getNCCLWatchdogTimeoutErrorMsg`). The rank inside `[PG ... Rank 3]` and `[Rank 3]` counts within the group.
"""

from __future__ import annotations

import re
from collections import Counter

from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._shared.values import integer, rank_number

_GROUP = re.compile(
    r"\[PG (?:ID (?P<id>\d{1,9}) PG GUID )?(?P<name>[^\]\s(]{1,64})"
    r"(?: ?\((?P<description>[^\]]{0,160}?)\))? Rank (?P<rank>\d{1,7})\]"
)
_PROGRESS = re.compile(
    r"[Ll]ast enqueued (?:\w+ )?work: (?P<enqueued>-?\d{1,18})"
    r"(?:[^,;.]{0,40}[,;.]? *last started (?:\w+ )?work: (?P<started>-?\d{1,18}))?"
    r".{0,60}?last completed(?: \w+)?(?: work)?: (?P<completed>-?\d{1,18})"
)
_AT = re.compile(r"at work(?: sequence id)?: (?P<at>\d{1,18})|Timeout at NCCL work: (?P<at2>\d{1,18})")
# Where a file was cut amid the line, a part of a word or number is neither: something has to follow on it.
_TIMEOUT = re.compile(
    r"Watchdog caught collective operation timeout: Work\w+\((?:SeqNum=(?P<sequence>\d{1,18}), )?"
    r"OpType=(?P<operation>\w{1,64})(?!\w|$)(?:, NumelIn=(?P<count>\d{1,18})(?!\d|$))?"
)
_MEMBER = re.compile(r"\[(?:PG (?P<group>[^\]]{1,240}?) )?Rank (?P<rank>\d{1,7})\]")
_POINT_TO_POINT = frozenset({"send", "recv", "coalesced", "recvanysource"})
WORDS = ("Watchdog caught", "[PG ", "[Rank ")
_MAX_GROUPS = 1 << 17
_MAX_TIMEOUTS = 1 << 17

_Speaker = tuple[int | None, str | None]


class WatchdogLines:
    """Collects, for each speaker and process group, the numbers it stated last."""

    def __init__(self) -> None:
        self._found: dict[tuple[_Speaker, str], LogPosition] = {}
        self._timeouts: dict[tuple[_Speaker, int], tuple[str, int | None]] = {}
        self._lines: dict[_Speaker, int] = {}
        self.has_groups = False

    def member(self, line: str, rank: int | None) -> int | None:
        """The number within its group that a line gives its rank; notes groups whose members count otherwise than the job."""
        said = _MEMBER.search(line) if "Rank " in line else None
        if said is None:
            return None
        within = rank_number(said["rank"])
        default = said["group"] is None or "default_pg" in said["group"] or said["group"] in ("0", "ID 0 PG GUID 0")
        self.has_groups = self.has_groups or not default or (rank is not None and rank != within)
        return within

    @property
    def positions(self) -> list[LogPosition]:
        """One position for each speaker and group, in the order they first spoke."""
        return list(self._found.values()) or self._by_timeouts()

    @property
    def has_several_members(self) -> bool:
        """Whether several members of one group speak, who gave up on one call: they are as many processes."""
        calls = Counter((sequence, made) for (_, sequence), made in self._timeouts.items())
        return not self.has_groups and any(count > 1 for count in calls.values())

    def _by_timeouts(self) -> list[LogPosition]:
        """Positions in the default group where no line tells of groups at all, and all ranks gave up on one number.

        Numbers that differ may be those of several groups, and so may two timeouts of one rank.
        """
        numbers = {sequence for _, sequence in self._timeouts}
        if self.has_groups or len(numbers) != 1 or not all(self._lines.values()):
            return []
        return [self._waits(speaker, sequence) for speaker, sequence in self._timeouts]

    def _waits(self, speaker: _Speaker, sequence: int) -> LogPosition:
        kind, count = self._timeouts[speaker, sequence]
        row = LogPosition(self._lines[speaker], "watchdog", communicator="0", rank=speaker[0], label=speaker[1])
        row.enqueued, row.completed, row.timed_out = sequence, sequence - 1, sequence
        row.kind, row.count, row.is_p2p = kind, count, kind in _POINT_TO_POINT
        return row

    def feed(self, number: int, line: str, rank: int | None, label: str | None, time_ns: int | None) -> None:
        """Take one line; `rank` is the global rank that the line states, `label` what its launcher put in front of it."""
        if "Watchdog caught" not in line and "[PG " not in line:
            return
        timeout = _TIMEOUT.search(line)
        if timeout and timeout["sequence"] and len(self._timeouts) < _MAX_TIMEOUTS:
            sequence = int(timeout["sequence"])
            made = (kind_of(timeout["operation"]), integer(timeout["count"]))
            again = (rank, label) in self._lines and self._timeouts.get(((rank, label), sequence)) != made
            # 0 marks one that gave up on several.
            self._lines[rank, label] = 0 if again else self._lines.get((rank, label), number)
            self._timeouts[(rank, label), sequence] = made
        progress = _PROGRESS.search(line)
        group = _GROUP.search(line)
        if progress and group:
            self._add(number, line, group, progress, (rank, label), time_ns)

    def _add(
        self,
        number: int,
        line: str,
        group: re.Match[str],
        progress: re.Match[str],
        speaker: _Speaker,
        time_ns: int | None,
    ) -> None:
        within = rank_number(group["rank"])
        # Only the default group counts its members as the job does.
        is_default = group["description"] == "default_pg" or (group["id"] in (None, "0") and group["name"] == "0")
        rank = within if speaker[0] is None and is_default else speaker[0]
        name = f"{group['name']}:{group['description']}" if group["description"] else group["name"]
        key = ((rank, speaker[1]) if rank is not None else (None, speaker[1] or f"group rank {within}"), name)
        if key not in self._found and len(self._found) >= _MAX_GROUPS:
            return
        row = self._found.setdefault(key, LogPosition(number, "watchdog", communicator=name))
        row.locator, row.time_ns, row.rank, row.label, row.group_rank = number, time_ns, rank, speaker[1], within
        row.enqueued, row.completed = integer(progress["enqueued"]), integer(progress["completed"])
        row.started = integer(progress["started"])
        at = _AT.search(line)
        if at:
            row.timed_out = integer(at["at"] or at["at2"])
            row.kind, row.count = self._timeouts.get((speaker, row.timed_out or 0), (row.kind, row.count))
            row.is_p2p = row.is_p2p or row.kind in _POINT_TO_POINT


def kind_of(operation: str) -> str:
    """`_ALLGATHER_BASE` as dumps call it: `_all_gather_base`."""
    return re.sub(r"all(reduce|gather|to_?all)", r"all_\1", operation.lower()).replace("toall", "to_all")
