"""A process that its launcher saw end, and whose device the driver says failed under it, by its number."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause
from tests.recordings.verdicts import named, verdict_of

XID = "[88120.4] NVRM: Xid (PCI:0000:{bus}:00): {code}, pid={pid}, name=python, {what}\n"
AGENT = (
    "terminate called after throwing an instance of 'c10::Error'\n"
    "W0911 07:02:11.4 700 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 701 closing signal SIGTERM\n"
    "E0911 07:02:14.1 700 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: {code}) local_rank: 2 "
    "(pid: 703) of binary: /usr/bin/python\n"
)
OTHERS = "".join(XID.format(bus=f"{bus}b", code=45, pid=pid, what="Ch 00000008") for bus, pid in ((1, 701), (2, 702), (9, 704)))


def xid(code: int = 95, pid: int = 703) -> str:
    return XID.format(bus="4e", code=code, pid=pid, what="Uncontained ECC error.")


def judged(folder: Path, kernel: str, launcher: str) -> set[int]:
    (folder / "dmesg.txt").write_text(kernel)
    (folder / "job.log").write_text("step 7 loss 2.1\n" + launcher)
    return named(verdict_of(folder))


@pytest.mark.parametrize("code", [-6, 1])
def test_the_process_whose_device_failed(tmp_path: Path, code: int) -> None:
    assert judged(tmp_path, xid() + OTHERS, AGENT.format(code=code)) == {2}
    verdict = verdict_of(tmp_path)
    assert verdict.suspects[0].cause is Cause.GPU_FAULT
    assert not [label for label in verdict.labels if "nothing tells which rank" in label.reason]


@pytest.mark.parametrize(
    ("kernel", "launcher"),
    [
        (xid(pid=799), AGENT.format(code=-6)),
        (xid(code=45), AGENT.format(code=-6)),
        (xid(code=13), AGENT.format(code=-6)),
        (xid(), AGENT.format(code=-15)),
        (xid(), "--nnodes=2 --node_rank=1\n" + AGENT.format(code=-6)),
    ],
    ids=["another process", "a clean-up", "of a program", "told to end", "of one of two nodes"],
)
def test_errors_that_are_not_of_the_process(tmp_path: Path, kernel: str, launcher: str) -> None:
    assert not judged(tmp_path, kernel + OTHERS, launcher)
