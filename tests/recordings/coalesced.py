"""Calls as NCCL's process group records them one rank at a time: coalesced batches share a number and end with a closing entry.

Members of a batch stay `scheduled` for ever; the closing entry alone shows whether the batch finished. Point-to-point numbers
count the calls of one rank in the group, so that two ends of a transfer have different ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.recordings.job import GRADIENTS, MILLISECOND, Call, Group, Job, Shapes


@dataclass(frozen=True, slots=True)
class PointToPointEnd(Call):
    """The closing entry of a batch of sends and receives."""

    @property
    def is_p2p(self) -> bool:
        return True


def single(
    job: Job, rank: int, group: Group, kind: str, *, done: bool = True, shapes: Shapes = GRADIENTS, dtype: str = "Float"
) -> None:
    """One call that is not coalesced."""
    is_p2p = kind.startswith(("send", "recv"))
    _add(job, rank, Call, group, kind, _next(job, rank, group, is_p2p), done, shapes, dtype)


def batch(
    job: Job,
    rank: int,
    group: Group,
    kinds: Sequence[str],
    *,
    done: bool = True,
    end: str | None = "coalesced",
    shapes: Shapes = GRADIENTS,
    dtype: str = "Float",
) -> None:
    """A group call of several operations; `end` is the closing entry, None while the host is still inside the group call."""
    is_p2p = kinds[0].startswith(("send", "recv"))
    number = _next(job, rank, group, is_p2p)
    for kind in kinds:
        _add(job, rank, Call, group, kind, number, False, shapes, dtype)
    if end is not None:
        _add(job, rank, PointToPointEnd if is_p2p else Call, group, end, number, done, (), "Float")


def _next(job: Job, rank: int, group: Group, is_p2p: bool) -> int:
    own = [call for call in job.calls[rank] if call.group == group and call.is_p2p == is_p2p]
    return 1 + max((call.sequence for call in own), default=0)


def _add(
    job: Job, rank: int, form: type[Call], group: Group, kind: str, number: int, done: bool, shapes: Shapes, dtype: str
) -> None:
    job.clocks[rank] += job.pace_ns
    own = [call for call in job.calls[rank] if call.group == group]
    job.calls[rank].append(
        form(
            group=group,
            kind=kind,
            sequence=number,
            operation=1 + len(own),
            record=len(job.calls[rank]),
            time_ns=job.clocks[rank],
            done_ns=job.clocks[rank] + MILLISECOND if done else None,
            shapes=shapes,
            dtype=dtype,
        )
    )
