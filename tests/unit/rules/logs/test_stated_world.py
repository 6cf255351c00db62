"""The size of the job as its log prints it: who is missing where all others wait, and sizes that are not the job's."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence
from tests.recordings.verdicts import named, pasted


def _waits(*ranks: int) -> str:
    """What each rank's watchdog says of work 40 of the default group."""
    front = "[rank{0}]:[E321 02:07:08.465224069 ProcessGroupNCCL.cpp:1785] [PG ID 0 PG GUID 0(default_pg) Rank {0}] "
    said = "Exception (either an error or timeout) detected by watchdog at work: 40, last enqueued NCCL work: 40, "
    timeout = "[Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=40, OpType=BROADCAST, NumelIn=1)"
    lines = [
        front + said + "last completed NCCL work: 39.\n",
        "[rank{0}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:616] " + timeout + "\n",
    ]
    return "".join(line.format(rank) for rank in ranks for line in lines)


@pytest.mark.parametrize(
    "stated",
    [
        "world_size: 4\n",
        "> using world size: 4, data-parallel-size: 2\n",
        "Namespace(lr=0.1, world_size=4)\n",
        "WORLD_SIZE=4\n",
        "INFO - world size 4, backend nccl\n",
        "Distributed environment: MULTI_GPU  Backend: nccl\nNum processes: 4\n",
        "$ torchrun --standalone --nproc_per_node=4 train.py\n",
        "+ python -m torch.distributed.run --nnodes 2 --nproc-per-node 2 train.py\n",
        "accelerate launch --num_processes 4 sft.py\n",
        "mpirun -np 4 python train.py\n",
        "Initializing distributed: GLOBAL_RANK: 2, MEMBER: 3/4\n",
    ],
)
def test_the_only_rank_that_is_not_heard_to_wait(tmp_path: Path, stated: str) -> None:
    verdict = pasted(tmp_path, stated + _waits(1, 2, 3))
    assert (named(verdict), verdict.suspects[0].confidence) == ({0}, Confidence.SUSPECT)


@pytest.mark.parametrize(
    "stated",
    [
        pytest.param("", id="not stated"),
        pytest.param("LOCAL_WORLD_SIZE=4\n", id="ranks of a host"),
        pytest.param("tensor_parallel_world_size: 4\nmodel parallel world size: 4\n", id="a group"),
        pytest.param("data-parallel world size 4\nexpert world size is 4\n", id="a group, in words"),
        pytest.param("world_size: 4\nworld_size: 8\n", id="two sizes"),
        pytest.param("world_size: 3\n", id="less than the ranks that speak"),
        pytest.param("world_size: 64\n", id="most are not heard"),
        pytest.param("torchrun --nnodes 1:4 --nproc_per_node=4 train.py\n", id="any number of nodes"),
        pytest.param("torchrun --nproc_per_node=$GPUS train.py\n", id="a variable"),
        pytest.param("deepspeed --hostfile hosts --num_gpus 4 train.py\n", id="hosts that a file lists"),
        pytest.param("python data.py --num_processes 4\n", id="no launcher"),
        pytest.param("GLOBAL_RANK: 2, MEMBER: 3/4\nGLOBAL_RANK: 2, MEMBER: 3/8\n", id="members of two starts"),
        pytest.param("GLOBAL_RANK: 2, MEMBER: 1/4\n", id="another number among the members"),
    ],
)
def test_sizes_that_name_nobody(tmp_path: Path, stated: str) -> None:
    assert not pasted(tmp_path, stated + _waits(1, 2, 3)).suspects


def test_nobody_where_all_wait(tmp_path: Path) -> None:
    assert not pasted(tmp_path, "world_size: 4\n" + _waits(0, 1, 2, 3)).suspects
