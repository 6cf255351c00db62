"""Environment variables whose values a bundle keeps: those that configure distributed training; of all others only the name."""

from __future__ import annotations

import re

_KEPT = re.compile(
    r"RANK|LOCAL_RANK|WORLD_SIZE|LOCAL_WORLD_SIZE|LOCAL_SIZE|GROUP_RANK|GROUP_WORLD_SIZE|NODE_RANK|ROLE_(?:RANK|WORLD_SIZE|NAME)|"
    r"MASTER_(?:ADDR|PORT)|"
    r"SLURM_(?:JOB_ID|STEP_ID|PROCID|LOCALID|NODEID|NTASKS|STEP_NUM_TASKS|NODELIST|JOB_NODELIST|(?:STEP_)?TASKS_PER_NODE|RESTART_COUNT)|"
    r"PBS_JOBID|LSB_JOBID|PMI_(?:RANK|SIZE|LOCAL_RANK|LOCAL_SIZE)|MPI_LOCAL(?:RANKID|NRANKS)|"
    r"OMPI_COMM_WORLD_(?:RANK|SIZE|LOCAL_RANK|LOCAL_SIZE|NODE_RANK)|"
    r"CUDA_(?:VISIBLE_DEVICES|MODULE_LOADING|LAUNCH_BLOCKING|DEVICE_MAX_CONNECTIONS|DEVICE_ORDER)|NVIDIA_VISIBLE_DEVICES|"
    r"TORCH_(?:WORKER_SERVER_SOCKET|DISTRIBUTED_DEBUG|CPP_LOG_LEVEL|SHOW_CPP_STACKTRACES|INCLUDE_[A-Z_]+)|"
    r"(?:NCCL|TORCH_NCCL|TORCH_FR|TORCH_HCCL|TORCHCOMM_FR|TORCHELASTIC|OMP|PYTORCH|UCX|FI|GLOO)_\w+"
)


def is_kept(name: str) -> bool:
    """Whether the value of a variable may stay, redacted by the rules for text."""
    return _KEPT.fullmatch(name) is not None
