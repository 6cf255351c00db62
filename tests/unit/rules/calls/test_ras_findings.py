"""FX153: counts of NCCL RAS, over two captures, with and without other witnesses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.model import Cause, Confidence, Verdict
from forensics.rules.diagnosis import diagnose
from tests.recordings.collection import Collection, pid_of, whole, write
from tests.recordings.group_scenarios import behind_in_ras, communicators
from tests.recordings.job import SECOND, START_NS, Job
from tests.recordings.places import LOADER_QUEUE
from tests.recordings.ras import Comm, Member, as_json, as_text
from tests.recordings.verdicts import blamed, named, stated, verdict_of

LATER = "2026-11-20 14:40:31"


def world(*counts: int, kind: str = "AllReduce") -> Comm:
    """One communicator of all ranks, eight to a node."""
    return Comm(0xA, [Member(r, f"10.0.0.{1 + r // 8}", 100 + r, r % 8, {kind: count}) for r, count in enumerate(counts)])


def asked_twice(folder: Path, first: list[Comm], second: list[Comm] | None = None, form: str = "json") -> Verdict:
    """Two loose reports, three minutes apart where the form tells."""
    later = first if second is None else second
    if form == "text":
        return verdict_of(write(folder, {"ras-0.txt": as_text(first), "ras-1.txt": as_text(later)}))
    return verdict_of(write(folder, {"ras-0.json": as_json(first), "ras-1.json": as_json(later, taken=LATER)}))


def test_the_rank_that_stays_behind_is_named(tmp_path: Path) -> None:
    verdict = asked_twice(tmp_path, [world(9, 9, 8, 9)])
    (suspect,) = verdict.suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((2,), Cause.HOST_STALL, Confidence.LIKELY)
    assert suspect.mechanism is not None and suspect.mechanism.state == "not_started"


def test_one_look_is_a_suspicion_with_its_reason(tmp_path: Path) -> None:
    verdict = verdict_of(write(tmp_path, {"ras.json": as_json([world(9, 9, 8, 9)])}))
    assert [(suspect.ranks, suspect.confidence) for suspect in verdict.suspects] == [((2,), Confidence.SUSPECT)]
    assert "RAS was asked once" in stated(verdict)


@pytest.mark.parametrize("second", [(9, 9, 9, 9), (10, 10, 9, 10), (20, 20, 19, 20), (9, 9, 8, 9)])
def test_a_rank_that_moved_is_no_evidence(tmp_path: Path, second: tuple[int, ...]) -> None:
    """The difference closes, or the rank is behind again but further on."""
    verdict = asked_twice(tmp_path, [world(9, 9, 8, 9)], [world(*second)])
    assert named(verdict) == ({2} if second[2] == 8 else set())


@pytest.mark.parametrize("form", ["json", "text"])
def test_equal_counts_accuse_nobody_and_clear_nobody(tmp_path: Path, form: str) -> None:
    verdict = asked_twice(tmp_path, [world(9, 9, 9, 9)], form=form)
    assert not verdict.suspects
    assert [row.status for row in verdict.ruled_out if row.rule == "FX153"] == ["silent"]


def test_without_a_report_the_rule_does_not_apply(tmp_path: Path) -> None:
    job = Job(2)
    job.steps(3)
    verdict = verdict_of(whole(job, {}).write(tmp_path))
    assert [row.status for row in verdict.ruled_out if row.rule == "FX153"] == ["not_applicable"]


def test_who_is_behind_because_it_waits_elsewhere_is_no_root(tmp_path: Path) -> None:
    """Rank 4 is behind in its data-parallel communicator: it waits for its tensor-parallel partner 5."""
    verdict = asked_twice(tmp_path, communicators(5))
    assert named(verdict) == {5}


def test_the_text_form_does_not_name_who_waits_in_an_unnamed_set(tmp_path: Path) -> None:
    """Rank 2 is behind here and may be among the three who wait for rank 7 there."""
    there = [Member(i, "10.0.0.1", 100 + r, r, {"AllGather": 5 - (r == 7)}) for i, r in enumerate((2, 3, 6, 7))]
    verdict = asked_twice(tmp_path, [world(9, 9, 8, 9, 9, 9, 9, 9), Comm(0xB, there)], form="text")
    assert not blamed(verdict)


def test_the_text_form_of_a_job_with_one_communicator(tmp_path: Path) -> None:
    verdict = asked_twice(tmp_path, [world(9, 9, 8, 9)], form="text")
    assert named(verdict) == {2} and not blamed(verdict)
    assert "RAS was asked once" in stated(verdict)


def test_looks_that_lie_close_together_are_a_suspicion(tmp_path: Path) -> None:
    files = {f"ras-{i}.json": as_json([world(9, 9, 8, 9)], taken=f"2026-11-20 14:37:3{i * 5}") for i in range(2)}
    verdict = verdict_of(write(tmp_path, files))
    assert named(verdict) == {2} and not blamed(verdict)


def test_more_than_half_behind_names_nobody(tmp_path: Path) -> None:
    """The one that is ahead made a call too much, or all others wait in something that is not counted."""
    assert not asked_twice(tmp_path, [world(8, 9, 8, 8)]).suspects


def test_several_behind_are_suspicions(tmp_path: Path) -> None:
    verdict = asked_twice(tmp_path, [world(9, 9, 8, 9, 9, 8, 9, 9)])
    assert named(verdict) == {2, 5} and not blamed(verdict)


def test_calls_that_are_not_counted_lower_the_confidence(tmp_path: Path) -> None:
    """A communicator without counts serves point-to-point calls or graphs: the rank may wait in it."""
    pair = Comm(0xB, [Member(i, "10.0.0.1", 100 + r, r) for i, r in enumerate((2, 3))])
    verdict = asked_twice(tmp_path, [world(9, 9, 8, 9), pair])
    assert named(verdict) == {2} and not blamed(verdict)
    assert "neither point-to-point calls nor captured graphs" in stated(verdict)


def test_another_kind_of_collective_is_a_mismatch_and_no_stall(tmp_path: Path) -> None:
    members = [Member(r, "10.0.0.1", 100 + r, r, {"AllReduce": 9 - (r == 2), "AllGather": 5 + (r == 2)}) for r in range(4)]
    (suspect,) = asked_twice(tmp_path, [Comm(0xA, members)]).suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((2,), Cause.COLLECTIVE_MISMATCH, Confidence.SUSPECT)


@pytest.mark.parametrize("state", [7, 2])
def test_a_communicator_that_is_being_created_differs_for_good_reasons(tmp_path: Path, state: int) -> None:
    comm = world(9, 9, 8, 9)
    assert not asked_twice(tmp_path, [replace(comm, members=[replace(m, init_state=state) for m in comm.members])]).suspects


@pytest.mark.parametrize(("word", "cause"), [("dead", Cause.PROCESS_DEAD), ("unresponsive", Cause.UNKNOWN)])
@pytest.mark.parametrize("form", ["json", "text"])
def test_a_lost_process_is_a_suspicion(tmp_path: Path, word: str, cause: Cause, form: str) -> None:
    comm = world(9, 9, 9, 9)
    lost = replace(comm, members=[replace(m, lost=word) if m.rank == 1 else m for m in comm.members])
    (suspect,) = asked_twice(tmp_path, [lost], form=form).suspects
    assert (suspect.ranks, suspect.cause, suspect.confidence) == ((1,), cause, Confidence.SUSPECT)


def test_a_lost_process_that_lives_on_its_host_is_not_called_dead(tmp_path: Path) -> None:
    found = Collection(4, START_NS)
    for rank in range(4):
        found.rank(rank)
        found.samples(rank)
    members = [Member(r, "10.0.0.1", pid_of(r), r, {"AllReduce": 9}, lost="dead" if r == 1 else None) for r in range(4)]
    for number in range(2):
        content = as_json([Comm(0xA, members)])
        found.service("nccl.ras", number, f"nccl/ras-{number}.json", content, START_NS + number * 90 * SECOND)
    (suspect,) = verdict_of(found.write(tmp_path)).suspects
    assert (suspect.ranks, suspect.cause) == ((1,), Cause.UNKNOWN)
    assert "found alive on its host" in stated(verdict_of(tmp_path))


def test_half_of_the_job_lost_accuses_no_rank(tmp_path: Path) -> None:
    """The service that was asked is cut off, not the others."""
    comm = world(9, 9, 9, 9)
    lost = replace(comm, members=[replace(m, lost="dead") if m.rank > 0 else m for m in comm.members])
    assert not asked_twice(tmp_path, [lost]).suspects


def test_dumps_decide_where_there_are_any(tmp_path: Path) -> None:
    """The recorder shows rank 2 missing; RAS has rank 1 behind as well and only confirms."""
    job = Job(4, "nccl")
    job.steps(8)
    job.hang({2})
    found = whole(job, {2: LOADER_QUEUE})
    for number in range(2):
        members = [Member(r, "10.0.0.1", pid_of(r), r, {"AllReduce": 9 - (r in (1, 2))}) for r in range(4)]
        content = as_json([Comm(0xA, members)])
        found.service("nccl.ras", number, f"nccl/ras-{number}.json", content, found.at_ns + number * 90 * SECOND)
    verdict = verdict_of(found.write(tmp_path))
    assert named(verdict) == {2}
    assert verdict.suspects[0].cause is Cause.DATALOADER_STALL


def finished(kind: str, number: int, comm: int = 0xA) -> str:
    """A line of NCCL Inspector: rank 0 finished that many calls of the kind."""
    return json.dumps(
        {
            "header": {"id": f"0x{comm:x}", "rank": 0, "n_ranks": 4, "nnodes": 1},
            "metadata": {"inspector_output_format_version": "v4.0", "git_rev": "", "hostname": "gpu-0", "pid": 100},
            "coll_perf": {"coll": kind, "coll_sn": number, "coll_msg_size_bytes": 4096, "coll_exec_time_us": 61},
        }
    )


@pytest.mark.parametrize(("line", "named_ranks"), [
    (finished("AllReduce", 9), set[int]()),
    (finished("AllReduce", 8), {2}),
    (finished("AllGather", 9), {2}),
    (finished("AllReduce", 9, comm=0xB), {2}),
])  # fmt: skip
def test_what_one_member_finished_all_have_launched(line: str, named_ranks: set[int], tmp_path: Path) -> None:
    """A report that is older than what NCCL Inspector saw end accuses nobody; other calls say nothing of it."""
    write(tmp_path, {"inspector/gpu-0-pid100.log": (line + "\n").encode()})
    assert named(asked_twice(tmp_path, [world(9, 9, 8, 9)])) == named_ranks


def test_a_hash_that_nccl_inspector_cut_is_known_by_the_digits_that_are_left(tmp_path: Path) -> None:
    long = replace(world(9, 9, 8, 9), hash=0xABCDEF0123456789)
    write(tmp_path, {"inspector/gpu-0-pid100.log": (finished("AllReduce", 9, comm=0xABCDEF01234567) + "\n").encode()})
    assert not named(asked_twice(tmp_path, [long]))


def test_pids_that_repeat_on_every_host_give_no_rank(tmp_path: Path) -> None:
    """Containers number their processes alike: without a communicator of all ranks nobody can be named."""
    found = Collection(4, START_NS)
    for rank in range(4):
        found.node = f"gpu-{rank // 2}"
        found.rank(rank)
        found.members[f"ranks/{rank}/rank.json"] = found.members[f"ranks/{rank}/rank.json"].replace(
            f'"ns_pid": {pid_of(rank)}'.encode(), f'"ns_pid": {7 + rank % 2}'.encode()
        )
    found.node = "gpu-0"
    pairs = [Comm(0xB + n, [Member(i, f"10.0.0.{n}", 7 + i, i, {"AllReduce": 9 - i}) for i in range(2)]) for n in range(2)]
    for number in range(2):
        content = as_json(pairs)
        found.service("nccl.ras", number, f"nccl/ras-{number}.json", content, START_NS + number * 90 * SECOND)
    assert not verdict_of(found.write(tmp_path)).suspects


def test_many_hosts_tell_the_same_once(tmp_path: Path) -> None:
    """Every host's service tells of the whole job: that is one witness, whatever the order of the files."""
    found = behind_in_ras()
    copies = {path.replace("gpu-017", "gpu-018"): content for path, content in found.members.items() if "nccl/ras" in path}
    alone = diagnose(open_case([found.write(tmp_path / "one")]))
    both = diagnose(open_case([write(tmp_path / "two", {**found.finished(), **copies})]))
    assert [s.evidence for s in both.suspects] == [s.evidence for s in alone.suspects]


TEXT = """{when}
NCCL version 2.25.1 compiled with CUDA 12.8
CUDA runtime version 12080, driver version 12080

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      1          8            1          8        8

Communicators... (0.01s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         1       7-8         8         8   RUNNING  INCOMPLETE

Errors
======

DEAD
{processes}
#0-0 (c07d11a95e2b6f30) INCOMPLETE
  Missing communicator data from {count} rank
  The missing rank{s}: {ranks}

Warnings
========
"""


def missing(when: str, *ranks: int) -> bytes:
    listed = "".join(f"  Process {5200 + rank} on node 10.0.7.3 managing GPU {rank}\n" for rank in ranks)
    numbers = ", ".join(map(str, ranks))
    facts = {"processes": listed, "count": len(ranks), "s": "s" if len(ranks) > 1 else "", "ranks": numbers}
    return TEXT.format(when=when, **facts).encode()


FIRST, SECOND_LOOK = "Fri Oct  4 12:59:04 CEST 2024", "[2024-10-04 15:37:40] node-3 $ ncclras -v"


def test_the_process_that_two_texts_miss_is_the_one_missing_rank(tmp_path: Path) -> None:
    verdict = verdict_of(write(tmp_path, {"ras1.txt": missing(FIRST, 4), "ras2.txt": missing(SECOND_LOOK, 4)}))
    assert named(verdict) == {4} and verdict.suspects[0].cause is Cause.PROCESS_DEAD


def test_which_of_two_lost_processes_is_which_missing_rank_is_not_known(tmp_path: Path) -> None:
    texts = {"ras1.txt": missing(FIRST, 4, 5), "ras2.txt": missing(SECOND_LOOK, 4, 5)}
    assert not named(verdict_of(write(tmp_path, texts)))


BEHIND = """{when}
NCCL version 2.26.2 compiled with CUDA 12.6

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      8          8            1         64       64

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         8         8        64        64   RUNNING  MISMATCH

Warnings
========

#0-0 (8bb21c90a7e3f014) MISMATCH
  Communicator ranks have different AllGather operation counts
  63 ranks have launched up to operation {most}
  1 rank has launched up to operation {own}
  Rank 9 -- GPU 1 managed by process 7710 on node 172.18.4.11
"""


@pytest.mark.parametrize(
    ("second", "later", "expected"),
    [((21, 20), "04:19:02", {9}), ((31, 30), "04:19:02", set())],
    ids=["same counts", "it moved"],
)
def test_counts_of_a_text_that_did_not_grow(tmp_path: Path, second: tuple[int, int], later: str, expected: set[int]) -> None:
    texts = {
        "ras_a.txt": BEHIND.format(when="Sun Mar 16 04:05:31 UTC 2025", most=21, own=20).encode(),
        "ras_b.txt": BEHIND.format(when=f"Sun Mar 16 {later} UTC 2025", most=second[0], own=second[1]).encode(),
    }
    assert named(verdict_of(write(tmp_path, texts))) == expected
