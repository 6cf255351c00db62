"""Processes of which each writes from sample to sample show a job that moves, and rounds of stacks whom it waits for."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome, StageName, Verdict
from tests.recordings.collection import Collection
from tests.recordings.job import START_NS
from tests.recordings.places import (
    ALL_REDUCE,
    BARRIER,
    BROADCAST,
    FORWARD,
    GRADIENT_HOOK,
    HOST_CODE,
    LOADER_QUEUE,
    OTHER_CODE,
    RECV,
    Place,
)
from tests.recordings.verdicts import verdict_of

MB = 1_000_000
ALONE = (FORWARD, OTHER_CODE, HOST_CODE, FORWARD, OTHER_CODE)


def _smi(*throttled: int) -> bytes:
    """What nvidia-smi prints of four GPUs, by those whose clocks are held down for their heat."""
    blocks = "".join(
        f'<gpu id="00000000:{gpu}B:00.0"><uuid>GPU-{gpu}abc</uuid><product_name>H100</product_name><clocks_event_reasons>'
        f"<clocks_event_reason_hw_thermal_slowdown>{'Active' if gpu in throttled else 'Not Active'}"
        "</clocks_event_reason_hw_thermal_slowdown></clocks_event_reasons></gpu>"
        for gpu in range(4)
    )
    return f'<?xml version="1.0" ?><nvidia_smi_log>{blocks}</nvidia_smi_log>'.encode()


def _verdict(
    busy: Mapping[int, Sequence[Place]],
    folder: Path,
    *,
    others: Place = ALL_REDUCE,
    wrote: Mapping[int, int] | None = None,
    pauses: Container[int] = (),
    active: Container[int] = (),
    smi: bytes | None = None,
) -> Verdict:
    """Four ranks, those that are not `busy` at one place all the time; each writes 2 MB a sample, or what `wrote` says.

    Before the samples in `pauses` nobody writes.
    `active` are seen on a CPU by the sampler of stacks.
    """
    found = Collection(4, START_NS)
    rounds = len(busy[min(busy)])
    for rank in range(4):
        found.rank(rank)
        found.samples(rank, count=rounds, moving=True)
        found.stacks(rank, *busy.get(rank, [others] * rounds), active=rank in active)
        growth = (0 if number in pauses else (wrote or {}).get(rank, 2 * MB) for number in range(1, rounds))
        found.written(rank, list(accumulate(growth, initial=0)))
    if smi:
        found.service("gpu.smi", 0, "gpu/nvidia-smi.xml", smi, found.at_ns)
    return verdict_of(found.write(folder))


@pytest.mark.parametrize(
    "rounds", [ALONE, (*ALONE, ALL_REDUCE), (ALL_REDUCE, *ALONE)], ids=["always", "waits at last", "waits at first"]
)
@pytest.mark.parametrize("others", [ALL_REDUCE, GRADIENT_HOOK], ids=["all_reduce", "gradients"])
def test_who_works_alone_at_five_moments_of_a_moving_job_is_a_suspect(
    rounds: Sequence[Place], others: Place, tmp_path: Path
) -> None:
    verdict = _verdict({2: rounds}, tmp_path, others=others)
    (suspect,) = verdict.suspects
    assert (verdict.outcome, suspect.ranks, suspect.rules) == (Outcome.SLOWDOWN, (2,), ("FX176",))
    assert suspect.confidence is Confidence.SUSPECT
    assert any("each of 4 ranks wrote 2.0 MB or more" in each.statement for each in suspect.evidence)
    assert any(not each.supports for each in suspect.evidence)


@pytest.mark.parametrize(
    ("busy", "others", "wrote"),
    [
        ({2: ALONE[:4]}, ALL_REDUCE, {}),
        ({2: ALONE}, BROADCAST, {}),
        ({2: ALONE}, RECV, {}),
        ({2: ALONE}, BARRIER, {}),
        ({2: ALONE}, ALL_REDUCE, {0: 0}),
        ({2: ALONE}, ALL_REDUCE, {0: 4000}),
        ({2: (*ALONE, FORWARD, FORWARD), 1: (*[ALL_REDUCE] * 5, FORWARD, FORWARD)}, ALL_REDUCE, {}),
        ({2: (*ALONE, *[ALL_REDUCE] * 4)}, ALL_REDUCE, {}),
    ],
    ids=[
        "four moments", "served by it", "sent to by it", "late to a barrier", "one writes nothing", "one notes that it waits",
        "another works too", "half of the moments",
    ],
)  # fmt: skip
def test_what_looks_alike_is_not_called_slow(
    busy: Mapping[int, Sequence[Place]], others: Place, wrote: Mapping[int, int], tmp_path: Path
) -> None:
    verdict = _verdict(busy, tmp_path, others=others, wrote=wrote)
    assert not [suspect for suspect in verdict.suspects if "FX176" in suspect.rules]


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [((*ALONE[:3], ALL_REDUCE, *ALONE[3:]), {2}), ((ALL_REDUCE, *ALONE), set()), ((*ALONE, ALL_REDUCE), set())],
    ids=["comes in between", "comes at first", "comes at last"],
)
def test_who_comes_to_the_others_and_leaves_them_again_moves_the_job(
    rounds: Sequence[Place], expected: set[int], tmp_path: Path
) -> None:
    """Nothing else shows it: rank 0 writes nothing. A rank that hangs behind one call was in that call before."""
    verdict = _verdict({2: rounds}, tmp_path, wrote={0: 0})
    assert {rank for each in verdict.suspects if "FX176" in each.rules for rank in each.ranks} == expected


def test_a_step_longer_than_what_lies_between_two_samples_moves_the_job_as_well(tmp_path: Path) -> None:
    (suspect,) = _verdict({2: ALONE}, tmp_path, pauses={2, 3}).suspects
    assert (suspect.ranks, suspect.rules) == ((2,), ("FX176",))


def test_another_rank_that_is_late_once_does_not_hide_the_one_that_is_five_times(tmp_path: Path) -> None:
    (suspect,) = _verdict({2: (*ALONE, ALL_REDUCE), 1: (*[ALL_REDUCE] * 5, FORWARD)}, tmp_path).suspects
    assert suspect.ranks == (2,)


@pytest.mark.parametrize(("number", "named"), [(1, [(2,)]), (2, [])], ids=["one of three", "two of three"])
def test_a_broadcast_between_equals_is_not_what_the_rank_serves(number: int, named: Sequence[object], tmp_path: Path) -> None:
    served = dict.fromkeys((1, 3)[:number], [BROADCAST] * 5)
    assert [each.ranks for each in _verdict({2: ALONE, **served}, tmp_path).suspects] == named


def test_who_is_late_less_often_than_four_times_of_five_is_where_to_begin(tmp_path: Path) -> None:
    verdict = _verdict({2: (*ALONE, ALL_REDUCE, ALL_REDUCE), 1: (*[ALL_REDUCE] * 5, FORWARD, ALL_REDUCE)}, tmp_path)
    assert not verdict.suspects and "in 5 of 7 rounds of stacks" in verdict.leads[0]


def test_who_computes_below_the_autograd_engine_while_others_wait_there_is_at_work(tmp_path: Path) -> None:
    (suspect,) = _verdict({1: [GRADIENT_HOOK] * 6}, tmp_path, others=GRADIENT_HOOK, active={1}).suspects
    assert (suspect.ranks, suspect.rules, suspect.stage.name) == ((1,), ("FX176",), StageName.BACKWARD)


@pytest.mark.parametrize("active", [{0, 1, 2, 3}, {1, 2}, ()], ids=["all", "two", "nobody"])
def test_who_computes_there_with_others_is_not(active: Container[int], tmp_path: Path) -> None:
    assert not _verdict({1: [GRADIENT_HOOK] * 6}, tmp_path, others=GRADIENT_HOOK, active=active).suspects


def test_the_stage_is_that_of_most_moments(tmp_path: Path) -> None:
    (suspect,) = _verdict({1: (*[LOADER_QUEUE] * 5, FORWARD)}, tmp_path).suspects
    assert (suspect.stage.name, suspect.cause) == (StageName.DATA, Cause.DATALOADER_STALL)


def test_a_job_whose_ranks_all_write_moves(tmp_path: Path) -> None:
    verdict = _verdict({0: [ALL_REDUCE] * 3}, tmp_path)
    assert (verdict.outcome, verdict.suspects) == (Outcome.INCONCLUSIVE, ())
    assert "each of 4 ranks wrote 2.0 MB or more from sample to sample, on average" in verdict.summary


@pytest.mark.parametrize(("throttled", "leads"), [((2,), 1), ((), 0), ((1, 2), 0)], ids=["one", "none", "two"])
def test_a_gpu_whose_clocks_are_held_down_is_where_to_begin_in_a_job_that_moves(
    throttled: tuple[int, ...], leads: int, tmp_path: Path
) -> None:
    verdict = _verdict({0: [ALL_REDUCE] * 3}, tmp_path, smi=_smi(*throttled))
    assert ["clocks are held down" in lead for lead in verdict.leads] == [True] * leads
