"""Operations that some members finished and others did not: is it the device of the ones that wait?"""

from __future__ import annotations

from forensics.rules.reductions.calls.positions import Communicators
from forensics.rules.reductions.waits.graph import Root, RootKind

# Back ends whose operations run on the host: they have no device that could stall.
HOST_BACKENDS = frozenset({"gloo", "mpi", "unknown"})


def device_stall(groups: Communicators, root: Root) -> tuple[int, ...]:
    """Members that finished the operation of `root` while its ranks, not more of them, wait for their own completion.

    Empty when nobody finished, when most wait, or when the back end has no device.
    """
    wait = root.waits[0]
    if root.kind is not RootKind.ALL_JOINED or not wait.communicator or wait.peers:
        return ()
    group = next(g for g in groups if g.label == wait.communicator)
    finished = tuple(rank for rank in group.finished(wait.sequence) if rank not in wait.waiting)
    if group.backend in HOST_BACKENDS or len(finished) < len(wait.waiting):
        return ()
    return finished
