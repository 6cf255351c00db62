"""What is odd of the hardware of the ranks of a job, and which cause of a finding that explains.

State of hardware accuses nobody: a GPU whose clocks are held down may still be in time. It says why a rank is slow that other
evidence found to be slow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from forensics.model import Cause, Component, Evidence, Finding, Members


class Oddity(Enum):
    """Kinds of signs, in the order in which they are believed."""

    THROTTLED = "throttled"
    SHARED = "shared"
    NARROW = "narrow"
    CONGESTED = "congested"
    ERRORS = "errors"
    MEMORY = "memory"


_OF_COMPUTE = {
    Oddity.THROTTLED: Cause.GPU_THROTTLED,
    Oddity.SHARED: Cause.GPU_CONTENTION,
    Oddity.NARROW: Cause.PCIE_DEGRADED,
}
_OF_NETWORK = {Oddity.NARROW: Cause.PCIE_DEGRADED, Oddity.CONGESTED: Cause.NETWORK_CONGESTION}
_BESIDE_COMPUTE, _BESIDE_NETWORK = (Oddity.MEMORY,), (Oddity.ERRORS,)
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that is odd of the hardware of a rank, in words, with its place."""

    kind: Oddity
    statement: str
    source: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """Signs by rank; none for a rank whose hardware is like that of its peers, or not known."""

    signs: Mapping[int, tuple[Sign, ...]] = field(default_factory=dict)

    def refined(self, finding: Finding, slow: Collection[Cause]) -> Finding:
        """The finding with the cause and the evidence that the hardware of its ranks gives; unchanged without any.

        `slow` are the causes that may be refined. Of ranks of which each is accused all must show the sign; where one of
        several is to blame, one that shows it is enough.
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
        is_open = finding.stage.component is Component.UNKNOWN and not of_network
        stage = replace(finding.stage, component=Component.COMPUTE) if is_open else finding.stage
        return replace(finding, cause=causes[kind], stage=stage, evidence=(*finding.evidence, *evidence))

    def _explains(self, kind: Oddity, finding: Finding) -> bool:
        odd = [any(sign.kind is kind for sign in self.signs.get(rank, ())) for rank in finding.ranks]
        return bool(odd) and (any(odd) if finding.members is Members.ONE_OF else all(odd))

    def _of(self, kind: Oddity, ranks: Iterable[int]) -> list[Sign]:
        return [sign for rank in ranks for sign in self.signs.get(rank, ()) if sign.kind is kind]
