"""Ranks that wait for what comes from outside the job: a request, a line that somebody types, a file that they ask for.

The others wait for such a rank as they should, for as long as nothing comes. That something is due, nothing here tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import NewType

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import WaitKind
from forensics.rules.reductions.calls.semantics import FROM_ONE, stem_of
from forensics.rules.reductions.host.work import at_prompt, serving_frame
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.samples import Stacks, StacksByRank
from forensics.rules.reductions.text.evidence_text import ranks_text
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

# Earlier calls at one place from which on a job is known to make them all the time, as it hands on a batch in each step.
_OFTEN = 10
_TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
# What wakes an event loop of its own process.
_WAKERS = ("anon_inode:[eventfd]", "anon_inode:[signalfd]", "anon_inode:[timerfd]", "anon_inode:[pidfd]")
_SOCKET_PAIR = "unix to"
# What calls a module of a model, and what runs its gradients.
_PASS = frozenset({("torch/nn/modules/module.py", "_call_impl"), ("torch/autograd/graph.py", "_engine_run_backward")})

_OFTEN_MADE = """
SELECT 1 FROM latest_call o JOIN latest_call p ON p.communicator = o.communicator AND p.rank = o.rank AND p.kind = o.kind
    AND p.sequence < o.sequence AND p.input_sizes IS NOT DISTINCT FROM o.input_sizes
    AND p.call_path IS NOT DISTINCT FROM o.call_path
WHERE o.communicator = ? AND o.sequence = ? GROUP BY o.rank HAVING count(*) >= ? LIMIT 1
"""


@dataclass(frozen=True, slots=True)
class OutsideInput:
    """What a rank waits for, and which ranks wait for it."""

    rank: int
    what: str
    waiting: tuple[int, ...]

    @property
    def text(self) -> str:
        """The sentence on it."""
        return f"rank {self.rank} waits for {self.what}: not known to be due"

    @property
    def lead(self) -> str:
        """What would tell whether the job hangs."""
        whom = f"rank {self.rank} waits for it, and {ranks_text(self.waiting)} for rank {self.rank}"
        return f"whether {self.what} was due: {whom}; the job hangs only if it was"


OutsideInputs = NewType("OutsideInputs", Mapping[int, OutsideInput])
"""Ranks that every chain of waits ends in and that wait for something from outside the job."""

MessagesFromOutside = NewType("MessagesFromOutside", Mapping[int, str])
"""What speaks against a hang of ranks that read what comes from outside the job."""


@reduction
def outside_inputs(connection: DuckDBPyConnection, graph: WaitGraph, roster: Roster, stacks: StacksByRank) -> OutsideInputs:
    """Look at what the ranks that others wait for wait for themselves.

    A server is one whoever waits. A line that is typed, a queue that a server fills and what is asked for again and again are
    from outside only where the others wait for what the rank hands on, by a broadcast or a scatter: a rank may stop at a
    question anywhere. A rank that asks, and has handed on the like all the time before, is not idle.
    """
    found: dict[int, OutsideInput] = {}
    for rank in (root.ranks[0] for root in graph.free_roots):
        facts, samples, waits = roster.rank(rank), stacks.get(rank), graph.waiting_for(rank)
        if samples is None or not samples.main:
            continue
        what = _requests(facts, samples)
        if what is None and _hands_on(waits, stacks):
            what = _handed_on(facts, samples) or (None if _is_often(connection, waits) else _asked_for(facts, samples))
        if what is not None:
            found[rank] = OutsideInput(rank, what, graph.waiters(rank))
    return OutsideInputs(found)


@reduction
def messages_from_outside(
    connection: DuckDBPyConnection, graph: WaitGraph, roster: Roster, stacks: StacksByRank
) -> MessagesFromOutside:
    """Ranks that read a line that is typed, or from a connection what they hand on: it may come where they seldom waited so."""
    found: dict[int, str] = {}
    for rank in (root.ranks[0] for root in graph.free_roots):
        waits, files = graph.waiting_for(rank), roster.rank(rank).waits_on
        typed = None if rank not in stacks or _is_at_prompt(stacks[rank]) else typed_at(files)
        peer = next((file.partition(" -> ")[2] for file in files if len(files) == 1 and " -> tcp to " in file), None)
        if typed is not None and not _is_often(connection, waits):
            found[rank] = f"whether a line of input ({typed}) was due nothing tells: somebody may be about to type it"
        elif peer is not None and _hands_on(waits, stacks) and not _is_often(connection, waits):
            found[rank] = f"whether a message was due from {peer} is unknown: one that hands on work waits alike"
    return MessagesFromOutside(found)


def _requests(facts: RankFacts, found: Stacks) -> str | None:
    """The requests of clients that a server waits for: the loop that it runs, or the socket.

    Between two requests nobody is inside a pass: what begins to listen there holds up the batch that the pass is for.
    """
    paths = [sample.activity.path for sample in found.main]
    if any((frame.module, frame.function) in _PASS for path in paths for frame in path):
        return None
    frames = [serving_frame(path) for path in paths]
    where = frames[-1] if all(frames) else _listening(facts.waits_on)
    return f"a request ({where})" if where is not None else None


def _handed_on(facts: RankFacts, found: Stacks) -> str | None:
    """A line that somebody types, or what a server in another thread takes."""
    typed = typed_at(facts.waits_on)
    if typed and not _is_at_prompt(found):
        return f"a line of input ({typed})"
    return "a request to the server in its other thread" if _is_at_queue_of_server(found) else None


def _is_at_prompt(found: Stacks) -> bool:
    """Whether the main thread stands at the prompt of a debugger."""
    return bool(found.main) and at_prompt(found.main[-1].activity.path)


def _asked_for(facts: RankFacts, found: Stacks) -> str | None:
    """What the job's own code asks for again and again, with pauses."""
    pauses = found.rests and found.main[-1].activity.wait is WaitKind.SLEEP and facts.switches
    return f"what it asks for with pauses at {found.main[-1].activity.describe()}" if pauses else None


def _listening(files: Iterable[str]) -> str | None:
    """The socket that a thread listens on, where it waits for nothing else; the event loop of a process wakes itself."""
    targets = [file.partition(" -> ")[2] for file in files]
    listening = [target for target in targets if " listening" in target]
    rest = [target for target in targets if target not in listening and target not in _WAKERS]
    alone = not rest or (len(rest) == 1 and rest[0] == _SOCKET_PAIR)
    return listening[0] if listening and alone else None


def typed_at(files: Iterable[str]) -> str | None:
    """The terminal or standard input that a thread reads."""
    return next((file for file in files if file.startswith("0 -> ") or file.partition(" -> ")[2].startswith(_TERMINALS)), None)


def _is_at_queue_of_server(found: Stacks) -> bool:
    """Whether the main thread waits at a queue while another one runs the loop of a server."""
    called = takewhile(lambda frame: frame.origin != "app", found.main[-1].activity.path)
    at_queue = any(frame.module == "queue.py" for frame in called) and not found.moved
    return at_queue and any(serving_frame(sample.activity.path) for sample in found.latest_threads())


def _hands_on(waits: Iterable[Wait], stacks: StacksByRank) -> bool:
    """Whether all who wait do so in a call by which one member hands on what it has."""
    kinds = {kind for wait in waits for rank in wait.waiting for kind in [_kind(wait, rank, stacks)]}
    return bool(kinds) and kinds <= FROM_ONE


def _kind(wait: Wait, rank: int, stacks: StacksByRank) -> str:
    call, found = wait.waiting[rank], stacks.get(rank)
    if call is not None:
        return stem_of(call.kind)
    frame = found.latest.call_frame if found is not None and found.latest is not None else None
    return stem_of(frame.function) if frame is not None else ""


def _is_often(connection: DuckDBPyConnection, waits: Iterable[Wait]) -> bool:
    calls = ([wait.communicator, wait.sequence, _OFTEN] for wait in waits if wait.communicator)
    return any(rows_of(connection, "operations", _OFTEN_MADE, call) for call in calls)
