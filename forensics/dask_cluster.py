"""A connection to a Dask cluster, whose workers have forensics installed (optional extra `dask`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from forensics.errors import ExitCode, ForensicsError
from forensics.sources import digest

_CONNECT_S = 30


@contextmanager
def connected(address: str) -> Iterator[tuple[Any, Any]]:
    """The library and a connection; what is with the cluster and not ended when the connection closes is given up.

    Raises ForensicsError: no `distributed`, no scheduler at the address.
    """
    try:
        import distributed
    except ImportError:
        message = "--scheduler needs the library distributed: pip install 'forensics[dask]'"
        raise ForensicsError(message, ExitCode.USAGE) from None
    try:
        client = distributed.Client(address, timeout=_CONNECT_S, set_as_default=False)
    except (OSError, ValueError) as error:
        raise ForensicsError(f"no Dask scheduler at {address}: {error}", ExitCode.USAGE) from error
    with client:
        yield distributed, client


def threads(client: Any) -> int:
    """Threads of all workers that are there now; at least one, so that work waits for the first worker."""
    return max(1, sum(map(int, client.nthreads().values())))


def require_same(expected: str) -> None:
    """Raise ForensicsError on a worker whose forensics is not the one that asks, of which `expected` is the digest."""
    if digest() != expected:
        raise ForensicsError("a worker of the cluster has another forensics than this one; install the same on all")


def raise_of_worker(failed: BaseException, address: str) -> None:
    """Raise what a worker says of itself: another forensics, or none; return for what failed on the way."""
    if isinstance(failed, ForensicsError):
        raise failed
    if isinstance(failed, ModuleNotFoundError):
        raise ForensicsError(f"workers of the cluster at {address} have no {failed.name}; install forensics on them")
