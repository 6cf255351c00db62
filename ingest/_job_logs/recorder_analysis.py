"""What torch's own analyzer of Flight Recorder dumps printed into a log (`torchfrtrace`): missing ranks, and calls that differ.

Upstream: tools/flight_recorder, later torch/distributed/flight_recorder, of pytorch/pytorch: `EntryState.log`, `MatchInfo` and
`Op.match` of components/types.py. Its ranks are those of the job. That an operation is in another state on one rank is no
difference of calls; earlier versions compared states before sizes, so that it may hide one. Sends, receives and coalesced
calls are said to differ and not in what; sizes that fit no member of an operation are no difference either.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from forensics.ingest._job_logs.calls import LoggedCall
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.positions import LogPosition
from forensics.ingest._job_logs.reports import MOST_RANKS, ranks_of, report
from forensics.ingest._shared.values import rank_number

_BEGINS = ("Not all ranks joining", "Collective sequence number:", " at entry ", "in the collective sequence number:")
WORDS = (*_BEGINS, "group info:", "collective:", "missing ranks:", "expected ranks:", "world size:", "Culprit rank")
_SAID = re.compile(
    r"(?P<begin>Not all ranks joining collective,? ?(?:sequence number:? ?)?|Input/output mismatch in the collective "
    r"sequence number: ?|Collective sequence number: ?|Collective (?=\d{1,18} at entry \d{1,18} errors))(?P<number>\d{1,18})?"
    r"|group info: ?(?P<group>[^\s,]{1,128})"
    r"|collective: ?(?P<collective>[\w:]{1,128})"
    r"|missing ranks: ?[\[{(](?P<missing>[\d, ]{1,4000})[\]})]"
    r"|expected ranks: ?(?:[\[{(](?P<expected>[\d, ]{1,4000})[\]})]|(?P<count>\d{1,7})\b)"
    r"|world size: ?(?P<size>\d{1,7})"
    r"|Culprit rank (?P<culprit>\d{1,7}); Error type: (?P<error>\w{1,40})(?:, (?P<details>.{1,900}?))?"
    r"(?=, Culprit rank|,? collective stack trace|\s*$)"
)
_DIFFERS = re.compile(
    r"Expected (?P<what>[a-z ]{1,40}?)s?: (?P<quote>'|(?!'))(?P<right>.{1,400}?)(?P=quote) does not match "
    r"found (?P<found>[a-z ]{1,40}?)s?: (?P=quote)(?P<wrong>.{1,400}?)(?P=quote)"
)
_FITS_NOBODY = "Found input numel "
_OF_KIND = "COLLECTIVE_TYPE_MISMATCH"
_OF_CONTENT = ("SIZE_OR_SYNTAX_MISMATCH", "COLLECTIVE_DTYPE_MISMATCH")
_OF_ALL = ":default_pg"
_MOST = 64
_LONGEST = 4000
"""Longer lines were cut where they are read."""


@dataclass(slots=True)
class _Entry:
    """`differing` are error, right and wrong of culprits; of `hidden` ones it is not stated whether their calls differ."""

    line: int
    number: str
    group: str = ""
    collective: str = ""
    missing: frozenset[int] = frozenset()
    expected: frozenset[int] = frozenset()
    size: int | None = None
    count: int = 0
    differing: dict[int, tuple[str, str, str]] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    is_cut: bool = False

    @property
    def name(self) -> str:
        return f"{self.group or 'group'}#{self.number}"

    @property
    def kind(self) -> str:
        return self.collective.rpartition(":")[2].lower().lstrip("_")

    @property
    def members(self) -> frozenset[int]:
        """Ranks of the group; of all of them the first version prints how many they are."""
        is_known = not self.expected and self.group.endswith(_OF_ALL) and self.count <= MOST_RANKS
        return frozenset(range(self.count)) if is_known else self.expected

    def accuse(self, rank: int, error: str, details: str | None) -> None:
        """Take a culprit: in what its call differs from that of the file which the analyzer opened first."""
        said = _DIFFERS.fullmatch(details or "")
        if error not in (_OF_KIND, *_OF_CONTENT) or not (said or (details or "").startswith(_FITS_NOBODY)):
            self.hidden.add(rank)
        elif said and said["what"] == said["found"]:
            right, wrong = _in_order(said["right"], said["wrong"])
            self.differing |= {rank: (error, right, wrong)} if right != wrong else {}

    def calls(self) -> Mapping[int, LoggedCall]:
        """The call of each rank, as far as the analyzer says in what they differ; none where what is hidden may decide."""
        if self.is_cut or not self.differing or not self.differing.keys() | self.hidden <= self.members:
            return {}
        rights = {error: right for error, right, _ in self.differing.values()}
        made = {rank: self._call(rank, rights) for rank in sorted(self.members - self.hidden)}
        alike = Counter((call.kind, call.sizes) for call in made.values())
        return made if not self.hidden or 2 * max(alike.values()) > len(self.members) else {}

    def _call(self, rank: int, rights: Mapping[str, str]) -> LoggedCall:
        error, _, wrong = self.differing.get(rank, ("", "", ""))
        kind = wrong.rpartition(":")[2].lower().lstrip("_") if error == _OF_KIND else self.kind
        content = " ".join(wrong if known == error else right for known, right in rights.items() if known in _OF_CONTENT)
        return LoggedCall(self.line, int(self.number or 0), kind, content)


def _in_order(right: str, wrong: str) -> tuple[str, str]:
    """Types of input and output of the first call, and of the other: an operation that has two types is called odd.

    Written are own input, then own output, other input, other output; earlier versions write inputs, then outputs.
    """
    first, second = right.split("/"), wrong.split("/")
    if len(first) == 1 and len(second) == 3:
        return f"{first[0]}/{second[0]}", f"{second[1]}/{second[2]}"
    if len(first) == len(second) == 2:
        return f"{first[0]}/{second[0]}", f"{first[1]}/{second[1]}"
    return right, wrong


class RecorderAnalysis:
    """Collects the collectives that not all ranks joined."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def feed(self, number: int, line: str) -> None:
        """Take one line, or a whole entry that lost its line ends."""
        if not (self._entries or mentions(line, _BEGINS)) or not mentions(line, WORDS):
            return
        said = list(_SAID.finditer(line))
        for found in said:
            if found["begin"]:
                if len(self._entries) >= _MOST:
                    return
                self._entries.append(_Entry(number, found["number"] or ""))
            elif self._entries:
                self._fill(self._entries[-1], found)
        if self._entries and "Culprit rank" in line:
            stated = sum(found["culprit"] is not None for found in said)
            self._entries[-1].is_cut |= stated != line.count("Culprit rank") or len(line) >= _LONGEST

    def _fill(self, entry: _Entry, said: re.Match[str]) -> None:
        entry.group = entry.group or said["group"] or ""
        entry.collective = entry.collective or said["collective"] or ""
        entry.missing = entry.missing or ranks_of(said["missing"] or "")
        entry.expected = entry.expected or ranks_of(said["expected"] or "")
        entry.size = entry.size or (int(said["size"]) if said["size"] else None)
        entry.count = entry.count or (int(said["count"]) if said["count"] else 0)
        culprit = rank_number(said["culprit"])
        if culprit is not None and len(entry.differing) < MOST_RANKS:
            entry.accuse(culprit, said["error"], said["details"])

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
            yield from ((entry.name, rank, call) for rank, call in entry.calls().items())
