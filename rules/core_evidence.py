"""What is said of the cores of a slow rank: how few its process may run on, and what holds it back from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from forensics.model import Evidence
from forensics.rules.reductions.hardware.allowed_cores import AllowedCores, fewer_cores
from forensics.rules.reductions.hardware.held_back import CoreTimes, beside, nicer, throttled
from forensics.rules.reductions.text.evidence_text import counted, ranks_text


def core_evidence(ranks: Collection[int], cores: AllowedCores, times: CoreTimes) -> Iterator[Evidence]:
    """What each of some slow ranks has and few of the others have; it accuses nobody by itself."""
    few = fewer_cores(ranks, cores)
    if few is not None:
        said = f"{ranks_text(ranks)} may run on {counted(few.cores, 'core')} (Cpus_allowed_list)"
        yield Evidence(f"{said}, the others on {few.usual}", few.source)
    if (held := throttled(ranks, times)) is not None:
        mine, usual = held
        much = f"cut short {100 * (mine.throttled or 0.0):.0f} % of its periods, {mine.held_us / 1e6:.1f} s in all (cpu.stat)"
        limit = f"the limit of {mine.cores:g} cores of the control group of {ranks_text(ranks)}"
        others = beside(ranks, times)
        shared = f"; {counted(others, 'rank')} beside share that group" if others else ""
        yield Evidence(f"{limit} {much}; {100 * usual:.0f} % usual for the others{shared}", mine.source)
    if (nice := nicer(ranks, times)) is not None:
        mine, usual = nice
        said = f"the nice value of {ranks_text(ranks)} is {mine.nice}, of the others {usual:g}"
        yield Evidence(f"{said}: on a busy core it gets less of the time", mine.source)
