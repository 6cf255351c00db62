"""Hosts whose GPUs all have a guest, and whose ranks work longer for it: another program computes there.

That a process of somebody else has memory on a GPU accuses nobody. Neither does work that is longer on the ranks of one host:
where each host has a stage of the pipeline to itself nobody does the same. Both together do. What a rank works longer is stated
by what is left of a step outside of collectives and receives: sends go on beside the work, and a receive that is posted early
covers a part of it, so that only what the job waits for is left. Where times inside calls cover the work itself, or the host
runs ahead, that the ranks of the host come last to the calls with those of quiet hosts, each time, says the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NewType

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Finding,
    Granularity,
    Impact,
    Members,
    StageRef,
)
from forensics.rules.reductions.arrivals.lateness import Latenesses
from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.guests import FEW_GUESTS, MOST_GUESTS, ComputingGuests, guest_shares
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.onset import onset_of
from forensics.rules.reductions.pipeline.layout import Layout
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.steps.begins import step_begins
from forensics.rules.reductions.steps.records import UNKNOWN, Record, Recorded
from forensics.rules.reductions.steps.times import Floats
from forensics.rules.reductions.text.evidence_text import counted

# Times the usual step: one in which the job saves or evaluates is longer, and tells less of what it computes.
_LONG = 1.5
_LEAST_STEPS, _LEAST_SIDE = 3, 3
# Of the steps in which the host works longer by half of what it usually does.
_OFTEN = 0.75
# Of the calls whose time inside was recorded.
_TIMED = 0.9
# Of the step, against hosts of the same stages, and against those of other ones; there as many times what is longest.
_LEAST_ALIKE, _LEAST_OTHERS, _FACTOR = 0.005, 0.015, 2.0
# Of the time that others wait for a rank, and of the calls to which it comes last; that one of equal members is last so often.
_LEAST_LATE, _ALWAYS, _MOST_CHANCE = 0.1, 0.9, 0.01
# Of the ranks of a host; and of what is lost to them, what one of them costs those beside it at least that they wait for.
_LEAST_RANKS, _OF_ONE = 0.5, 0.3

_PATHS = "SELECT o.rank, min(s.path) FROM operations o JOIN sources s USING (source_id) WHERE o.rank >= 0 GROUP BY o.rank"


@dataclass(frozen=True, slots=True)
class GuestHost:
    """A host with guests on its GPUs, whose ranks work by the part `excess` of a step longer than those of quiet hosts.

    `ranks` are all that run there: what slows those whose work is known slows the others.
    In `steps` steps of `step_ns`, since the moment `since_ns` on its clock; None where it was so from the first one on. `shown`
    says by what that is seen, `drawn` what power says of the guests.
    """

    host: str
    ranks: tuple[int, ...]
    guests: int
    excess: float
    steps: int
    step_ns: float
    since_ns: int | None
    shown: str
    statement: str
    state_source: str
    source: str | None
    drawn: str | None = None


GuestHosts = NewType("GuestHosts", tuple[GuestHost, ...])
"""Hosts that another program slows, most first."""


@dataclass(frozen=True, slots=True)
class _Host:
    """Ranks of a host with their stages; `work` is the part of each step (ranks x steps) that they are in no call."""

    ranks: tuple[int, ...]
    stages: tuple[int | None, ...]
    work: Floats
    begins_ns: Sequence[int]
    step_ns: float

    @property
    def usual(self) -> Floats:
        """The middle rank of each step."""
        found: Floats = np.median(self.work, axis=0)
        return found


@reduction
def guest_hosts(
    connection: DuckDBPyConnection,
    hardware: Hardware,
    roster: Roster,
    layout: Layout,
    records: Recorded,
    late: Latenesses,
    computing: ComputingGuests,
) -> GuestHosts:
    """Compare hosts with guests with those without; nothing is read where no host has guests on its GPUs, or most have."""
    shares = guest_shares(hardware, roster)
    odd = [host for host, share in shares.items() if share >= MOST_GUESTS]
    quiet = [host for host, share in shares.items() if share <= FEW_GUESTS]
    if not odd or len(odd) > len(quiet):
        return GuestHosts(())
    hosts = _hosts(records.of(), roster, layout, {*odd, *quiet})
    last = max((place.stage for place in layout.places.values() if place.stage is not None), default=None)
    beside = [hosts[host] for host in quiet if host in hosts]
    paths: Mapping[int, str] = dict(rows_of(connection, "operations", _PATHS))
    found = [
        _found(host, hosts[host], rows, (hardware, roster), paths)
        for host in odd
        if host in hosts and (rows := _longer(hosts[host], beside, last, host in computing)) is not None
    ]
    found = found or [each for host in odd if (each := _last_of_all(host, quiet, late, roster, hardware)) is not None]
    found = [replace(each, drawn=computing.get(each.host)) for each in found]
    return GuestHosts(tuple(sorted(found, key=lambda each: (-each.excess, each.ranks))))


def _last_of_all(host: str, quiet: Sequence[str], late: Latenesses, roster: Roster, hardware: Hardware) -> GuestHost | None:
    """A host whose ranks come last to every call with ranks of quiet hosts, by more than anybody else does.

    Records of some may be cut, or those of who they are compared with.
    """
    ranks = _on(host, roster)
    always = [
        item for item in late.found if item.share >= _LEAST_LATE and item.late >= _ALWAYS * item.calls and not item.is_duty
    ]
    own = [
        item for item in always if item.rank in ranks and {roster.host_of(rank) for rank in item.members} <= {host, *quiet}
        and item.chance <= _MOST_CHANCE and not item.absorbed
    ]  # fmt: skip
    others = max((item.lost_ns for item in always if item.rank not in ranks), default=0)
    if len({item.rank for item in own}) < _LEAST_RANKS * len(ranks) or min(item.lost_ns for item in own) < others:
        return None
    first = own[0]
    one_is_late = any({*item.members} <= {*ranks} and item.share >= _OF_ONE * first.share for item in late.found)
    one_is_slow = any(sign.kind is Oddity.THROTTLED for rank in ranks for sign in hardware.signs.get(rank, ()))
    if one_is_late or one_is_slow:
        return None  # all others in step with it would be late as well
    shown = (
        f"ranks of {host} come last to the {first.kind} with others, rank {first.rank} {first.late} of {first.calls} times, "
        f"by {first.typical_ns / 1e6:.0f} ms"
    )
    signs, step_ns = _guests(ranks, hardware), first.lost_ns / first.share / first.late
    return GuestHost(
        host, ranks, len(signs), first.share, first.late, step_ns, first.since_ns, shown, signs[0].statement,
        signs[0].source, first.source,
    )  # fmt: skip


def _on(host: str, roster: Roster) -> tuple[int, ...]:
    return tuple(rank for rank in sorted(roster.ranks) if roster.host_of(rank) == host)


def _guests(ranks: Iterable[int], hardware: Hardware) -> list[Sign]:
    return [sign for rank in ranks for sign in hardware.signs.get(rank, ()) if sign.kind is Oddity.SHARED]


def _hosts(records: Mapping[int, Record], roster: Roster, layout: Layout, wanted: Iterable[str]) -> dict[str, _Host]:
    """Hosts by name, over the steps that the records of all of their ranks end with."""
    known = {rank: each for rank, record in records.items() if (each := _outside(record)) is not None}
    count = min((len(work) for work, _ in known.values()), default=0)
    if not count:
        return {}
    length = np.median([np.diff(moments[-count - 1 :]) for _, moments in known.values()], axis=0)
    usual = np.flatnonzero(length <= _LONG * np.median(length))
    found = {}
    for host in sorted(wanted):
        ranks = tuple(rank for rank in sorted(known) if roster.host_of(rank) == host)
        if ranks:
            work = np.stack([known[rank][0][-count:][usual] for rank in ranks])
            begins = known[ranks[0]][1][-count - 1 :]
            stages = tuple(sorted({place.stage if (place := layout.places.get(rank)) else None for rank in ranks}, key=str))
            found[host] = _Host(ranks, stages, work, begins[usual].tolist(), float(np.median(np.diff(begins))))
    return found


def _outside(record: Record) -> tuple[Floats, np.typing.NDArray[np.int64]] | None:
    """The part of each step in which a rank is in no collective and no receive, and when steps begin; None where unknown."""
    begins = step_begins(record)
    begins = begins[begins < len(record)]
    timed = record.duration_ns != UNKNOWN
    if len(begins) <= _LEAST_STEPS or timed[~record.is_send].mean() < _TIMED or record.by_arrivals.any():
        return None
    moments = record.enqueued_ns[begins]
    inside = np.concatenate(([0], np.cumsum(np.where(timed & ~record.is_send, record.duration_ns, 0))))[begins]
    length = np.diff(moments)
    if (moments == UNKNOWN).any() or (length <= 0).any():
        return None
    return (length - np.diff(inside)) / length, moments


def _longer(host: _Host, quiet: Sequence[_Host], last: int | None, computes: bool) -> tuple[Floats, int] | None:
    """By which part of a step a host works longer in each step from a place on; None where nothing shows that it does.

    Ranks of the same stages have the same work. Inner stages of a pipeline wait for messages while others work; the last one
    turns round by itself, and the first one may begin before all others, so that both are held against their own past only,
    unless power shows that the guest `computes`.
    """
    alike = [each for each in quiet if each.stages == host.stages]
    if alike:
        return _since(host, np.median([each.usual for each in alike], axis=0), _LEAST_ALIKE, past=False)
    if last is None:
        return None
    is_inner = computes or not {None, 0, last} & {*host.stages}
    others = [each for each in quiet if last not in each.stages and None not in each.stages]
    if not others:
        return None
    most = np.max([each.usual for each in others], axis=0)
    return _since(host, most, _LEAST_OTHERS, past=not is_inner)


def _since(host: _Host, usual: Floats, least: float, *, past: bool) -> tuple[Floats, int] | None:
    """What the host works longer than is usual, since it does; with `past` only where it did not before."""
    excess = host.usual - usual
    place = onset_of(excess.tolist(), (_LEAST_SIDE, _LEAST_SIDE), lambda before, after, _: after - before >= least)
    if place is None and past:
        return None
    first = place or 0
    before = float(np.median(excess[:first])) if past and first else 0.0
    rows = excess[first:] - before
    typical = float(np.median(rows))
    of_ranks = np.median(host.work[:, first:] - usual[first:], axis=1) - before
    is_longer = typical >= least and (rows >= typical / 2).mean() >= _OFTEN and (of_ranks >= least / 2).mean() >= _OFTEN
    is_clear = past or float(np.median(host.usual[first:])) >= _FACTOR * max(0.0, float(np.median(usual[first:])))
    return (rows, first) if is_longer and is_clear and len(rows) >= _LEAST_STEPS else None


def _found(
    host: str, each: _Host, longer: tuple[Floats, int], known: tuple[Hardware, Roster], paths: Mapping[int, str]
) -> GuestHost:
    (rows, first), (hardware, roster) = longer, known
    ranks = _on(host, roster)
    signs, excess = _guests(ranks, hardware), float(np.median(rows))
    shown = (
        f"ranks of {host} work {100 * excess:.1f} % of a step longer than those of hosts without guests, in "
        f"{counted(len(rows), 'step')} of {each.step_ns / 1e6:.0f} ms: what nobody waits for is not in it"
    )
    return GuestHost(
        host, ranks, len(signs), excess, len(rows), each.step_ns,
        each.begins_ns[first] if first else None, shown, signs[0].statement, signs[0].source, paths.get(each.ranks[0]),
    )  # fmt: skip


def findings_of_guests(found: GuestHosts, liveness: Liveness, roster: Roster) -> Iterator[Finding]:
    """Name each such host; of a job that stands still it is what was before."""
    for each in found:
        is_dated = each.since_ns is not None and liveness.motion is not Motion.UNSEEN
        yield Finding(
            ranks=each.ranks,
            cause=Cause.GPU_CONTENTION,
            stage=StageRef(component=Component.COMPUTE),
            belief=Belief.BEHIND_AND_BUSY,
            confidence=Confidence.LIKELY if is_dated else Confidence.SUSPECT,
            evidence=(
                Evidence(each.shown, each.source),
                Evidence(f"{each.guests} of its {len(each.ranks)} GPUs have a guest: {each.statement}", each.state_source),
                *([Evidence(f"{each.drawn}: the guests compute", each.state_source)] if each.drawn else []),
            ),
            granularity=Granularity.HOST,
            anomaly=Anomaly.FAIL_SLOW,
            impact=Impact(round(each.excess * each.step_ns * each.steps), round(each.excess, 3), each.steps, "arrival"),
            since=roster.since(each.ranks[0], each.since_ns, "its host's realtime"),
            next_steps=(f"check whose processes compute on the GPUs of {each.host} beside the job's, and end them",),
            of_past=liveness.motion is Motion.STALLED,
        )


def may_be_of_guests(finding: Finding, of_guests: Iterable[Finding]) -> bool:
    """Whether one of several ranks is late, among them some of a host that works longer by its guests: then it may be these."""
    slowed = {rank for each in of_guests for rank in each.ranks}
    return finding.members is Members.ONE_OF and not slowed.isdisjoint(finding.ranks)
