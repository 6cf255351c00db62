from __future__ import annotations

from pathlib import Path

import pytest

from forensics.collect.staging import Staging
from forensics.collect.target import Context, Settings
from tests.unit.collect.fake_proc import FakeProc


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    """A /proc with its init process."""
    root = tmp_path / "proc"
    root.mkdir()
    fake = FakeProc(root)
    fake.add(1, 0, exe="/sbin/init", comm="init", start=0, cmdline=("init",))
    return fake


@pytest.fixture
def context(proc: FakeProc, tmp_path: Path) -> Context:
    """Everything a collector needs, with short deadlines, below the test's own folder."""
    staging = Staging(tmp_path / "staging")
    staging.root.mkdir()
    settings = Settings(
        interval_s=0.05, recorder_gap_s=0.05, stack_s=2.0, answer_s=0.3, dump_wait_s=2.0, log_head=100, log_tail=200
    )
    return Context(staging, "host-1", settings, proc.procfs, tmp_path / "sys")
