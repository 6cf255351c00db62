"""The RAS service of NCCL (2.24 and newer): every NCCL process listens on NCCL_RAS_ADDR and knows all its peers.

The protocol is lines of text (src/ras/client.cc of NCCL): `SET FORMAT json` (from about 2.28.7) is answered by `OK`, then
`VERBOSE STATUS` by the whole report, after which the service closes. Older services get a second connection without it.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

from forensics.bundle.layout import Status, node_path
from forensics.collect.record import Run, failure
from forensics.collect.target import Context

ID = "nccl.ras"
DEFAULT_ADDRESS = "localhost:28028"
ANSWER_S = 12.0
_CONNECT_S = 2.0
_LIMIT = 64 << 20


def collect_ras(context: Context, sample: int, address: str = DEFAULT_ADDRESS, switched_off: bool = False) -> Iterator[Run]:
    """One query; two of them tell a stuck operation from a moving one."""
    argv = ("VERBOSE STATUS", address)
    if switched_off:
        yield Run(ID, None, Status.NOT_CONFIGURED, "NCCL_RAS_ENABLE is 0", sample=sample)
        return
    try:
        content, suffix = _query(address)
    except ConnectionRefusedError:
        reason = f"nothing listens on {address}: NCCL is older than 2.24, or the job does not run in this network namespace"
        yield Run(ID, None, Status.NOT_FOUND, reason, sample=sample, argv=argv)
        return
    except OSError as error:
        yield Run(ID, None, *failure(error, f"NCCL RAS at {address}"), sample=sample, argv=argv)
        return
    if not content.strip():
        yield Run(ID, None, Status.PARTIAL, f"NCCL RAS at {address} closed without an answer", sample=sample, argv=argv)
        return
    written = context.staging.write(node_path(context.node, f"nccl/ras-{sample}.{suffix}"), content)
    yield Run(
        ID,
        None,
        Status.OK,
        sample=sample,
        argv=argv,
        bytes=written.bytes,
        sha256=written.sha256,
        path=written.path,
    )


def _query(address: str) -> tuple[bytes, str]:
    """The report and the suffix of its format."""
    deadline = time.monotonic() + ANSWER_S
    with _connect(address) as connection:
        connection.sendall(b"SET FORMAT json\n")
        if _takes_format(connection):
            connection.sendall(b"VERBOSE STATUS\n")
            return _receive(connection, deadline, lambda data: False), "json"
    with _connect(address) as connection:
        connection.sendall(b"VERBOSE STATUS\n")
        return _receive(connection, deadline, lambda data: False), "txt"


def _takes_format(connection: socket.socket) -> bool:
    """Whether the service confirmed the format; one that does not know the command may also stay silent."""
    try:
        said = _receive(connection, time.monotonic() + _CONNECT_S, lambda data: data.endswith(b"\n"))
    except TimeoutError:
        return False
    return said.strip().upper() == b"OK"


def _connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    number = int(port) if port.isdecimal() else 28028
    return socket.create_connection((host.strip("[]") or "localhost", number), timeout=_CONNECT_S)


def _receive(connection: socket.socket, deadline: float, complete: Callable[[bytes], bool]) -> bytes:
    """Everything until the service closes or `complete` says so."""
    content = bytearray()
    while len(content) < _LIMIT:
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        chunk = connection.recv(1 << 16)
        content += chunk
        if not chunk or complete(bytes(content[-2:])):
            break
    return bytes(content)
