"""Which call the odd rank of a mismatch made too much or left out: its sequence, moved by one, against a peer's.

Mismatches show at the first number whose kinds or sizes differ. The call itself may lie further back, among calls that look the
same; going back as long as the moved sequences agree finds it, where call paths or sizes tell calls apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.mismatch.disagreements import BlockingMismatches, Disagreement
from forensics.rules.reductions.mismatch.histories import PlacedCall, calls_of

_History = Mapping[int, PlacedCall]


@dataclass(frozen=True, slots=True)
class Parting:
    """The call that a rank made too much (`extra`) or left out (`missing`: a peer's call); `either` when both readings fit.

    `call` is None when nothing shows the calls of the run apart: it lies somewhere from `first` on.
    """

    kind: str
    odd: int
    call: PlacedCall | None
    first: int


Partings = NewType("Partings", Mapping[str, Parting])
"""The call that the odd rank made too much or left out, by mismatched communicator."""


@reduction
def partings(calls: Calls, mismatches: BlockingMismatches) -> Partings:
    """Find the extra or missing call of every mismatch that blocks somebody and is a shift, by communicator."""
    found = {}
    for mismatch in mismatches:
        if not mismatch.majority or not mismatch.odd:
            continue
        odd = calls_of(calls.connection, mismatch.communicator, mismatch.odd[0], mismatch.sequence)
        usual = calls_of(calls.connection, mismatch.communicator, mismatch.majority[0], mismatch.sequence)
        parting = _shifted(mismatch, odd, usual) if mismatch.shift else _proven(mismatch, odd, usual)
        if parting is not None:
            found[mismatch.communicator] = parting
    return Partings(found)


def _shifted(mismatch: Disagreement, odd: _History, usual: _History) -> Parting:
    kind = _kind(mismatch, odd, usual)
    if kind is None:
        return Parting("either", mismatch.odd[0], usual.get(mismatch.sequence), mismatch.sequence)
    return _parting(mismatch, kind, odd, usual)


def _proven(mismatch: Disagreement, odd: _History, usual: _History) -> Parting | None:
    """A shift that the calls around the mismatched number do not show, but the places of earlier ones do."""
    for kind in ("extra", "missing"):
        found = _parting(mismatch, kind, odd, usual)
        if found.call and found.first < mismatch.sequence and _agree(odd, usual, found.first):
            return found
    return Parting("extra", mismatch.odd[0], None, mismatch.sequence) if _peers_went_on(mismatch, odd, usual) else None


def _agree(odd: _History, usual: _History, until: int) -> bool:
    """Whether both made the same calls before the parting, at least one."""
    before = [number for number in odd.keys() & usual.keys() if number < until]
    return bool(before) and all(_alike(odd[number], usual[number]) for number in before)


def _peers_went_on(mismatch: Disagreement, odd: _History, usual: _History) -> bool:
    """Whether the peers are at a barrier, or elsewhere in the program, for the first time, and the odd rank repeats itself."""
    call, theirs = odd.get(mismatch.sequence), usual.get(mismatch.sequence)
    if call is None or theirs is None or len(mismatch.odd) > 1:
        return False
    new = all(other.kind != theirs.kind for number, other in usual.items() if number < mismatch.sequence)
    again = any(_alike(call, other) for number, other in odd.items() if number < mismatch.sequence)
    return new and again and (theirs.kind == "barrier" or _elsewhere(call, theirs))


def _elsewhere(one: PlacedCall, two: PlacedCall) -> bool:
    return bool(one.place and two.place) and {f.name for f in one.place}.isdisjoint({f.name for f in two.place[:1]})


def _kind(mismatch: Disagreement, odd: _History, usual: _History) -> str | None:
    """Where both readings fit, a call from a usual place came early, because one was left out; from a new place it is extra."""
    if mismatch.shift != "either":
        return mismatch.shift
    call = odd.get(mismatch.sequence)
    if call is None or not call.place:
        return None
    usually = any(_alike(call, other) and other.place for number, other in usual.items() if number < mismatch.sequence)
    return "missing" if usually else "extra"


def _parting(mismatch: Disagreement, kind: str, odd: _History, usual: _History) -> Parting:
    """Go back from the mismatched number while the rank that is a call ahead agrees with the other one, moved by one."""
    extra = kind == "extra"
    longer, shorter = (odd, usual) if extra else (usual, odd)
    number = mismatch.sequence
    while number in longer and number - 1 in shorter and _alike(longer[number], shorter[number - 1]):
        number -= 1
    known = (number in longer and number - 1 in shorter) or number == 1
    distinct = number in longer and (number == mismatch.sequence or not _alike_all(longer, number, mismatch.sequence))
    call = longer.get(number) if known and distinct else None
    return Parting(kind, mismatch.odd[0], call, number)


def _alike(one: PlacedCall, two: PlacedCall) -> bool:
    """Whether two calls look the same; places count where both were recorded."""
    return one.signature == two.signature and (one.place == two.place or not (one.place and two.place))


def _alike_all(calls: _History, first: int, last: int) -> bool:
    """Whether the run holds one call over and over: then any of them may be the one too many."""
    return all(_alike(calls[first], calls[n]) for n in range(first, last + 1) if n in calls)
