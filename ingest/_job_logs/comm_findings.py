"""What FlagScale's analyzer of NCCL calls found: lines of JSON that say which members of a communicator did not come.

Members are numbered within the communicator; the ranks of the job stand in the line itself, or in lines of the same
communicator that register it or speak of one of its members.
Upstream: flagscale/runner/tracing/analyzer.py of FlagScale, as of 2026.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, report
from forensics.ingest._shared.values import objects, rank_number, text

_COMMUNICATOR = '"comm_uid_hash"'
_FOUND = '"hang_type"'
WORDS = (_COMMUNICATOR,)
_MISSING, _CAME_LATE = "collective_missing_enter", "delayed_collective_enter"
_LOST = "probe_event_loss_possible"
_MOST = 1024


@dataclass(frozen=True, slots=True)
class _Missing:
    line: int
    api: str
    came: tuple[int, ...]
    missing: tuple[int, ...]


class CommFindings:
    """Collects the calls that some members did not enter, and who the members are."""

    def __init__(self) -> None:
        self._members: dict[str, dict[int, int]] = defaultdict(dict)
        self._found: dict[tuple[str, str], _Missing] = {}

    def feed(self, number: int, line: str) -> None:
        """Take one line."""
        if not mentions(line, WORDS):
            return
        try:
            said = orjson.loads(line[line.index("{") :])
        except ValueError:
            return
        if isinstance(said, dict) and (name := text(said.get("comm_uid_hash"))):
            self._register(self._members[name], said)
            if _FOUND in line:
                self._finding(number, name, said)

    def _register(self, members: dict[int, int], said: Mapping[str, Any]) -> None:
        listed = said.get("global_ranks")
        pairs = list(enumerate(listed)) if isinstance(listed, list) else [(said.get("comm_rank"), said.get("rank"))]
        details = said.get("details")
        missing = objects(details.get("missing_rank_status")) if isinstance(details, dict) else []
        for within, rank in (*pairs, *((each.get("comm_rank"), each.get("rank")) for each in missing)):
            within, rank = rank_number(within), rank_number(rank)
            if within is not None and rank is not None and len(members) < MOST_RANKS:
                members[within] = rank

    def _finding(self, number: int, name: str, said: Mapping[str, Any]) -> None:
        details = said.get("details")
        key = name, text(said.get("comm_seq", said.get("seq"))) or ""
        if said.get("hang_type") == _CAME_LATE:
            self._found.pop(key, None)
        elif said.get("hang_type") == _MISSING and isinstance(details, dict) and len(self._found) < _MOST:
            came, missing = (_numbers(details.get(f"{what}_comm_ranks")) for what in ("entered", "missing"))
            # Of a probe that lost events, a member may have come unseen.
            if came and missing and details.get("reason") != _LOST:
                api = text(details.get("api", said.get("api"))) or ""
                self._found[key] = _Missing(number, api.removeprefix("nccl").lower(), came, missing)

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of each call whose members are all known by their ranks."""
        for (name, sequence), found in self._found.items():
            members = self._members[name]
            if {*found.came, *found.missing} <= members.keys():
                came, missing = ([members[each] for each in part] for part in (found.came, found.missing))
                size = len(came) + len(missing)
                yield from report("analysis", found.line, f"{name}#{sequence}", came, missing, size, found.api)


def _numbers(listed: Any) -> tuple[int, ...]:
    found: Sequence[int | None] = [rank_number(each) for each in listed] if isinstance(listed, list) else []
    return tuple(each for each in found if each is not None) if len(found) <= MOST_RANKS else ()
