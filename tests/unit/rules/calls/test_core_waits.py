"""Who is late on a host short of cores: ranks that only lacked one, and those that work longer or wait by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from forensics.rules.reductions.arrivals.lateness import Lateness
from forensics.rules.reductions.hardware.cpu import CpuUse, HostCpu
from forensics.rules.reductions.pipeline.core_waits import only_lacked_a_core
from forensics.rules.reductions.ranks.processor_time import ProcessorTimes
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.samples import Sample, Stacks
from tests.unit.rules.stacks.test_activity import LIB, path

SHORT = HostCpu({"a": CpuUse("a", 6.8, 0.6, "ranks/0/proc/0.json")})
FREE = HostCpu({"a": CpuUse("a", 4.0, 4.0, "ranks/0/proc/0.json")})
LATE = Lateness(0, "0", "all_reduce", (0, 1, 2, 3), 51, 46, 4 * 10**9, 0.4, 71_000_000, "rank0", 10**9, 0)
ROSTER = Roster({rank: RankFacts(rank, host="a") for rank in range(4)}, 4)
EQUAL = (0.41, 0.39, 0.42, 0.40)
COMPUTES = "train@/srv/job/train.py"
SLEEPS = f"Queue.get@{LIB}queue.py"


def times(used_s: Sequence[float]) -> ProcessorTimes:
    return ProcessorTimes(tuple(range(len(used_s))), np.array(used_s)[:, None], 6.0)


def sample(number: int, innermost: str) -> Sample:
    frames = path(innermost, "fit@/srv/job/train.py", "<module>@/srv/job/train.py")
    return Sample(number, 1, 1, True, False, activity(frames), "s")


def stacks(*innermost: str) -> Stacks:
    return Stacks(tuple(sample(number, each) for number, each in enumerate(innermost)), (), ())


@pytest.mark.parametrize(
    ("cpu", "used_s", "own", "expected"),
    [
        (SHORT, EQUAL, (COMPUTES,) * 4 + (SLEEPS,), True),
        (FREE, EQUAL, (COMPUTES,) * 5, False),
        (SHORT, (0.9, 0.3, 0.3, 0.3), (COMPUTES,) * 5, False),
        (SHORT, (0.1, 0.4, 0.4, 0.4), (COMPUTES,) * 5, False),
        (SHORT, EQUAL, (SLEEPS,) * 4 + (COMPUTES,), False),
        (SHORT, EQUAL[:2], (COMPUTES,) * 5, False),
        (SHORT, (), (COMPUTES,) * 5, False),
    ],
    ids=["as all others", "cores are free", "works longer", "is held back", "waits by itself", "of two", "not measured"],
)
def test_who_works_as_the_others_on_a_crowded_host_lacked_a_core(
    cpu: HostCpu, used_s: Sequence[float], own: Sequence[str], expected: bool
) -> None:
    assert only_lacked_a_core(LATE, cpu, ROSTER, times(used_s), stacks(*own), 1e9) is expected


def test_without_stacks_a_late_rank_may_wait_by_itself() -> None:
    assert not only_lacked_a_core(LATE, SHORT, ROSTER, times(EQUAL), None, 1e9)


def test_what_cost_little_there_is_a_moment() -> None:
    assert only_lacked_a_core(replace(LATE, lost_ns=10**8), SHORT, ROSTER, ProcessorTimes(), None, 1e9)
