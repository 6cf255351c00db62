"""Remote calls of torch.distributed.rpc: who waits for the answer to one, and whose thread has worked on one all the while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NewType

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.stacks.activity import Activity
from forensics.rules.reductions.stacks.other_threads import stayed
from forensics.rules.reductions.stacks.samples import Sample, Stacks, StacksByRank

_CALLER, _HANDLER = "torch/distributed/rpc/api.py", "torch/distributed/rpc/internal.py"

RemoteCallHandlers = NewType("RemoteCallHandlers", Mapping[int, Sample])
"""Newest sample of the thread of each rank that stayed in the job's own code below the handler of a remote call."""

AnswerWaits = NewType("AnswerWaits", frozenset[int])
"""Ranks that wait for the answer to a remote call without a frame that tells it."""


@reduction
def remote_call_handlers(stacks: StacksByRank) -> RemoteCallHandlers:
    """Find the threads that handle a remote call in more than one sample, did not move, and wait for no other rank."""
    found = ((rank, _handler(samples)) for rank, samples in stacks.items())
    return RemoteCallHandlers({rank: thread for rank, thread in found if thread is not None})


def _handler(found: Stacks) -> Sample | None:
    return next((thread for thread in found.latest_threads() if _handles(found, thread)), None)


def _handles(found: Stacks, thread: Sample) -> bool:
    path = thread.activity.path
    often = sum(sample.thread == thread.thread for sample in found.threads) > 1
    called = any(entry.module == _HANDLER for entry in path) and any(entry.origin == "app" for entry in path)
    return called and often and stayed(found, thread) and not thread.activity.waits_for_others


@reduction
def answer_waits(stacks: StacksByRank, handlers: RemoteCallHandlers) -> AnswerWaits:
    """Ranks asleep right below the job's own code while another rank works on a remote call: a future leaves no frame."""
    return AnswerWaits(frozenset(rank for rank, found in stacks.items() if found.unframed and {*handlers} - {rank}))


def in_remote_call(found: Activity | None) -> bool:
    """Whether a thread waits for the answer to a remote call."""
    return found is not None and found.call_frame is not None and found.call_frame.module == _CALLER
