"""What is odd of the hardware of the ranks of a job, and which cause of a finding that explains.

State of hardware accuses nobody: a GPU whose clocks are held down may still be in time. It says why a rank is slow that other
evidence found to be slow, and only when it is bad enough for the cost: clocks held down by a tenth do not double a step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from forensics.model import Cause, Component, Evidence, Finding, Granularity, Mechanism, Members, Resource
from forensics.rank_ranges import format_ranks
from forensics.rules.reductions.hardware.accounted import LEAST_ACCOUNTED, unexplained


class Oddity(Enum):
    """Kinds of signs, in the order in which they are believed."""

    THROTTLED = "throttled"
    SHARED = "shared"
    NARROW = "narrow"
    NARROW_NIC = "narrow_nic"
    CONGESTED = "congested"
    ERRORS = "errors"
    MEMORY = "memory"


_OF_COMPUTE = {
    Oddity.THROTTLED: Cause.GPU_THROTTLED,
    Oddity.SHARED: Cause.GPU_CONTENTION,
    Oddity.NARROW: Cause.PCIE_DEGRADED,
}
_OF_NETWORK = {
    Oddity.NARROW: Cause.PCIE_DEGRADED,
    Oddity.NARROW_NIC: Cause.PCIE_DEGRADED,
    Oddity.CONGESTED: Cause.NETWORK_CONGESTION,
}
_BESIDE_COMPUTE, _BESIDE_NETWORK = (Oddity.MEMORY,), (Oddity.ERRORS,)
_SHOWN = 3
_EITHER = Evidence("a guest or a narrow link accounts for it, each alone: which of them is unknown", None, supports=False)


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that is odd of the hardware of a rank, in words, with its place.

    `factor` is how many times as long what depends on it takes at most, `share` in which part of the time it slows; None
    where the reading does not tell.
    """

    kind: Oddity
    statement: str
    source: str
    factor: float | None = None
    share: float | None = None


@dataclass(frozen=True, slots=True)
class Hardware:
    """Signs by rank; none for a rank whose hardware is like that of its peers, or not known; `read` are ranks of known GPUs."""

    signs: Mapping[int, tuple[Sign, ...]] = field(default_factory=dict)
    read: frozenset[int] = frozenset()

    def refined(self, finding: Finding, slow: Collection[Cause], slowdown: float | None = None) -> Finding:
        """The finding with the cause and the evidence that the hardware of its ranks gives; unchanged without any.

        `slow` are the causes that may be refined, `slowdown` how many times as long things take; by default that of a step from
        which the lost share is taken out. Of ranks of which each is accused all must show the sign; where one of several is to
        blame, one that shows it is enough, and those whose hardware was read and does not show it are no longer meant.
        """
        if finding.cause not in slow:
            return finding
        of_network = finding.cause is Cause.NETWORK_SLOW
        causes, beside = (_OF_NETWORK, _BESIDE_NETWORK) if of_network else (_OF_COMPUTE, _BESIDE_COMPUTE)
        kind = next((kind for kind in causes if self._explains(kind, finding)), None)
        shown = [sign for each in (kind, *beside) if each for sign in self._of(each, finding.ranks)[:_SHOWN]]
        evidence = tuple(Evidence(sign.statement, sign.source) for sign in shown)
        if kind is None:
            return replace(finding, evidence=(*finding.evidence, *evidence))
        accounted = self._accounted(kind, finding, slowdown or _slowdown(finding))
        if accounted is None or accounted < LEAST_ACCOUNTED:
            return replace(finding, evidence=(*finding.evidence, *evidence, *unexplained(accounted, "what its hardware shows")))
        is_open = finding.stage.component is Component.UNKNOWN and not of_network
        stage = replace(finding.stage, component=Component.COMPUTE) if is_open else finding.stage
        known = replace(finding, cause=causes[kind], stage=stage, evidence=(*finding.evidence, *evidence))
        return self._narrowed(kind, self._undecided(kind, known, slowdown or _slowdown(finding)))

    def alone_held_down(self, rank: int, peers: Collection[int], least_factor: float) -> bool:
        """Whether the clocks of the GPU of a rank are held down by so much, and those of no peer, all of which were read."""
        held = {each for each in {rank, *peers} if any((sign.factor or 0.0) > 1 for sign in self._of(Oddity.THROTTLED, [each]))}
        by = max((sign.factor or 0.0 for sign in self._of(Oddity.THROTTLED, [rank])), default=0.0)
        return held == {rank} and by >= least_factor and self.read.issuperset(peers)

    def on_one_link(self, finding: Finding) -> Finding:
        """Transfers that alone are slow, for the narrow PCIe link of a GPU: its data comes to the NIC, or leaves it, late.

        Of several of which one is to blame it is the one whose GPU has it, unless nothing was read of another one, or others
        have a sign of their own.
        """
        narrow = tuple(rank for rank in finding.ranks if self._of(Oddity.NARROW, [rank]))
        if finding.cause is not Cause.PCIE_DEGRADED or not narrow:
            return finding
        is_of_gpu = narrow == finding.ranks and not self._of(Oddity.NARROW_NIC, narrow)
        found = replace(finding, mechanism=Mechanism("late_end", "local")) if is_of_gpu else finding
        signs = {*_OF_NETWORK, *_BESIDE_NETWORK}
        odd = [rank for rank in finding.ranks if any(sign.kind in signs for sign in self.signs.get(rank, ()))]
        if found.members is not Members.ONE_OF or len(narrow) != 1 or [*narrow] != odd or not self.read.issuperset(found.ranks):
            return found
        others = format_ranks(sorted({*finding.ranks} - {*narrow}))
        said = f"GPU and NIC of each of ranks {others} show nothing that would account for it"
        return replace(
            finding,
            ranks=narrow,
            members=Members.EACH,
            granularity=Granularity.RANK,
            mechanism=Mechanism("late_end", "local"),
            evidence=(*finding.evidence, Evidence(said)),
        )

    def _undecided(self, kind: Oddity, finding: Finding, slowdown: float | None) -> Finding:
        """A finding about a guest as one about its device, where a narrow link accounts for it too: either may cost nothing."""
        if kind is not Oddity.SHARED or not self._explains(Oddity.NARROW, finding):
            return finding
        accounted = self._accounted(Oddity.NARROW, finding, slowdown)
        if accounted is None or accounted < LEAST_ACCOUNTED:
            return finding
        links = (Evidence(sign.statement, sign.source) for sign in self._of(Oddity.NARROW, finding.ranks)[:_SHOWN])
        return replace(finding, cause=Cause.COMPUTE_SLOW, evidence=(*finding.evidence, *links, _EITHER))

    def _narrowed(self, kind: Oddity, finding: Finding) -> Finding:
        """One of several, by clocks that account for the cost: the one whose are low, and those of which nothing was read.

        A guest may be idle, and the narrow link of a GPU may have nothing to carry: sound hosts have both. What goes over a NIC
        goes through its slot: one that is too narrow for what others move makes it slow whatever the other end is like.
        """
        if kind is Oddity.NARROW_NIC and finding.members is Members.ONE_OF:
            return self._of_narrow_slots(finding)
        meant = tuple(rank for rank in finding.ranks if rank not in self.read or self._of(kind, [rank]))
        if finding.members is not Members.ONE_OF or kind is not Oddity.THROTTLED or not 0 < len(meant) < len(finding.ranks):
            return finding
        others = tuple(sorted({*finding.ranks} - {*meant}))
        clean = Evidence(f"GPUs of ranks {format_ranks(others)} show nothing of it")
        narrowed = replace(finding, ranks=meant, evidence=(*finding.evidence, clean))
        return narrowed if len(meant) > 1 else replace(narrowed, members=Members.EACH, granularity=Granularity.RANK)

    def _of_narrow_slots(self, finding: Finding) -> Finding:
        """Of the ends of a link those whose NIC has a narrow slot."""
        ends = tuple(rank for rank in finding.ranks if self._of(Oddity.NARROW_NIC, [rank]))
        others = tuple(sorted({*finding.ranks} - {*ends})) or finding.ranks
        nics = {sign.source.rpartition("#")[2] for sign in self._of(Oddity.NARROW_NIC, ends)}
        resource = Resource(nic=nics.pop() if len(nics) == 1 else None, peer_ranks=others)
        mechanism = finding.mechanism and replace(finding.mechanism, side="local")
        found = replace(finding, ranks=ends, members=Members.EACH, granularity=Granularity.NIC)
        return replace(found, resource=resource, mechanism=mechanism)

    def _explains(self, kind: Oddity, finding: Finding) -> bool:
        odd = [any(sign.kind is kind for sign in self.signs.get(rank, ())) for rank in finding.ranks]
        return bool(odd) and (any(odd) if finding.members is Members.ONE_OF else all(odd))

    def _accounted(self, kind: Oddity, finding: Finding, slowdown: float | None) -> float | None:
        """Part of the cost that the signs explain at most; None when one of the two was not measured."""
        lost = finding.impact.share if finding.impact is not None else None
        parts = {rank: [_explained(sign, slowdown, lost) for sign in self._of(kind, [rank])] for rank in finding.ranks}
        known = {rank: [part for part in found if part is not None] for rank, found in parts.items()}
        measured = [part for found in known.values() for part in found]
        if finding.members is Members.ONE_OF:
            return max(measured, default=None)
        # Of each rank one sign has to be measured; others may say the same in numbers that bound no time.
        return min(measured) if measured and all(known.values()) else None

    def _of(self, kind: Oddity, ranks: Iterable[int]) -> list[Sign]:
        return [sign for rank in ranks for sign in self.signs.get(rank, ()) if sign.kind is kind]


def _explained(sign: Sign, slowdown: float | None, lost: float | None) -> float | None:
    """Part of the cost that one sign explains at most: of the factor, or of the share of the time."""
    if sign.factor is not None and slowdown is not None and slowdown > 1:
        return min(1.0, max(0.0, sign.factor - 1) / (slowdown - 1))
    if sign.share is not None and lost:
        return min(1.0, sign.share / lost)
    return None


def _slowdown(finding: Finding) -> float | None:
    """How many times as long a step takes for what is lost; None when the share is not known."""
    share = finding.impact.share if finding.impact is not None else None
    if share is None or share <= 0:
        return None
    return 1 / (1 - share) if share < 1 else float("inf")
