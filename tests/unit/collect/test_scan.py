from __future__ import annotations

import os
import time

import pytest

from forensics.collect.processes import ProcFs
from forensics.collect.scan import is_python, scan
from tests.unit.collect.fake_proc import FakeProc


def test_a_process_that_blocks_its_reader_is_left_and_the_others_are_read(proc: FakeProc) -> None:
    for pid in (100, 101, 102):
        proc.add(pid, environ={"RANK": pid})
    blocked = proc.root / "101/environ"
    blocked.unlink()
    os.mkfifo(blocked)  # opening it waits for a writer for ever, as reading a locked address space does
    found = scan(proc.procfs, stall_s=0.2)
    assert found.stuck == (101,)
    assert found.processes[101].error == "reading its environment blocked"
    assert [found.processes[pid].environ for pid in (100, 102)] == [{"RANK": "100"}, {"RANK": "102"}]


class Busy(ProcFs):
    """A /proc whose reader gets no CPU for a while: it stays runnable, as on a host with more work than CPUs."""

    def environ(self, pid: int) -> dict[str, str]:
        until = time.monotonic() + 0.4
        while time.monotonic() < until:
            pass
        return super().environ(pid)


@pytest.mark.slow
def test_a_reader_that_waits_for_a_cpu_is_waited_for(proc: FakeProc) -> None:
    proc.add(100, environ={"RANK": 0})
    found = scan(Busy(proc.root), stall_s=0.1)
    assert found.stuck == ()
    assert found.processes[100].environ == {"RANK": "0"}


class Locked(ProcFs):
    """A /proc that refuses one process."""

    def environ(self, pid: int) -> dict[str, str]:
        if pid == 100:
            raise PermissionError
        return super().environ(pid)


def test_processes_that_may_not_be_read_are_counted(proc: FakeProc) -> None:
    proc.add(100, environ={"RANK": 0})
    proc.add(101, environ={"RANK": 1})
    found = scan(Locked(proc.root))
    assert found.unreadable == (100,)
    assert found.processes[100].environ is None
    assert found.processes[101].environ == {"RANK": "1"}


def test_environments_are_kept_only_of_what_may_be_a_rank(proc: FakeProc) -> None:
    proc.add(100, environ={"SECRET": "x"}, exe="/usr/sbin/sshd", cmdline=("sshd",))
    assert scan(proc.procfs).processes[100].environ == {}


def test_torch_is_looked_for_only_where_it_matters(proc: FakeProc) -> None:
    proc.add(100, environ={"RANK": 0}, torch=True)
    proc.add(101, torch=True)
    plain = scan(proc.procfs).processes
    assert (plain[100].maps_framework, plain[101].maps_framework) == (True, None)
    assert scan(proc.procfs, maps_of_python=True).processes[101].maps_framework is True


def test_kernel_threads_are_not_processes(proc: FakeProc) -> None:
    proc.add(2, 0, comm="kthreadd")
    stat = proc.root / "2/stat"
    stat.write_text(stat.read_text().replace(" 4194304 ", f" {0x00200000} "))
    assert 2 not in scan(proc.procfs).processes


def test_pythons_are_known_by_program_or_first_word() -> None:
    assert is_python("/usr/bin/python3.11", ())
    assert is_python(None, ("/venv/bin/python", "x.py"))
    assert not is_python("/usr/bin/bash", ("bash", "python"))
