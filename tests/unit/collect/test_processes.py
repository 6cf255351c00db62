from __future__ import annotations

import pytest

from forensics.collect.processes import all_stats, ancestors, descendants, inodes, parse_stat
from forensics.rank_ranges import format_ranks, parse_ranks
from tests.unit.collect.fake_proc import FakeProc


def test_a_process_name_may_hold_spaces_and_parentheses() -> None:
    fields = ["S", "7", "1", "9"] + ["0"] * 46
    stat = parse_stat(f"42 (a) b (c) {' '.join(fields)}".encode())
    assert (stat.pid, stat.comm, stat.state, stat.ppid, stat.session) == (42, "a) b (c", "S", 7, 9)


def test_an_environment_value_may_hold_equal_signs(proc: FakeProc) -> None:
    proc.add(10, environ={"RANK": 3, "XLA_FLAGS": "--a=1 --b=2", "EMPTY": ""})
    assert proc.procfs.environ(10) == {"RANK": "3", "XLA_FLAGS": "--a=1 --b=2", "EMPTY": ""}


def test_bytes_that_are_not_utf8_do_not_stop_the_reading(proc: FakeProc) -> None:
    proc.add(10)
    (proc.root / "10/environ").write_bytes(b"RANK=1\0NAME=\xff\xfe\0novalue\0")
    assert proc.procfs.environ(10) == {"RANK": "1", "NAME": "\\xff\\xfe"}


def test_the_main_thread_comes_first(proc: FakeProc) -> None:
    proc.add(100, threads=(7, 101))
    assert proc.procfs.threads(100) == [100, 7, 101]


def test_only_listening_sockets_of_the_file_system_are_found(proc: FakeProc) -> None:
    proc.add(10, fds={3: "socket:[77]", 4: "pipe:[5]", 5: "/tmp/x"})
    proc.network(10, unix={77: "/tmp/a b.sock", 78: "@abstract"})
    assert proc.procfs.unix_listeners(10) == {77: "/tmp/a b.sock"}
    assert inodes(proc.procfs.descriptors(10)) == {77}


def test_descendants_come_by_level_and_start(proc: FakeProc) -> None:
    proc.add(20, 1, start=1)
    proc.add(23, 20, start=9)
    proc.add(24, 20, start=5)
    proc.add(22, 24, start=7)
    stats = all_stats(proc.procfs)
    assert descendants(stats, 20) == [24, 23, 22]
    assert ancestors(stats, 22) == [24, 20, 1]


@pytest.mark.parametrize(("text", "ranks"), [("3", {3}), ("0-2,7", {0, 1, 2, 7}), (" 1 , 2-2 ", {1, 2})])
def test_rank_lists(text: str, ranks: set[int]) -> None:
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize("text", ["", "a", "3-1", "1-", "-1", "1,,2", "0-99999999999"])
def test_what_is_no_rank_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="rank"):
        parse_ranks(text)


def test_ranks_are_folded() -> None:
    assert format_ranks([7, 0, 1, 2, 4]) == "0-2,4,7"
