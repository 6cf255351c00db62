"""Where the members of a communicator issued different operations under the same sequence number.

Every member votes with the signature of its operation; the majority is the reference, never the first file. An even split is
said to be undecidable. The odd rank's sequence is then moved by one against its peers' to tell a skipped call from an extra
one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.logs.events import LogEvents
from forensics.rules.reductions.mismatch.unequal_messages import Unequal, odd_ones, unequal_messages

# Operations whose members may legally bring different sizes: only their kind is compared.
UNEVEN = (
    "all_gather", "all_gather_v", "reduce_scatter", "reduce_scatter_v", "all_to_all", "all_to_all_single", "all_to_all_base",
    "all_to_all_v", "all_to_allv", "alltoall", "alltoall_base", "alltoallv", "gather", "scatter", "all_gather_object",
    "coalesced", "all_gather_coalesced", "reduce_scatter_coalesced",
)  # fmt: skip
_EXCHANGES = tuple(kind for kind in UNEVEN if kind.startswith(("all_to_all", "alltoall")))


@dataclass(frozen=True, slots=True)
class Call:
    """One rank's operation at the mismatched sequence: kind, sizes and types as text, call path, and where it was read."""

    kind: str
    sizes: str
    signature: str
    call_path: int | None
    state: str
    enqueued_ns: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """The first sequence of a communicator at which signatures differ and somebody is stuck; else the first of all.

    `majority` is empty when the vote is tied. `shift` says how the odd ranks' calls line up with their peers' when moved by
    one: `missing` (they skipped a call), `extra` (they issued one more), `either` (the pattern cannot tell), or None.
    `novel` is set when the odd ranks' call was never made in this communicator before, `by_siblings` when a tie was decided
    by what communicators of the same size did under the same number.
    """

    communicator: str
    sequence: int
    calls: Mapping[int, Call]
    majority: tuple[int, ...]
    odd: tuple[int, ...]
    shift: str | None
    novel: bool = False
    by_siblings: bool = False

    @property
    def tied(self) -> bool:
        """Whether no signature has more votes than every other."""
        return not self.majority

    @property
    def kinds_differ(self) -> bool:
        """Whether the operations themselves differ, not only their sizes or types."""
        return len({call.kind for call in self.calls.values()}) > 1


Disagreements = NewType("Disagreements", tuple[Disagreement, ...])
"""At most one mismatched operation of each communicator."""
BlockingMismatches = NewType("BlockingMismatches", tuple[Disagreement, ...])
"""Mismatches in which somebody is stuck; one that everybody got past explains nothing."""

# Sizes that could not be read are no other sizes: where some are known, calls without any have no vote.
_SIGNED = """
WITH sized AS (
    SELECT DISTINCT communicator FROM latest_call WHERE input_sizes IS NOT NULL AND communicator IS NOT NULL
), compared AS NOT MATERIALIZED (
    SELECT o.communicator, o.sequence, o.rank, o.kind, o.call_path, o.state, o.enqueued_ns, o.source_id, o.locator,
           coalesce(o.input_sizes, '') || ' ' || coalesce(o.dtype, '') AS sizes, coalesce(o.record_id, o.locator) AS record_id,
           o.group_call IS NOT NULL AS coalesced, o.call_size,
           CASE WHEN list_contains($uneven, o.kind) THEN o.kind
                ELSE o.kind || ' ' || coalesce(o.input_sizes, '') || ' ' || coalesce(o.dtype, '') END AS signature,
           CASE WHEN list_contains($uneven, o.kind) THEN hash(o.kind)
                ELSE hash(o.kind, coalesce(o.input_sizes, ''), coalesce(o.dtype, '')) END AS digest
    FROM ordered_call o
    WHERE NOT coalesce(o.is_p2p, false) AND o.communicator IS NOT NULL AND o.sequence >= 0 AND NOT o.closes
        AND (o.input_sizes IS NOT NULL OR o.communicator NOT IN (SELECT communicator FROM sized))
)"""

# Of the calls of one rank that share a number the first one counts, unless one group call issued them: then all do, in order.
_ONE_CALL = """(
    SELECT communicator, sequence, rank, string_agg(signature, '; ' ORDER BY record_id) AS signature,
           CASE WHEN count(*) = 1 THEN min(kind) WHEN min(kind) = max(kind) THEN min(kind) || ' x' || count(*)
                ELSE string_agg(kind, ' + ' ORDER BY record_id) END AS kind,
           string_agg(sizes, '; ' ORDER BY record_id) AS sizes, min_by(call_path, record_id) AS call_path, max(state) AS state,
           min(enqueued_ns) AS enqueued_ns, min_by(source_id, record_id) AS source_id, min_by(locator, record_id) AS locator
    FROM (SELECT * FROM {calls} QUALIFY coalesced OR 1 = row_number() OVER (
        PARTITION BY communicator, rank, sequence ORDER BY record_id, locator))
    GROUP BY communicator, sequence, rank
)"""

# Numbers are narrowed down by a plain aggregate of digests first: sorting all calls of a large job, or keeping their texts,
# takes far longer than the rest.
_FIRST = f"""{_SIGNED}, unequal AS (
    SELECT communicator, sequence FROM compared GROUP BY communicator, sequence
    HAVING min(digest) <> max(digest) OR min(call_size) <> max(call_size)
), narrowed AS (
    SELECT compared.* FROM compared JOIN unequal USING (communicator, sequence)
), signed AS {_ONE_CALL.format(calls="narrowed")}, mismatched AS (
    SELECT communicator, sequence, bool_or(state <> 'done') AS open FROM signed
    GROUP BY communicator, sequence HAVING min(signature) <> max(signature)
), first AS (
    SELECT communicator, coalesce(min(sequence) FILTER (open), min(sequence)) AS sequence FROM mismatched GROUP BY communicator
)
SELECT s.communicator, s.sequence, s.rank, s.kind, s.sizes, s.signature, s.call_path, s.state, s.enqueued_ns,
       src.path, s.locator
FROM signed s JOIN first USING (communicator, sequence) JOIN sources src USING (source_id)
ORDER BY s.communicator, s.rank
"""

_HISTORY = f"""{_SIGNED}, own AS (
    SELECT * FROM compared WHERE communicator = $communicator AND rank = $rank
), signed AS {_ONE_CALL.format(calls="own")}
SELECT sequence, signature, call_path FROM signed ORDER BY sequence
"""


@dataclass(frozen=True, slots=True)
class _Calls:
    """Access to the calls of a case; `uneven` are kinds whose sizes are not compared."""

    connection: DuckDBPyConnection
    uneven: tuple[str, ...]

    def rows(self, query: str, **asked: object) -> list[tuple[Any, ...]]:
        return rows_of(self.connection, "operations", query, {"uneven": list(self.uneven), **asked})


@reduction
def disagreements(calls: Calls, events: LogEvents) -> Disagreements:
    """Find the first mismatched sequence of every communicator, in label order.

    Where a library complained of sizes that do not fit, sizes are compared for every kind but exchanges, whose members move
    amounts of their own.
    """
    source = _Calls(calls.connection, _EXCHANGES if events.ranks("size_mismatch") else UNEVEN)
    mismatched: dict[tuple[str, int], dict[int, Call]] = {}
    for communicator, sequence, rank, kind, sizes, signature, call_path, state, ns, path, locator in source.rows(_FIRST):
        call = Call(kind, sizes.strip(), signature, call_path, state, ns, f"{path}#entry={locator}")
        mismatched.setdefault((communicator, sequence), {})[rank] = call
    found = [_decide(source, *key, made) for key, made in mismatched.items()]
    known = {mismatch.communicator for mismatch in found}
    unequal = unequal_messages(calls.connection).items()
    return Disagreements((*found, *(_of_messages(*each) for each in unequal if each[0] not in known)))


def _of_messages(communicator: str, messages: Sequence[Unequal]) -> Disagreement:
    """Messages that do not fit: between two ranks nobody knows whose size is wrong, one rank against several is odd."""
    odd = odd_ones(messages)
    calls: dict[int, Call] = {}
    for message in messages:
        for rank, ns, source in zip(message.ends, message.enqueued_ns, message.sources, strict=True):
            fits = odd and rank not in odd
            sizes = f"of sizes that fit those of its other peers, not of rank {odd[0]}" if fits else f"of {message.text(rank)}"
            signature = "other sizes" if odd and rank in odd else "usual sizes" if odd else sizes
            calls.setdefault(rank, Call("messages", sizes, signature, None, message.state, ns, source))
    usual = tuple(sorted(calls.keys() - set(odd))) if odd else ()
    return Disagreement(communicator, messages[0].sequences[0], calls, usual, odd or tuple(sorted(calls)), None)


@reduction
def blocking(mismatches: Disagreements) -> BlockingMismatches:
    """Those of which some call is not done."""
    return BlockingMismatches(tuple(d for d in mismatches if any(call.state != "done" for call in d.calls.values())))


def mismatch_of_sizes(mismatches: BlockingMismatches) -> Disagreement | None:
    """The blocking mismatch that is about sizes or types only, and that a majority decides."""
    return next((mismatch for mismatch in mismatches if mismatch.majority and not mismatch.kinds_differ), None)


def _decide(source: _Calls, communicator: str, sequence: int, calls: Mapping[int, Call]) -> Disagreement:
    majority = vote({rank: call.signature for rank, call in calls.items()})
    by_siblings = not majority
    if by_siblings:
        majority = _sided(source, communicator, sequence, calls)
    odd = tuple(sorted(set(calls) - set(majority)))
    moved, novel = None, False
    if majority:
        reference = _history(source, communicator, majority[0])
        shifts = {shift(*_comparable(reference, _history(source, communicator, rank)), sequence) for rank in odd}
        moved = shifts.pop() if len(shifts) == 1 else None
        before = {signature for number, (signature, _) in reference.items() if number < sequence}
        novel = not any(calls[rank].signature in before for rank in odd)
        moved = None if _made_differently(calls, odd, majority[0], reference) else moved
    return Disagreement(communicator, sequence, calls, majority, odd, moved, novel, by_siblings and bool(majority))


def _made_differently(calls: Mapping[int, Call], odd: Sequence[int], usual: int, reference: _History) -> bool:
    """Whether the odd call is made at the very place of the peers', in a form that they never have: no call more or less."""
    paths = {calls[rank].call_path for rank in (*odd, usual)}
    known = {signature for signature, _ in reference.values()}
    return len(paths) == 1 and None not in paths and not any(calls[rank].signature in known for rank in odd)


_SIBLINGS = f"""{_SIGNED}, same AS (SELECT * FROM compared WHERE sequence = $sequence
), signed AS {_ONE_CALL.format(calls="same")}
SELECT signature, count(*) FROM signed JOIN communicators USING (communicator)
WHERE communicator <> $communicator
  AND size = (SELECT size FROM communicators WHERE communicator = $communicator)
GROUP BY signature
"""


def _sided(source: _Calls, communicator: str, sequence: int, calls: Mapping[int, Call]) -> tuple[int, ...]:
    """Decide a tie by the siblings of a communicator (other tensor-parallel pairs, say), when they side with one camp only."""
    siblings = {signature for signature, _ in source.rows(_SIBLINGS, sequence=sequence, communicator=communicator)}
    backed = {call.signature for call in calls.values() if call.signature in siblings}
    return tuple(sorted(rank for rank, call in calls.items() if call.signature in backed)) if len(backed) == 1 else ()


def vote(signatures: Mapping[int, str]) -> tuple[int, ...]:
    """Ranks that hold the majority signature; empty when the two largest camps are equal."""
    camps = Counter(signatures.values()).most_common(2)
    if len(camps) == 2 and camps[0][1] == camps[1][1]:
        return ()
    return tuple(sorted(rank for rank, signature in signatures.items() if signature == camps[0][0]))


_History = Mapping[int, tuple[str, int | None]]


def _history(source: _Calls, communicator: str, rank: int) -> _History:
    """Signature and call path of the rank's calls, by sequence."""
    rows = source.rows(_HISTORY, communicator=communicator, rank=rank)
    return {sequence: (signature, call_path) for sequence, signature, call_path in rows}


def _comparable(one: _History, two: _History) -> tuple[Mapping[int, str], Mapping[int, str]]:
    """Both histories as text; call paths count only when every call of both has one."""
    pathless = any(path is None for history in (one, two) for _, path in history.values())
    first, second = (
        {number: signature if pathless else f"{signature} {path}" for number, (signature, path) in history.items()}
        for history in (one, two)
    )
    return first, second


def shift(reference: Mapping[int, str], odd: Mapping[int, str], sequence: int) -> str | None:
    """Move the odd rank's calls by one against the reference, by what follows and, at the end, by what usually follows."""
    missing = _follows(reference, odd, sequence)
    extra = _follows(odd, reference, sequence)
    if missing and extra:
        return "either"
    return "missing" if missing else "extra" if extra else None


def _follows(ahead: Mapping[int, str], behind: Mapping[int, str], sequence: int) -> bool:
    """Whether `behind` at `sequence` is the call that comes after `ahead`'s call at `sequence`."""
    following = ahead.get(sequence + 1)
    if following is None:
        following = _usual_successor(ahead, sequence)
    return following is not None and following == behind.get(sequence)


def _usual_successor(history: Mapping[int, str], sequence: int) -> str | None:
    """What most often came after this call earlier in the run."""
    call = history.get(sequence)
    after = Counter(
        history[s + 1] for s in history if s < sequence and history[s] == call and s + 1 in history and s + 1 < sequence
    )
    return after.most_common(1)[0][0] if after else None
