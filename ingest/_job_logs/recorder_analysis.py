"""What torch's own analyzer of Flight Recorder dumps printed into a log (`torchfrtrace`): missing ranks, and calls that differ.

Upstream: tools/flight_recorder/components/types.py (`EntryState.log`, `MatchInfo`) of pytorch/pytorch. Its ranks are those of
the job. That an operation is in another state on one rank is no difference of calls.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from forensics.ingest._job_logs.calls import LoggedCall
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, ranks_of, report
from forensics.ingest._shared.values import rank_number

_SAID = re.compile(
    r"(?:Not all ranks joining collective,? ?(?:sequence number:? ?)?|Collective sequence number: ?)(?P<number>\d{1,18})?"
    r"|group info: ?(?P<group>[^\s,]{1,128})"
    r"|collective: ?(?P<collective>[\w:]{1,128})"
    r"|missing ranks: ?[\[{(](?P<missing>[\d, ]{1,4000})"
    r"|expected ranks: ?[\[{(](?P<expected>[\d, ]{1,4000})"
    r"|world size: ?(?P<size>\d{1,7})"
    r"|Culprit rank (?P<culprit>\d{1,7}); Error type: (?P<error>\w{1,40}), Expected [\w ]{1,40}: '?(?P<right>.{1,400}?)'?"
    r" does not match found [\w ]{1,40}: '?(?P<wrong>.{1,400}?)'?(?=, Culprit rank|$)"
)
_BEGINS = ("Not all ranks joining", "Collective sequence number:")
WORDS = (*_BEGINS, "group info:", "collective:", "missing ranks:", "expected ranks:", "world size:", "Culprit rank")
_OF_KIND = "COLLECTIVE_TYPE_MISMATCH"
_OF_CONTENT = ("SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH")
_MOST = 64


@dataclass(slots=True)
class _Entry:
    line: int
    number: str
    group: str = ""
    collective: str = ""
    missing: frozenset[int] = frozenset()
    expected: frozenset[int] = frozenset()
    size: int | None = None
    differing: dict[int, tuple[str, str, str]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.group or 'group'}#{self.number}"

    @property
    def kind(self) -> str:
        return self.collective.rpartition(":")[2].lower().lstrip("_")

    def calls(self) -> Iterator[tuple[int, LoggedCall]]:
        """The call of each rank, as far as the analyzer says in what they differ."""
        rights = {error: right for error, right, _ in self.differing.values()}
        for rank in sorted(self.expected):
            error, _, wrong = self.differing.get(rank, ("", "", ""))
            kind = wrong.rpartition(":")[2].lower().lstrip("_") if error == _OF_KIND else self.kind
            content = " ".join(wrong if known == error else right for known, right in rights.items() if known in _OF_CONTENT)
            yield rank, LoggedCall(self.line, int(self.number or 0), kind, content)


class RecorderAnalysis:
    """Collects the collectives that not all ranks joined."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def feed(self, number: int, line: str) -> None:
        """Take one line, or a whole entry that lost its line ends."""
        if not (self._entries or mentions(line, _BEGINS)) or not mentions(line, WORDS):
            return
        for said in _SAID.finditer(line):
            if said[0].startswith(_BEGINS):
                if len(self._entries) >= _MOST:
                    return
                self._entries.append(_Entry(number, said["number"] or ""))
            elif self._entries:
                self._fill(self._entries[-1], said)

    def _fill(self, entry: _Entry, said: re.Match[str]) -> None:
        entry.group = entry.group or said["group"] or ""
        entry.collective = entry.collective or said["collective"] or ""
        entry.missing = entry.missing or ranks_of(said["missing"] or "")
        entry.expected = entry.expected or ranks_of(said["expected"] or "")
        entry.size = entry.size or (int(said["size"]) if said["size"] else None)
        culprit = rank_number(said["culprit"]) if said["error"] in (_OF_KIND, *_OF_CONTENT) else None
        if culprit is not None and len(entry.differing) < MOST_RANKS:
            entry.differing[culprit] = said["error"], said["right"], said["wrong"]

    @property
    def positions(self) -> Iterator[LogPosition]:
        """Rows of each entry that says who is missing; the others of the group came where it says who they are."""
        for entry in self._entries:
            if entry.missing:
                came = entry.expected - entry.missing
                yield from report("analysis", entry.line, entry.name, came, entry.missing, entry.size, entry.kind)

    @property
    def calls(self) -> Iterator[tuple[str, int, LoggedCall]]:
        """Operation, rank and call of all members of those in which some differ from the others."""
        for entry in self._entries:
            if entry.differing and entry.differing.keys() <= entry.expected:
                yield from ((entry.name, rank, call) for rank, call in entry.calls())
