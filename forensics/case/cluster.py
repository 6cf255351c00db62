"""Reads evidence that lies on a file system which a Dask cluster shares, on the workers of that cluster, in path order."""

from __future__ import annotations

import pickle
import socket
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from forensics.bundle import limits
from forensics.bundle.artefact import Artefact
from forensics.case.reading import Reading, read_packed
from forensics.dask_cluster import connected, raise_of_worker, require_same, threads
from forensics.errors import ForensicsError
from forensics.ingest._shared.packed import Types
from forensics.sources import digest

_AHEAD = 2
"""Artefacts given to the cluster for each of its threads: one under way, one that waits; bounds the readings in memory."""


@dataclass(frozen=True, slots=True)
class Order:
    """How workers are to read: the digest of the sources that ask, what one file may take, and the columns of the tables."""

    digest: str
    budget: limits.Budget
    types: Mapping[str, Types]


@contextmanager
def readings_on_cluster(artefacts: Sequence[Artefact], types: Mapping[str, Types], address: str) -> Iterator[Iterator[Reading]]:
    """The reading of every artefact, in order, by the workers of the cluster whose scheduler is at `address`.

    What lies in an archive that had to be unpacked here is read here, and so is what the cluster lost. Raises ForensicsError:
    no `distributed`, no scheduler, workers with another forensics or that do not see the evidence.
    """
    order = Order(digest(), limits.budget(), types)
    with connected(address) as (_, client):
        yield _in_order(client, artefacts, order, address)


def _in_order(client: Any, artefacts: Sequence[Artefact], order: Order, address: str) -> Iterator[Reading]:
    """Readings as they are due, a few ahead of the one that is written."""
    given: deque[Any] = deque()
    for index, artefact in enumerate(artefacts):
        room = _AHEAD * threads(client)  # asked of the scheduler
        while len(given) <= room and index + len(given) < len(artefacts):
            packed = sendable(artefacts[index + len(given)])
            given.append(None if packed is None else client.submit(read_there, packed, order, pure=False))
        yield _due(given.popleft(), artefact, order, address)


def _due(future: Any, artefact: Artefact, order: Order, address: str) -> Reading:
    if future is not None:
        failed = future.exception()
        if failed is None:
            reading: Reading = future.result()
            return reading
        raise_of_worker(failed, address)
    return read_packed(artefact, order.types)


def sendable(artefact: Artefact) -> bytes | None:
    """The artefact in a form for another host; None where its bytes lie in a file without a name."""
    try:
        return pickle.dumps(artefact)
    except (TypeError, AttributeError, pickle.PicklingError):
        return None


def read_there(packed: bytes, order: Order) -> Reading:
    """The reading of one artefact by a worker; raises ForensicsError when the worker does not see it."""
    require_same(order.digest)
    artefact: Artefact = pickle.loads(packed)  # noqa: S301 - from the process that asks, over the cluster's own connection
    try:
        (artefact.open if artefact.shard is None else artefact.shard.reading)().close()
    except (FileNotFoundError, PermissionError) as error:
        where = f"{artefact.path}: {error.strerror}"
        raise ForensicsError(
            f"worker on {socket.gethostname()} cannot open {where}; all workers must see the evidence"
        ) from error
    except OSError:
        pass  # damaged in itself: its reading says so
    with limits.within(order.budget):
        return read_packed(artefact, order.types)
