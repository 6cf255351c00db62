"""Traces of made-up pipelines: what a sound one does accuses nobody, what a slow one does names the rank and its pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Verdict
from forensics.rules.diagnosis import diagnose
from tests.unit.pipeline.made_up_traces import BACKWARD, END, FORWARD, MS, Took, Work, usual, write

SLOW = 5
"""Stage 1 of the second replica."""


def verdict(took: Took, folder: Path, *, steps: int = 9, first: int = 10) -> Verdict:
    write(folder, took, steps, first=first)
    with open_case([folder]) as connection:
        return diagnose(connection)


def uneven(work: Work) -> tuple[int, int]:
    """The first stage embeds, the last one has the head: each has more to do, in every pass."""
    extra = {0: 5 * MS, 3: 14 * MS}.get(work.stage, 0)
    return usual(work)[0] + extra * (work.kind != END), 0


def warming_up(work: Work) -> tuple[int, int]:
    """The first step of the job is long, and on one rank most."""
    return usual(work)[0] * (6 if work.step == 0 and work.rank == SLOW else 3 if work.step == 0 else 1), 0


def collecting(work: Work) -> tuple[int, int]:
    """The host of a rank collects garbage in one pass."""
    return usual(work)[0], 700 * MS * (work.step == 5 and work.rank == SLOW and (work.kind, work.microbatch) == (FORWARD, 2))


def collecting_at_first(work: Work) -> tuple[int, int]:
    """It does so in the first step of the trace, before which no call is known."""
    return usual(work)[0], 700 * MS * (work.step == 0 and work.rank == SLOW and (work.kind, work.microbatch) == (FORWARD, 2))


def saving(work: Work) -> tuple[int, int]:
    """Every rank saves in one step, between the passes, some longer."""
    return usual(work)[0], (900 + 100 * work.rank) * MS * (work.kind == END and work.step == 5)


def first_rank_logs(work: Work) -> tuple[int, int]:
    """The first rank writes logs at the end of every step."""
    return usual(work)[0], 60 * MS * (work.kind == END and work.rank == 0)


def first_rank_saves(work: Work) -> tuple[int, int]:
    """The first rank alone saves in one step."""
    return usual(work)[0], 3000 * MS * (work.kind == END and work.rank == 0 and work.step == 4)


def restless(work: Work) -> tuple[int, int]:
    """A shared fabric: every step some rank takes longer in some pass, each time another one."""
    struck = (work.step * 5 + 3) % 8 == work.rank and work.kind == FORWARD and work.microbatch == work.step % 6
    return usual(work)[0] + (40 + 13 * (work.step % 4)) * MS * struck, 0


def absorbed(work: Work) -> tuple[int, int]:
    """A pass takes longer within what the bubbles of its stage leave."""
    is_late = work.step == 5 and work.rank == 7 and (work.kind, work.microbatch) == (FORWARD, 0)
    return usual(work)[0] + 5 * MS * is_late, 0


@pytest.mark.parametrize(
    "took",
    [usual, uneven, collecting, collecting_at_first, saving, first_rank_logs, first_rank_saves, restless, absorbed],
    ids=lambda took: took.__name__,
)
def test_what_a_sound_job_does_accuses_nobody(took: Took, tmp_path: Path) -> None:
    assert verdict(took, tmp_path).suspects == ()


def test_the_first_step_of_a_job_is_not_judged(tmp_path: Path) -> None:
    assert verdict(warming_up, tmp_path, first=0).suspects == ()


def late(ranks: dict[int, tuple[int, str, int]], every: int) -> Took:
    """Ranks take 500 ms longer in the pass of a microbatch, from a step on and every so many steps."""

    def took(work: Work) -> tuple[int, int]:
        begin, kind, microbatch = ranks.get(work.rank, (99, END, 0))
        struck = work.step >= begin and (work.step - begin) % every == 0 and (work.kind, work.microbatch) == (kind, microbatch)
        return usual(work)[0] + 500 * MS * struck, 0

    return took


def named(found: Verdict) -> set[tuple[tuple[int, ...], str, int | None, int | None]]:
    return {(each.ranks, each.stage.name, each.stage.microbatch, each.stage.pipeline_stage) for each in found.suspects}


@pytest.mark.parametrize("kind", [FORWARD, BACKWARD])
@pytest.mark.parametrize("every", [99, 3])
def test_a_rank_that_is_slow_now_and_then_is_named(kind: str, every: int, tmp_path: Path) -> None:
    found = verdict(late({SLOW: (2, kind, 2)}, every), tmp_path)
    assert named(found) == {((SLOW,), kind, 2, 1)}
    assert found.suspects[0].cause is Cause.COMPUTE_SLOW


def test_in_the_first_step_of_a_trace_a_device_is_not_distinguished_from_a_host_that_came_late(tmp_path: Path) -> None:
    assert verdict(late({SLOW: (0, FORWARD, 2)}, 99), tmp_path).suspects == ()


def test_a_slowness_that_moves_from_one_rank_to_another_names_both(tmp_path: Path) -> None:
    found = verdict(late({SLOW: (2, FORWARD, 2), 2: (6, BACKWARD, 1)}, 99), tmp_path)
    assert named(found) == {((SLOW,), FORWARD, 2, 1), ((2,), BACKWARD, 1, 2)}


def test_two_pipelines_that_are_late_in_one_step_are_both_named(tmp_path: Path) -> None:
    found = verdict(late({SLOW: (4, FORWARD, 2), 2: (4, FORWARD, 3)}, 99), tmp_path)
    assert {rank for each in found.suspects for rank in each.ranks} == {SLOW, 2}


def test_a_host_that_is_late_by_seconds_is_distinguished_from_its_device(tmp_path: Path) -> None:
    def took(work: Work) -> tuple[int, int]:
        return usual(work)[0], 2000 * MS * (
            work.step == 4 and work.rank == SLOW and (work.kind, work.microbatch) == (FORWARD, 3)
        )

    found = verdict(took, tmp_path)
    assert named(found) == {((SLOW,), FORWARD, 3, 1)}
    assert [each.cause for each in found.suspects] == [Cause.HOST_STALL]


def test_nobody_is_named_in_place_of_a_rank_without_a_trace(tmp_path: Path) -> None:
    write(tmp_path, late({SLOW: (4, FORWARD, 2)}, 99), 9)
    (tmp_path / f"rank{SLOW}.pt.trace.json").unlink()
    with open_case([tmp_path]) as connection:
        assert diagnose(connection).suspects == ()


@pytest.mark.parametrize("form", ["unnumbered", "annotated"])
def test_other_forms_of_traces_tell_the_same(form: str, tmp_path: Path) -> None:
    write(tmp_path, late({SLOW: (4, FORWARD, 2)}, 99), 9, forms=(form,))
    with open_case([tmp_path]) as connection:
        assert named(diagnose(connection)) == {((SLOW,), FORWARD, 2, 1)}


def test_nobody_is_named_where_messages_have_no_peers_and_passes_no_collectives(tmp_path: Path) -> None:
    """The first call that shows who is late comes after the passes: there a rank may have a duty."""
    write(tmp_path, late({SLOW: (4, FORWARD, 2)}, 99), 9, forms=("grouped",))
    with open_case([tmp_path]) as connection:
        assert diagnose(connection).suspects == ()


def test_a_trace_that_is_cut_and_one_that_is_there_twice_change_nothing(tmp_path: Path) -> None:
    write(tmp_path, late({SLOW: (2, FORWARD, 2)}, 99), 9)
    whole = (tmp_path / "rank6.pt.trace.json").read_bytes()
    (tmp_path / "rank6.pt.trace.json").write_bytes(whole[: len(whole) * 3 // 4])
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "rank2.pt.trace.json").write_bytes((tmp_path / "rank2.pt.trace.json").read_bytes())
    with open_case([tmp_path]) as connection:
        assert named(diagnose(connection)) == {((SLOW,), FORWARD, 2, 1)}
