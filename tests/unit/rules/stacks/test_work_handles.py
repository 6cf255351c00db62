"""Ranks in the `wait()` of a work handle, which leaves no frame: the kernel shows that their futex has a date."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.model import Cause, Members, Outcome, Verdict
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.stacks.activity import activity
from forensics.rules.reductions.stacks.call_paths import frame
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank
from forensics.rules.reductions.waits.messages import message_waits
from tests.recordings.collection import Collection, whole
from tests.recordings.job import START_NS, Job
from tests.recordings.places import ALL_REDUCE, HOST_CODE, Place
from tests.recordings.verdicts import named, verdict_of

HANDLE, SOCKET, LOCK = (
    ("futex_do_wait", "219 0x555b1d064a98 0x189 0x0 0x7ffc37809aa0 0x0 0xffffffff 0x7ffc37809950 0x7fbb0c0a3f16"),
    ("wait_woken", "45 0xc 0x7faeae332ff0 0x1 0x0 0x0 0x0 0x7ffd0a38cb00 0x7faeae928974"),
    ("futex_do_wait", "202 0x55ef3478f270 0x189 0x0 0x0 0x0 0xffffffff 0x7ffff486fc40 0x7fe8296a3f16"),
)
EXCHANGE: Place = (("exchange", "/srv/job/ring.py", 92), *HOST_CODE[1:])


def seen(folder: Path, ranks: Mapping[int, tuple[Place, tuple[str, str]]]) -> Verdict:
    found = Collection(4, START_NS)
    for rank, (place, (wchan, syscall)) in ranks.items():
        found.rank(rank)
        found.samples(rank, wchan=wchan, syscall=syscall)
        found.stacks(rank, *[place] * 3)
    return verdict_of(found.write(folder))


def test_a_rank_that_waits_for_a_message_is_not_one_that_waits_for_a_lock(tmp_path: Path) -> None:
    """The rank that left a message out is in the collective behind it already."""
    (first,) = seen(tmp_path, dict.fromkeys((0, 2, 3), (ALL_REDUCE, LOCK)) | {1: (EXCHANGE, HANDLE)}).suspects
    assert (first.ranks, first.members) == ((0, 1, 2, 3), Members.ONE_OF)


def test_a_rank_in_a_lock_of_its_own_is_named(tmp_path: Path) -> None:
    assert named(seen(tmp_path, dict.fromkeys((0, 2, 3), (ALL_REDUCE, LOCK)) | {1: (EXCHANGE, LOCK)})) == {1}


@pytest.mark.parametrize(("deadline", "may_wait"), [(False, False), (None, True)], ids=["without a limit", "not shown"])
def test_without_a_limit_it_is_a_lock_where_gloo_has_a_recorder(deadline: bool | None, may_wait: bool) -> None:
    """Messages of gloo have a limit, and its recorder keeps all collectives."""
    exchange = tuple(frame(*each) for each in EXCHANGE)
    sample = Sample(0, 4, 4, True, False, activity(exchange, "futex_do_wait"), "s#thread=4", deadline=deadline)
    roster = Roster({0: RankFacts(0, thread_states=("S",), calls_unrecorded=True, has_recorder=True)}, 2)
    assert bool(message_waits(roster, StacksByRank({0: Stacks((sample,), (), ())}))) is may_wait


def test_the_rank_that_reads_elsewhere_is_whom_all_handles_wait_for(tmp_path: Path) -> None:
    assert named(seen(tmp_path, dict.fromkeys((0, 2, 3), (EXCHANGE, HANDLE)) | {1: (HOST_CODE, SOCKET)})) == {1}


def test_where_all_wait_for_handles_nobody_is_distinguished_from_the_rest(tmp_path: Path) -> None:
    verdict = seen(tmp_path, dict.fromkeys(range(4), (EXCHANGE, HANDLE)))
    assert verdict.outcome is Outcome.HANG
    assert [(each.ranks, each.members, each.cause) for each in verdict.suspects] == [
        ((0, 1, 2, 3), Members.ONE_OF, Cause.UNKNOWN)
    ]


def test_a_message_left_out_behind_a_chain_is_of_one_of_all(tmp_path: Path) -> None:
    """Two of four stages are past the exchange, in a recorded collective: nothing shows which pair has the two ends."""
    job = Job(4)
    job.steps(8)
    job.hang({0, 1})
    found = whole(job, dict.fromkeys((0, 1), EXCHANGE))
    for rank, (wchan, syscall) in {0: HANDLE, 1: HANDLE, 2: LOCK, 3: LOCK}.items():
        found.samples(rank, wchan=wchan, syscall=syscall)
    (first,) = verdict_of(found.write(tmp_path)).suspects
    assert (first.ranks, first.members, first.cause) == ((0, 1, 2, 3), Members.ONE_OF, Cause.P2P_UNMATCHED)
