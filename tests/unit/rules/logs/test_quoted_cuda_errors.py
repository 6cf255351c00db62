"""Errors of NCCL that quote what CUDA said to the same process: that one failed, and its peers lost it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted

_ERROR = "[rank{0}]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:317, {1}, NCCL version 2.23.4\n"
LOST = (
    _ERROR.format("{0}", "remote process exited or there was a network error")
    + "[rank{0}]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
)
QUOTED = (
    _ERROR.format("{0}", "unhandled cuda error (run with NCCL_DEBUG=INFO for details)")
    + "[rank{0}]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank{0}]: Last error:\n[rank{0}]: {1}\n"
)
FULL = "Cuda failure 2 'out of memory'"
GAVE_UP = (
    "[rank1]:[E624 18:54:21.1 ProcessGroupNCCL.cpp:629] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=91, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600031 milliseconds before timing out.\n"
)


@pytest.mark.parametrize("what", [FULL, "Failed to CUDA calloc 6291456 bytes", "Cuda failure 700 'an illegal memory access'"])
def test_the_rank_whose_own_cuda_call_failed(tmp_path: Path, what: str) -> None:
    text = LOST.format(0) + QUOTED.format(3, what) + LOST.format(1)
    assert named(pasted(tmp_path, text)) == {3}


@pytest.mark.parametrize(
    "text",
    [
        "".join(QUOTED.format(rank, FULL) for rank in range(4)),
        LOST.format(0) + QUOTED.format(3, "Cuda failure 217 'peer access is not supported between these two devices'"),
        GAVE_UP + LOST.format(0) + QUOTED.format(3, FULL),
        LOST.format(0) + LOST.format(3) + f"[rank3]: {FULL}\n",
    ],
    ids=["all of them", "not of one device", "after somebody gave up", "what another one quotes"],
)
def test_quoted_errors_that_accuse_nobody(tmp_path: Path, text: str) -> None:
    assert not named(pasted(tmp_path, text))
