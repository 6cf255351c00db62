"""Sound jobs of a busy host: rank 0 has work of its own, steps come near the time between samples. Nobody is at fault."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.live.commands import collect, diagnose
from tests.live.harness import launch

pytestmark = [pytest.mark.live, pytest.mark.alone]

WORK = ("evaluate", "log", "save")
# `collect` takes its samples about half a second apart.
PERIODS_S = (0.25, 0.5, 1.0, 2.0, 4.0)
SHARES = (0.0, 0.2, 0.4, 0.6)
# On the two cores of a small host, six ranks are three to a core.
WORLDS = (2, 4, 6)
JOBS = 40
SLOWED = 4
USUAL = (0, 1, 2)


def drawn(number: int) -> tuple[int, list[str]]:
    """World size and arguments of one job; every kind of work meets every share and period in the first sixty."""
    source = random.Random(number)
    arguments = {
        "work": WORK[number % len(WORK)],
        "share": SHARES[number % len(SHARES)],
        "period": PERIODS_S[number % len(PERIODS_S)],
        "step": round(source.uniform(0.02, 0.2), 3),
    }
    return source.choice(WORLDS), [f"--{name}={value}" for name, value in arguments.items()]


CASES = [pytest.param(number, marks=[] if number in USUAL else [pytest.mark.deep]) for number in range(JOBS)]


@pytest.mark.parametrize("number", CASES)
def test_nobody_is_accused(number: int, tmp_path: Path) -> None:
    world, arguments = drawn(number)
    with launch("train_periodic.py", [f"--output={tmp_path}", *arguments], world=world) as job:
        job.wait_steps(30)
        collect(job, tmp_path / "bundle.tar")
        job.wait_steps(job.lines(0) + 2)
    verdict = diagnose(tmp_path / "bundle.tar")
    assert verdict["outcome"] in ("healthy", "inconclusive", "slowdown"), verdict["summary"]
    assert verdict["suspects"] == [], (verdict["summary"], arguments)


@pytest.mark.deep
@pytest.mark.parametrize("number", range(SLOWED))
def test_a_job_that_became_slow_is_neither_hung_nor_healthy(number: int, tmp_path: Path) -> None:
    """All ranks need three times as long since the sixtieth of ninety steps."""
    arguments = [f"--output={tmp_path}", "--slower-from=60", f"--step={(0.03, 0.05, 0.1, 0.2)[number]}"]
    with launch("train_periodic.py", arguments, world=2 + number) as job:
        job.wait_steps(90)
        collect(job, tmp_path / "bundle.tar")
        job.wait_steps(job.lines(0) + 2)
    verdict = diagnose(tmp_path / "bundle.tar")
    assert verdict["outcome"] in ("slowdown", "inconclusive"), verdict["summary"]
    assert verdict["suspects"] == []
