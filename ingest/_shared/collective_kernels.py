"""Kernels of NCCL and its kin by their names: `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)`, `ncclKernel_SendRecv_...`."""

from __future__ import annotations

import re

_LIBRARY = re.compile(r"^(?:void )?(?:nccl|rccl|msccl)")
_WHAT = re.compile(
    r"^(?:void )?(?:nccl|rccl|msccl)[\w:]*?(AllReduce|ReduceScatter|AllGather|Broadcast|Reduce|SendRecv|AlltoAll)(?![a-z])"
)
_CALL = re.compile(r"^nccl(AllReduce|ReduceScatter|AllGather|Broadcast|Bcast|Reduce|Send|Recv|AlltoAll|Gather|Scatter)$")
_LONGEST = 256
# Kinds as the Flight Recorder writes them. A kernel that sends and receives may be any group of calls.
_KINDS = {
    "AllReduce": "all_reduce", "ReduceScatter": "reduce_scatter_base", "AllGather": "all_gather_base", "Broadcast": "broadcast",
    "Bcast": "broadcast", "Reduce": "reduce", "SendRecv": "coalesced", "Send": "send", "Recv": "recv", "AlltoAll": "all_to_all",
    "Gather": "gather", "Scatter": "scatter",
}  # fmt: skip


def moves_data(kernel: str) -> bool:
    """Whether a kernel is one of a communication library."""
    return _LIBRARY.match(kernel) is not None


def kind_of_kernel(kernel: str) -> str:
    """The kind of operation that a kernel of a communication library carries out; "unknown" for those that do several."""
    found = _WHAT.match(kernel[:_LONGEST])
    return _KINDS[found[1]] if found else "unknown"


def kind_of_call(name: str) -> str | None:
    """The kind of operation of a call of the library, None when it is another call."""
    found = _CALL.match(name)
    return _KINDS[found[1]] if found else None
