"""Devices that the kernel lost, and whose they are by the init lines of NCCL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted


def init(rank: int, bus: str, host: str = "n7", size: int = 4) -> str:
    front = f"{host}:{900 + rank}:{900 + rank} [{rank % 8}] NCCL INFO comm 0x{rank + 16:x} rank {rank} nranks {size}"
    return f"{front} cudaDev {rank} nvmlDev {rank} busId {bus} commId 0xabc - Init COMPLETE\n"


DEVICES = init(0, "7000") + init(1, "b000") + init(2, "8b000") + init(3, "c8000")
XID = "[Tue Jan  2 10:00:02 2024] NVRM: Xid (PCI:0000:{0}:00): {1}, pid={2}, name=python, GPU has fallen off the bus.\n"


def test_a_device_that_was_lost_is_that_of_the_rank_whose_process_uses_it(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, DEVICES + XID.format("8b", 79, 902))
    assert (named(verdict), verdict.suspects[0].cause.value) == ({2}, "gpu_fault")


@pytest.mark.parametrize(
    "text",
    [
        DEVICES + XID.format("8b", 79, 901),
        DEVICES + XID.format("8b", 31, 902),
        DEVICES + XID.format("9d", 79, 902),
        DEVICES + init(4, "8b000", "n8", 8) + XID.format("8b", 79, 902),
        DEVICES + XID.format("8b", 79, 902) + XID.format("b0", 79, 901).replace("b0", "0b") + XID.format("c8", 79, 903),
    ],
    ids=["other process", "a program's fault", "unknown device", "two hosts", "several devices"],
)
def test_faults_of_devices_that_tell_no_rank(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))
