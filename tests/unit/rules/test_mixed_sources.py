"""Dumps of some ranks and logs or counters of others: one wait-for graph, and the same rank as from dumps of all."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Collection
from itertools import combinations
from pathlib import Path

import pytest
import zstandard

from forensics.model import Confidence
from tests.recordings.collection import loose, write
from tests.recordings.job import START_NS, Job
from tests.recordings.rank_logs import RankLogs
from tests.recordings.ras import Comm, Member, as_json
from tests.recordings.verdicts import blamed, named, verdict_of

WORLD, CULPRIT, STEPS = 4, 2, 40


def hung() -> Job:
    """Rank 2 never issues call 41, in which all others wait."""
    job = Job(WORLD, "nccl")
    job.steps(STEPS)
    job.hang({CULPRIT})
    return job


def watchdogs(ranks: tuple[int, ...], ahead: int = 0) -> RankLogs:
    """What the watchdogs of these ranks say of that job, or of one that is `ahead` of it."""
    logs = RankLogs()
    for rank in ranks:
        if rank == CULPRIT:
            logs.signalled(rank, STEPS + ahead, STEPS + ahead, by=0)
        else:
            logs.timed_out(rank, STEPS + 1 + ahead, STEPS + 1 + ahead)
    return logs


@pytest.mark.parametrize("dumped", [(0, 1), (2, 3), (0, 2), (1, 3), (0, 1, 3), (0, 1, 2), (2,)])
def test_dumps_of_some_ranks_and_logs_of_the_others_name_the_same_rank(dumped: tuple[int, ...], tmp_path: Path) -> None:
    loose(hung(), tmp_path, ranks=dumped)
    others = tuple(rank for rank in range(WORLD) if rank not in dumped)
    assert named(verdict_of(watchdogs(others).write(tmp_path))) == {CULPRIT}


def test_logs_beside_dumps_of_all_ranks_change_nothing(tmp_path: Path) -> None:
    alone = verdict_of(loose(hung(), tmp_path / "dumps"))
    both = verdict_of(tmp_path / "dumps", watchdogs(tuple(range(WORLD))).write(tmp_path / "logs"))
    assert [(s.ranks, s.cause, s.confidence) for s in both.suspects] == [
        (s.ranks, s.cause, s.confidence) for s in alone.suspects
    ]


@pytest.mark.parametrize("left", range(WORLD))
def test_a_log_that_nobody_copied_names_nobody_else(left: int, tmp_path: Path) -> None:
    loose(hung(), tmp_path, ranks=(0, 1))
    logs = watchdogs(tuple(rank for rank in (2, 3) if rank != left))
    assert named(verdict_of(logs.write(tmp_path))) <= {CULPRIT, left}
    assert blamed(verdict_of(tmp_path)) <= {CULPRIT}


def test_logs_of_another_run_contradict_the_dumps_and_the_reader_is_stated(tmp_path: Path) -> None:
    loose(hung(), tmp_path)
    verdict = verdict_of(watchdogs(tuple(range(WORLD)), ahead=500).write(tmp_path))
    assert named(verdict) == {CULPRIT}
    stated = [label.reason for label in verdict.labels if label.label == "contradiction"]
    assert stated and all("recorder" in reason and ".log#line=" in reason for reason in stated)
    assert {suspect.confidence for suspect in verdict.suspects} == {Confidence.SUSPECT}


def test_logs_of_another_run_for_the_ranks_without_a_dump_are_not_mixed_in(tmp_path: Path) -> None:
    loose(hung(), tmp_path, ranks=(0, 1))
    verdict = verdict_of(watchdogs((2, 3), ahead=500).write(tmp_path))
    assert blamed(verdict) <= {CULPRIT} and not {0, 1} & named(verdict)


def test_calls_that_nccl_logged_tell_which_of_two_silent_ranks_it_is(tmp_path: Path) -> None:
    """Nothing proves that NCCL's calls are those of the dumps: two communicators, one graph."""
    loose(hung(), tmp_path, ranks=(0, 1))
    logs = RankLogs()
    for rank in (2, 3):
        logs.started(rank, WORLD)
        logs.calls(rank, WORLD, range(STEPS + (rank != CULPRIT)))
    verdict = verdict_of(logs.write(tmp_path))
    assert named(verdict) == {CULPRIT} and not blamed(verdict)


SHIM_BUNDLE = Path(__file__).parents[3] / "fixtures/scenarios/behind-in-shim-logs/bundle.tar.zst"
SHIM_BEHIND = 1
SHIM_START_NS = 1_795_294_503_862_628_228


def shim_logs(ranks: Collection[int], folder: Path) -> Path:
    """Logs of the job in which rank 1 does not make the second call of its pair, nor that of the world."""
    packed = zstandard.ZstdDecompressor().decompressobj().decompress(SHIM_BUNDLE.read_bytes())
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]
    folder.mkdir()
    return write(folder, {p: c for p, c in found.items() if p.endswith(".frx") and int(p.split("/")[1]) in ranks})


def dumps_of_the_same_job(ranks: Collection[int], folder: Path) -> Path:
    job = Job(WORLD, "nccl")
    pairs = [job.group((0, 1)), job.group((2, 3))]
    for absent in ((), (SHIM_BEHIND,)):
        for group in (*pairs, job.everyone):
            whole = not set(absent) & set(group.members)
            shapes, dtype = (((1,),), "Double") if group is job.everyone else (((4096,),), "Float")
            job.call(group, ranks=[r for r in group.members if r not in absent], done=whole, shapes=shapes, dtype=dtype)
    return loose(job, folder, ranks=tuple(ranks), skew_ns=dict.fromkeys(range(WORLD), SHIM_START_NS - START_NS))


@pytest.mark.parametrize("dumped", [set(each) for n in range(5) for each in combinations(range(WORLD), n)], ids=str)
def test_dumps_of_some_ranks_and_shim_logs_of_the_others_name_the_same_rank(dumped: set[int], tmp_path: Path) -> None:
    paths = [shim_logs(set(range(WORLD)) - dumped, tmp_path / "logs")] if len(dumped) < WORLD else []
    paths += [dumps_of_the_same_job(dumped, tmp_path / "dumps")] if dumped else []
    assert named(verdict_of(*paths)) == {SHIM_BEHIND}


@pytest.mark.parametrize("dumped", [{0, 2}, {1, 3}, {0, 1, 2}, {3}])
def test_shim_logs_of_all_ranks_beside_dumps_of_some_name_the_same_rank(dumped: set[int], tmp_path: Path) -> None:
    paths = [shim_logs(range(WORLD), tmp_path / "logs"), dumps_of_the_same_job(dumped, tmp_path / "dumps")]
    assert named(verdict_of(*paths)) == {SHIM_BEHIND}


@pytest.mark.parametrize("left", range(WORLD))
@pytest.mark.parametrize("dumped", [{0, 2}, {1, 3}, {2, 3}])
def test_a_rank_of_which_nothing_was_collected_is_named_as_a_suspicion_at_most(
    dumped: set[int], left: int, tmp_path: Path
) -> None:
    paths = [shim_logs(set(range(WORLD)) - dumped - {left}, tmp_path / "logs")]
    paths.append(dumps_of_the_same_job(dumped - {left}, tmp_path / "dumps"))
    assert blamed(verdict_of(*paths)) <= {SHIM_BEHIND, left}


def test_counters_tell_which_of_two_silent_ranks_it_is(tmp_path: Path) -> None:
    loose(hung(), tmp_path, ranks=(0, 1))
    counts = Comm(0xA, [Member(r, "10.0.0.1", 100 + r, r, {"AllReduce": STEPS + (r != CULPRIT)}) for r in range(WORLD)])
    verdict = verdict_of(write(tmp_path, {"ras.json": as_json([counts])}))
    assert named(verdict) == {CULPRIT} and not blamed(verdict)


def test_counters_of_a_job_whose_dumps_are_all_here_accuse_nobody_else(tmp_path: Path) -> None:
    loose(hung(), tmp_path)
    counts = Comm(0xA, [Member(r, "10.0.0.1", 100 + r, r, {"AllReduce": STEPS - (r == 1)}) for r in range(WORLD)])
    assert named(verdict_of(write(tmp_path, {"ras.json": as_json([counts])}))) == {CULPRIT}
