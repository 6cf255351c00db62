"""The RAS service of NCCL (2.24 and newer): every NCCL process listens on NCCL_RAS_ADDR and knows all its peers.

A query can crash the job below 2.29.2 (NVIDIA/nccl issues 1669, 1718, 1762), so that a service is asked only where it is
known to be newer. One query is one connection, and there are two of them in a collection, whatever the number of ranks:
any process of a job answers for all. The protocol is lines of text (src/ras/client.cc of NCCL): `SET FORMAT json` (from
2.28.7) is answered by `OK`, then `VERBOSE STATUS` by the whole report, after which the service closes.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from forensics.bundle.layout import Status, node_path
from forensics.collect.nccl_version import MappedNccl, Version, describe, mapped_nccl
from forensics.collect.processes import ProcFs, inodes
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target

ID = "nccl.ras"
DEFAULT_ADDRESS = "localhost:28028"
ANSWER_S = 12.0
FLAG = "--nccl-ras"
SAFE: Version = (2, 29, 2)
_SAYS_JSON: Version = (2, 28, 7)
_CONNECT_S = 2.0
_LIMIT = 64 << 20
_LISTED = 4


@dataclass(frozen=True, slots=True)
class _Services:
    """Who may answer: whether anything listens, the oldest version if all are known, and why a query may do harm."""

    listening: bool
    version: Version | None
    doubts: tuple[str, ...]


def collect_ras(
    context: Context, targets: Sequence[Target], sample: int, address: str = DEFAULT_ADDRESS, switched_off: bool = False
) -> Iterator[Run]:
    """One query; two of them tell a stuck operation from a moving one."""
    argv = ("VERBOSE STATUS", address)
    services = _services(context.procfs, targets, _port(address))
    if refusal := _refusal(context.settings.nccl_ras, services, address, switched_off):
        yield Run(ID, None, *refusal, sample=sample, argv=argv)
        return
    try:
        content, suffix = _query(address, services.version)
    except ConnectionRefusedError:
        yield Run(ID, None, Status.NOT_FOUND, _nobody(address), sample=sample, argv=argv)
        return
    except OSError as error:
        yield Run(ID, None, *failure(error, f"NCCL RAS at {address}"), sample=sample, argv=argv)
        return
    if not content.strip():
        yield Run(ID, None, Status.PARTIAL, f"NCCL RAS at {address} closed without an answer", sample=sample, argv=argv)
        return
    written = context.staging.write(node_path(context.node, f"nccl/ras-{sample}.{suffix}"), content)
    yield Run(ID, None, Status.OK, sample=sample, argv=argv).stored(written)


def _refusal(asked: bool | None, services: _Services, address: str, switched_off: bool) -> tuple[Status, str] | None:
    """Why the service is not asked."""
    if switched_off:
        return Status.NOT_CONFIGURED, "NCCL_RAS_ENABLE is 0"
    if asked is False:
        return Status.SKIPPED_BY_POLICY, "asking NCCL RAS was switched off (--no-nccl-ras)"
    if not services.listening:
        return Status.NOT_FOUND, _nobody(address)
    if asked is None and services.doubts:
        why = "; ".join(services.doubts[:_LISTED])
        words = f"below {describe(SAFE)} a query of NCCL RAS can crash the job (NVIDIA/nccl issue 1762), and {why}"
        return Status.SKIPPED_BY_POLICY, f"{words}; {FLAG} asks all the same"
    return None


def _nobody(address: str) -> str:
    return f"nothing listens on {address}: NCCL is older than 2.24, or the job does not run in this network namespace"


def _services(procfs: ProcFs, targets: Sequence[Target], port: int) -> _Services:
    """What is known of the processes that listen on the port, and of the ranks that they would ask in turn."""
    sockets = procfs.tcp_listeners(port)
    listeners = _owners(procfs, sockets)
    ranks = [target.pid for target in targets if target.pid is not None and target.state == "alive"]
    found = {pid: _nccl(procfs, pid) for pid in dict.fromkeys((*listeners, *ranks))}
    doubts = [doubt for pid, one in found.items() if (doubt := _doubt(pid, one, pid in listeners))]
    if sockets and not listeners:
        doubts.insert(0, f"the process that listens on port {port} cannot be seen")
    versions = [one.version for one in found.values() if isinstance(one, MappedNccl)]
    known = [version for version in versions if version is not None]
    return _Services(bool(sockets), min(known) if known and len(known) == len(versions) else None, tuple(doubts))


def _owners(procfs: ProcFs, sockets: set[int]) -> list[int]:
    """The processes that hold one of some sockets, as far as they can be seen."""
    found: list[int] = []
    for pid in procfs.pids() if sockets else ():
        try:
            if sockets & inodes(procfs.descriptors(pid)):
                found.append(pid)
        except OSError:
            continue
    return found


def _nccl(procfs: ProcFs, pid: int) -> MappedNccl | str | None:
    """The NCCL of a process, or why it cannot be known."""
    try:
        return mapped_nccl(procfs, pid)
    except (OSError, ValueError) as error:
        return f"the libraries of process {pid} cannot be read ({getattr(error, 'strerror', None) or error})"


def _doubt(pid: int, nccl: MappedNccl | str | None, listens: bool) -> str | None:
    """Why a query may harm a process."""
    if isinstance(nccl, str):
        return nccl
    if nccl is None:
        return f"process {pid}, which listens, has no NCCL mapped that is known" if listens else None
    if nccl.version is None:
        return f"the version of NCCL in {nccl.name}, which process {pid} has mapped, is unknown"
    return f"process {pid} runs NCCL {describe(nccl.version)}" if nccl.version < SAFE else None


def _query(address: str, version: Version | None) -> tuple[bytes, str]:
    """The report and the suffix of its format, by one connection."""
    deadline = time.monotonic() + ANSWER_S
    with _connect(address) as connection:
        suffix = "txt"
        if version is not None and version >= _SAYS_JSON:
            connection.sendall(b"SET FORMAT json\n")
            suffix = "json" if _takes_format(connection) else "txt"
        connection.sendall(b"VERBOSE STATUS\n")
        return b"".join(_receive(connection, deadline, lambda data: False)), suffix


def _takes_format(connection: socket.socket) -> bool:
    """Whether the service confirmed the format; one that does not know the command may also stay silent."""
    try:
        said = b"".join(_receive(connection, time.monotonic() + _CONNECT_S, lambda data: data.endswith(b"\n")))
    except TimeoutError:
        return False
    return said.strip().upper() == b"OK"


def _port(address: str) -> int:
    port = address.rpartition(":")[2]
    return int(port) if port.isdecimal() else 28028


def _connect(address: str) -> socket.socket:
    host = address.rpartition(":")[0]
    return socket.create_connection((host.strip("[]") or "localhost", _port(address)), timeout=_CONNECT_S)


def _receive(connection: socket.socket, deadline: float, complete: Callable[[bytes], bool]) -> Iterable[bytes]:
    """Everything until the service closes or `complete` says so of a piece."""
    size = 0
    while size < _LIMIT:
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        chunk = connection.recv(1 << 16)
        size += len(chunk)
        yield chunk
        if not chunk or complete(chunk):
            break
