"""Who is known to begin the operators of rings last, by captures made up, and what must not look like it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Granularity, Members, Outcome, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.nic_captures import Begun, begun, write

MS = 1e6


def judged(folder: Path, made: Begun) -> Verdict:
    return diagnose(open_case([write(folder, begun(made))]))


def test_the_host_for_which_all_its_rings_wait_is_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, Begun(late={2: 9 * MS, 3: 9 * MS}))
    (found,) = verdict.suspects
    assert (verdict.outcome, found.ranks, found.granularity) == (Outcome.SLOWDOWN, (2, 3), Granularity.HOST)
    assert found.mechanism is not None and found.mechanism.state == "late_start" and found.rules == ("FX183",)


def test_a_rank_of_one_ring_is_named_alone(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, Begun(late={5: 9 * MS})).suspects
    assert (found.ranks, found.members) == ((5,), Members.EACH)


def test_of_late_ranks_of_several_hosts_one_may_hold_up_the_others(tmp_path: Path) -> None:
    (found,) = judged(tmp_path, Begun(late={2: 9 * MS, 5: 9 * MS})).suspects
    assert (found.ranks, found.members) == ((2, 5), Members.ONE_OF)


@pytest.mark.parametrize(("loaded", "cause"), [((), Cause.UNKNOWN), ((4,), Cause.EXPERT_IMBALANCE)])
def test_who_is_late_to_exchanges_is_named_and_more_tokens_are_the_cause(
    loaded: tuple[int, ...], cause: Cause, tmp_path: Path
) -> None:
    (found,) = judged(tmp_path, Begun(mesh=True, late={4: 9 * MS}, whole=20e6, early=2e6, loaded=loaded)).suspects
    assert (found.ranks, found.cause) == ((4,), cause)


@pytest.mark.parametrize(
    "made",
    [
        Begun(),
        Begun(apart=5 * MS),
        Begun(late={2: 0.5 * MS}),
        Begun(late={2: 9 * MS}, times=1),
        Begun(late={0: 9 * MS, 2: 6 * MS, 4: 3 * MS}),
        Begun(size=3, apart=6 * MS),
        Begun(mesh=True, loaded=(2,), whole=20e6, early=2e6),
        Begun(mesh=True, size=3, late={2: 9 * MS}, whole=20e6, early=2e6),
    ],
    ids=[
        "all begin together",
        "stages of a pipeline",
        "half a millisecond",
        "once",
        "all at different times",
        "three stages",
        "load without delay",
        "an exchange of three",
    ],
)
def test_nobody_is_named(made: Begun, tmp_path: Path) -> None:
    assert judged(tmp_path, made).suspects == ()


def test_a_ring_of_which_a_capture_is_missing_tells_nobody(tmp_path: Path) -> None:
    """The one that was not captured may be late as well."""
    files = begun(replace(Begun(), late={2: 9 * MS}))
    del files["nodes/n3/nic/mlx5_0.epochs"]
    assert diagnose(open_case([write(tmp_path, files)])).suspects == ()
