"""The one GPU that draws more than all others of the job: it computes while they wait for it in collectives.

A GPU that waits for a peer in a collective draws a good part less than one that computes, and the driver averages what it reads
over a second. So of equal ranks that lose a share of each step to one of them, that one draws more by a part of that share: no
time of a host shows which one it is where all hosts wait for their devices alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median

from duckdb import DuckDBPyConnection

from forensics.model import Belief, Cause, Component, Evidence, Finding, Granularity, StageName
from forensics.rules.reductions.hardware.causes import Hardware, Oddity
from forensics.rules.reductions.hardware.state import Gpu, Machines, machines
from forensics.rules.reductions.interface import reduction

_LEAST_OTHERS = 3
"""Of fewer GPUs the spread of equal ones is not known."""
_APART, _MORE = 2.0, 0.1
"""Of how far the highest of the others lies above their middle, and of that middle: boards of one model differ by less."""
_LEAST_OF_SHARE, _MOST_OF_SHARE = 0.25, 1.25
"""What the others draw less, as a part of the share of the time that they wait: a GPU that waits draws something, but less.

A second holds parts of steps.
"""
_EITHER = Evidence(
    "hosts wait in backward for what forward launched as well: without device times either pass may be the longer one",
    None, supports=False,
)  # fmt: skip
_POWER, _LIMIT = "power_mw", "power_limit_mw"
_W = 1000


@dataclass(frozen=True, slots=True)
class DrawnPower:
    """The rank whose GPU draws most by far, in mW, and what those of the others draw: the middle, and the most."""

    rank: int | None = None
    drawn: int = 0
    usual: float = 0.0
    most: int = 0
    others: int = 0
    source: str = ""

    def fits(self, share: float) -> bool:
        """Whether the others draw less by what waiting for that share of the time makes of it."""
        if self.rank is None:
            return False
        return _LEAST_OF_SHARE * share <= 1 - self.usual / self.drawn <= _MOST_OF_SHARE * share

    @property
    def readings(self) -> str:
        """What was read, in words."""
        usual = f"those of the {self.others} others {self.usual / _W:.0f} W in the middle, {self.most / _W:.0f} W at most"
        return f"the GPU of rank {self.rank} draws {self.drawn / _W:.0f} W, {usual}"

    @property
    def statement(self) -> str:
        """What that says where the others are known to wait."""
        return f"{self.readings}: it computes while they wait"


@reduction
def drawn_power(connection: DuckDBPyConnection, hardware: Hardware) -> DrawnPower:
    """Compare the GPUs of all ranks; one that has a guest draws power for somebody else as well, and is not named."""
    found = highest(machines(connection))
    signs = hardware.signs.get(found.rank, ()) if found.rank is not None else ()
    return DrawnPower() if any(sign.kind is Oddity.SHARED for sign in signs) else found


def highest(found: Machines) -> DrawnPower:
    """The rank whose GPU draws most by far, of GPUs that might draw as much."""
    drawn = {rank: watts for rank, gpu in found.gpus.items() if (watts := gpu.readings.get(_POWER)) is not None}
    first = max(drawn, key=lambda rank: (drawn[rank], -rank), default=None)
    if first is None:
        return DrawnPower()
    others = [drawn[rank] for rank in _comparable(found.gpus, first, drawn)]
    if len(others) < max(_LEAST_OTHERS, len(found.gpus) // 2):
        return DrawnPower()
    usual, most = median(others), max(others)
    beside = max((gpu.readings.get(_POWER, 0) for gpu in _of_nobody(found)), default=0)
    if drawn[first] - max(most, beside) < max(_APART * (most - usual), _MORE * usual):
        return DrawnPower()
    return DrawnPower(first, drawn[first], usual, most, len(others), found.gpus[first].source)


def _comparable(gpus: Mapping[int, Gpu], first: int, drawn: Mapping[int, int]) -> Iterator[int]:
    """The other ranks with a GPU of the same model whose limit is not below what the first one draws."""
    for rank in drawn:
        limit = gpus[rank].readings.get(_LIMIT)
        is_free = limit is None or limit >= drawn[first]
        if rank != first and gpus[rank].model == gpus[first].model and is_free and gpus[rank].source != gpus[first].source:
            yield rank


def _of_nobody(found: Machines) -> Iterable[Gpu]:
    """GPUs of these hosts that are not known to be of a rank."""
    sources = {gpu.source for gpu in found.gpus.values()}
    return [gpu for gpu in found.all_gpus if gpu.source not in sources]


def named_by_power(finding: Finding, power: DrawnPower) -> Finding:
    """A finding that all ranks became longer as one about the rank whose GPU computes while the others wait, by its draw."""
    share = finding.impact.share if finding.impact is not None else None
    if power.rank is None or share is None or not power.fits(share):
        return finding
    first, *others = finding.evidence
    seen = Evidence(power.statement, power.source)
    once = Evidence("draw was read once, and boards differ: read it again, or times inside calls", None, supports=False)
    either = (_EITHER,) if finding.stage.name is StageName.BACKWARD else ()
    return replace(
        finding, ranks=(power.rank,), cause=Cause.COMPUTE_SLOW, belief=Belief.BEHIND_AND_BUSY, granularity=Granularity.RANK,
        stage=replace(finding.stage, component=Component.COMPUTE), evidence=(first, seen, *others, once, *either),
    )  # fmt: skip
