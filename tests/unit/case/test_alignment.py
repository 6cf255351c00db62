"""Who belongs to which communicator, from what the ranks report of their groups and from who was seen using them."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.case.database import Connection
from tests.recordings.collection import Collection, loose, write
from tests.recordings.job import Job, as_json, as_pickle

Members = dict[str, tuple[int, ...]]


def case(folder: Path) -> Connection:
    return open_case([folder])


def members(connection: Connection) -> Members:
    """Members of each communicator, in their order."""
    rows = connection.execute(
        "SELECT communicator, list(rank ORDER BY position) FROM members GROUP BY communicator ORDER BY communicator"
    ).fetchall()
    return {label: tuple(ranks) for label, ranks in rows}


def found_by(connection: Connection) -> dict[str, tuple[str, str]]:
    """Method and confidence of each communicator."""
    rows = connection.execute("SELECT communicator, method, confidence FROM communicators").fetchall()
    return {label: (method, confidence) for label, method, confidence in rows}


def assigned(connection: Connection) -> dict[tuple[int, str], set[str | None]]:
    """Communicators that the operations of each (rank, group name) were assigned to."""
    rows = connection.execute("SELECT DISTINCT rank, pg_name, communicator FROM operations").fetchall()
    result: dict[tuple[int, str], set[str | None]] = {}
    for rank, name, communicator in rows:
        result.setdefault((rank, name), set()).add(communicator)
    return result


def halves(backend: str) -> Job:
    """Two groups of two besides the world."""
    job = Job(4, backend)
    low, high = job.group((0, 1), "DATA"), job.group((2, 3), "DATA")
    job.steps(3)
    job.call(low)
    job.call(high)
    return job


def gathering(folder: Path, sizes: tuple[int, ...], ranks: tuple[int, ...] = (0, 1)) -> Path:
    """Dumps of the first ranks of a larger gloo job that gathered one number of each rank."""
    job = Job(8)
    job.steps(2)
    for _ in sizes:
        job.call(job.everyone, "all_gather", shapes=((1,),))
    files = {}
    for rank in ranks:
        dump = job.dump(rank)
        dump["pg_config"] = {}
        for entry, size in zip(dump["entries"][2:], sizes, strict=True):
            entry["output_sizes"] = [[size, 1]]
        files[f"nccl_trace_rank_{rank}"] = as_pickle(dump)
    return write(folder, files)


def test_a_gather_shows_how_many_ranks_there_are(tmp_path: Path) -> None:
    assert members(case(gathering(tmp_path, (8, 8))))["0:default_pg"] == tuple(range(8))


@pytest.mark.parametrize("sizes", [(8, 4), (1, 1), (1 << 40, 1 << 40), (-3, -3)])
def test_gathers_that_cannot_be_show_nothing(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    assert members(case(gathering(tmp_path, sizes)))["0:default_pg"] == (0, 1)


def test_gloo_does_not_say_who_is_in_a_group_so_its_users_are(tmp_path: Path) -> None:
    """The member list of the nameless group that it reports belongs to whichever group was made first or last."""
    connection = case(loose(halves("gloo"), tmp_path))
    assert members(connection) == {"0:default_pg": (0, 1, 2, 3), "1:DATA": (0, 1), "2:DATA": (2, 3)}
    assert found_by(connection) == {
        "0:default_pg": ("world", "inferred"),
        "1:DATA": ("peers", "assumed"),
        "2:DATA": ("peers", "assumed"),
    }


def test_the_default_group_has_the_ranks_that_left_no_dump_too(tmp_path: Path) -> None:
    """Ranks count from 0: dumps of 0, 1 and 3 say that there is a rank 2."""
    connection = case(loose(halves("gloo"), tmp_path, ranks=(0, 1, 3)))
    assert members(connection)["0:default_pg"] == (0, 1, 2, 3)
    assert members(connection)["2:DATA"] == (3,)


def test_the_configured_world_counts_ranks_beyond_the_last_dump(tmp_path: Path) -> None:
    job = Job(6)
    job.steps(4)
    found = Collection(6, job.now_ns)
    for rank in range(4):
        found.dump(job, rank)
    assert members(case(found.write(tmp_path)))["0:default_pg"] == (0, 1, 2, 3, 4, 5)


def test_members_that_nccl_reports_are_taken_as_they_are(tmp_path: Path) -> None:
    job = Job(4, "nccl")
    job.group((3, 1), "DATA")
    job.steps(2)
    connection = case(loose(job, tmp_path, ranks=(1, 2)))
    assert members(connection) == {"0:default_pg": (0, 1, 2, 3), "1:DATA": (3, 1)}
    assert found_by(connection)["1:DATA"] == ("reported", "read")


def test_a_reported_group_that_nobody_used_is_known_all_the_same(tmp_path: Path) -> None:
    job = Job(2, "nccl")
    job.group((0, 1), "EXPERT")
    job.steps(2)
    assert members(case(loose(job, tmp_path)))["1:EXPERT"] == (0, 1)


def test_a_rank_that_never_used_a_reported_group_is_a_member_of_it(tmp_path: Path) -> None:
    job = Job(3, "nccl")
    data = job.group((0, 1, 2), "DATA")
    job.steps(2)
    job.call(data, ranks=(0, 1), done=False)
    connection = case(loose(job, tmp_path))
    assert members(connection)["1:DATA"] == (0, 1, 2)
    assert (2, "1") not in assigned(connection)


def test_one_name_with_two_member_sets_is_two_communicators(tmp_path: Path) -> None:
    """`split_group` gives each half the same name."""
    job = Job(4, "nccl")
    low, high = job.group((0, 1), "SPLIT", name="7"), job.group((2, 3), "SPLIT", name="7")
    job.call(low)
    job.call(high)
    connection = case(loose(job, tmp_path))
    assert members(connection) == {"0:default_pg": (0, 1, 2, 3), "7:SPLIT[0,1]": (0, 1), "7:SPLIT[2,3]": (2, 3)}
    found = assigned(connection)
    assert found[0, "7"] == found[1, "7"] == {"7:SPLIT[0,1]"}
    assert found[2, "7"] == found[3, "7"] == {"7:SPLIT[2,3]"}


def test_one_name_on_two_backends_is_two_communicators(tmp_path: Path) -> None:
    """A CUDA job has a gloo group beside each NCCL group, and each counts its own operations."""
    job = Job(2, "nccl")
    job.group((0, 1), "default_pg", name="0", backend="gloo")
    job.call(job.groups[0])
    job.call(job.groups[1], "barrier")
    connection = case(loose(job, tmp_path))
    assert set(members(connection)) == {"0:default_pg/nccl", "0:default_pg/gloo"}
    rows = connection.execute("SELECT DISTINCT communicator, backend FROM operations ORDER BY ALL").fetchall()
    assert rows == [("0:default_pg/gloo", "gloo"), ("0:default_pg/nccl", "nccl")]


def test_group_numbers_of_a_process_do_not_matter(tmp_path: Path) -> None:
    """Rank 0 made two groups before the one it shares with rank 2; there it is that rank's first."""
    job = Job(3, "nccl")
    job.group((0, 1), "A")
    job.group((0, 1), "B")
    shared = job.group((0, 2), "C")
    job.call(shared)
    connection = case(loose(job, tmp_path))
    rows = connection.execute("SELECT DISTINCT rank, pg_id, communicator FROM operations ORDER BY rank").fetchall()
    assert rows == [(0, 3, "3:C"), (2, 1, "3:C")]


def test_a_ring_that_wrapped_still_tells_its_group(tmp_path: Path) -> None:
    job = halves("gloo")
    job.steps(20)
    connection = case(loose(job, tmp_path, ring=5))
    assert members(connection) == {"0:default_pg": (0, 1, 2, 3)}


def test_dumps_without_entries_still_tell_the_groups(tmp_path: Path) -> None:
    """Only active entries were recorded, and there were none."""
    job = Job(2, "nccl")
    job.steps(5)
    connection = case(loose(job, tmp_path, form="json", name="rank{rank}.json", only_active=True))
    assert members(connection) == {"0:default_pg": (0, 1)}


def test_pickle_and_json_of_one_moment_give_one_set_of_operations(tmp_path: Path) -> None:
    job = halves("nccl")
    both = {f"rank{rank}.json": as_json(job.dump(rank)) for rank in range(4)}
    both |= {f"nccl_trace_rank_{rank}": as_pickle(job.dump(rank)) for rank in range(4)}
    connection = case(write(tmp_path, both))
    ((count,),) = connection.execute("SELECT count(*) FROM operations").fetchall()
    assert count == sum(len(job.calls[rank]) for rank in range(4))
    assert {row[0] for row in connection.execute("SELECT DISTINCT snapshot FROM operations").fetchall()} == {0}


def test_a_misread_rank_does_not_make_a_world_of_a_million(tmp_path: Path) -> None:
    job = Job(2)
    job.steps(3)
    folder = loose(job, tmp_path)
    (folder / "nccl_trace_rank_0").rename(folder / "dump_rank_9999999")
    found = members(case(folder))["0:default_pg"]
    assert len(found) < 10
