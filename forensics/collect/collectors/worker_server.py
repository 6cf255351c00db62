"""Speak HTTP to a torch worker server over its UNIX socket, with a deadline and a size limit on everything.

The server (torch/csrc/distributed/c10d/control_plane/WorkerServer.cpp) answers from threads of its own, so it answers while
the interpreter lock is held for ever. It names itself in the title of its first page.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from forensics.collect.processes import ProcFs, inodes
from forensics.collect.target import visible_path

_TITLE = b"torch.distributed.WorkerServer"
# Sockets of multiprocessing and of torch's shared memory daemon expect another protocol; a request would be noise to them.
_FOREIGN = re.compile(r"(?:^|/)(?:pymp-[^/]*/|listener-|torch[-_]shm|torch_\d+_|\.X11-unix/)")
_PAGE_LIMIT = 1 << 16
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class SocketPlace:
    """A UNIX socket of a process: its path as the process names it, and as this process can open it."""

    name: str
    path: Path
    configured: bool


class NotAWorkerServer(Exception):
    """Something else answered; the text says what."""


class _UnixConnection(http.client.HTTPConnection):
    """An HTTP connection through a UNIX socket; reached through its folder's descriptor, as paths are limited to 107 bytes."""

    def __init__(self, path: Path, pid: int, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._pid = pid

    def connect(self) -> None:
        """Connect the socket. Raises NotAWorkerServer when another process serves it: its answer would be another rank's."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        folder = os.open(self._path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.sock.connect(f"/proc/self/fd/{folder}/{self._path.name}")
        finally:
            os.close(folder)
        size = struct.calcsize("3i")
        pid, _, _ = struct.unpack("3i", self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
        if pid not in (0, self._pid):  # 0 is a process that this one cannot see
            raise NotAWorkerServer(f"it is served by process {pid}, not by this rank")


def socket_places(procfs: ProcFs, pid: int, configured: str | None) -> list[SocketPlace]:
    """Sockets that may be a worker server: the configured one, then those the process itself listens on.

    Raises PermissionError when none is configured and the open files of the process may not be seen.
    """
    places = [SocketPlace(configured, visible_path(procfs, pid, configured), True)] if configured else []
    try:
        own = inodes(procfs.descriptors(pid))
    except PermissionError:
        if places:
            return places
        raise
    for inode, name in sorted(procfs.unix_listeners(pid).items()):
        known = any(place.name == name for place in places)
        if inode in own and not known and not _FOREIGN.search(name):
            places.append(SocketPlace(name, visible_path(procfs, pid, name), False))
    return places


def handlers(path: Path, pid: int, timeout_s: float) -> list[str]:
    """Names of the handlers of a process's worker server.

    Raises NotAWorkerServer, or OSError when nobody answers in time.
    """
    with answer(path, pid, "GET", "/", timeout_s) as (_, chunks):
        if _TITLE not in _page(chunks):
            raise NotAWorkerServer("it is no torch worker server")
    with answer(path, pid, "GET", "/handler/", timeout_s) as (_, chunks):
        try:
            names = orjson.loads(_page(chunks))
        except orjson.JSONDecodeError:
            return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _page(chunks: Iterator[bytes]) -> bytes:
    """The beginning of a page: something else may answer without end."""
    page = bytearray()
    for chunk in chunks:
        page += chunk
        if len(page) >= _PAGE_LIMIT:
            break
    return bytes(page[:_PAGE_LIMIT])


@contextmanager
def answer(path: Path, pid: int, method: str, url: str, timeout_s: float) -> Iterator[tuple[int, Iterator[bytes]]]:
    """HTTP status and body of one request; the body comes in pieces. Raises TimeoutError when the whole takes too long."""
    deadline = time.monotonic() + timeout_s
    connection = _UnixConnection(path, pid, timeout_s)
    try:
        connection.request(method, url, headers={"Connection": "close", "Content-Length": "0"})
        response = connection.getresponse()
        yield response.status, _body(response, deadline)
    except http.client.HTTPException as error:
        raise NotAWorkerServer(f"it broke off: {error}") from error
    finally:
        connection.close()


def _body(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    while chunk := response.read1(_CHUNK):  # read() would wait for all of a chunk, however slowly it comes
        yield chunk
        if time.monotonic() > deadline:
            raise TimeoutError("the answer takes too long")
    if response.length:
        raise http.client.IncompleteRead(b"", response.length)
