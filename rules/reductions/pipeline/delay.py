"""What held up the long steps of a job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Delay:
    """A long step and what held it up.

    `ranks` are to blame: each of them, or one of them where `one_of`. The others waited for them in `communicator`, `sequence`
    of kind `kind`, up to `waited_ns`. `is_transfer`: all members had come. `on_host`: the host made the call so late itself;
    None where the source does not tell. `before_step`: it was so late to the first call of the step already, by a pause of its
    own or because it waited for its device between the steps. `by_ends`: shown by ends of calls as watchdogs saw them.
    `excess_ns` is what the step was longer by, `is_spread` that no single call shows half of it; `passed_on` is the share of
    what others waited for the rank that it had waited itself. `by_arrivals`: hosts wait in these calls (gloo), shown by when
    they came to them. `is_traced`: a profiler saw it. `at_barrier`: the call moves no data. `equals_ns` is what the ranks that
    work on the same data in step with it (tensor-parallel) waited longer for it: a message that comes late is late for all.
    `own_ns` is how much longer than usual the rank was in no call of the step, where all that it may wait in are recorded.
    `is_alike`: several of those were late, none of which waited for another (late_alike.py). `shown_by` is who waited in the
    call for a rank that left no record itself.
    """

    step: int
    excess_ns: float
    ranks: tuple[int, ...]
    communicator: str
    sequence: int
    kind: str
    at_ns: int
    source: tuple[int, int]
    waited_ns: float
    is_transfer: bool = False
    is_spread: bool = False
    on_host: bool | None = None
    by_ends: bool = False
    passed_on: float = 0.0
    by_arrivals: bool = False
    before_step: bool = False
    is_traced: bool = False
    at_barrier: bool = False
    equals_ns: float = 0.0
    own_ns: float = 0.0
    is_alike: bool = False
    shown_by: int | None = None

    @property
    def witness(self) -> int:
        """A rank whose record has the call."""
        return self.ranks[0] if self.shown_by is None else self.shown_by

    @property
    def one_of(self) -> bool:
        """Whether the source leaves open which of the ranks it was."""
        return len(self.ranks) > 1

    @property
    def may_be_host(self) -> bool:
        """Whether a host was late, or a trace leaves open whether it was: a pause of a host looks the same there."""
        return bool(self.on_host) or self.before_step or (self.is_traced and self.on_host is None)


@dataclass(frozen=True, slots=True)
class Delays:
    """What held up each long step, of the `steps` of the job that could be compared; false where there were none.

    `usual` of them tell what is usual: a step takes `typical_ns`. `unexplained` long steps have no root that is seen. `ranks`
    show whole steps, `timed` of them the time inside their calls. `unexplained_ns` is by what those were longer.
    `between_ns` is by what those were longer that are neither usual nor long. `may_have_messages`: ranks send to each other, or
    (gloo) make calls that no recorder keeps.
    """

    found: tuple[Delay, ...]
    steps: int
    usual: int
    typical_ns: float
    unexplained: int
    ranks: frozenset[int]
    timed: frozenset[int]
    unexplained_ns: tuple[float, ...] = ()
    between_ns: tuple[float, ...] = ()
    may_have_messages: bool = True

    def __bool__(self) -> bool:
        return self.steps > 0

    @property
    def long(self) -> int:
        """How many steps were long, whoever held them up."""
        return len({delay.step for delay in self.found}) + self.unexplained
