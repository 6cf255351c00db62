"""Read /proc without stopping anything: one small function for each file, below a root that tests can replace.

`stat`, `status`, `fd` and `cgroup` never block. `environ`, `cmdline` and `maps` take a lock of the target's address space,
and `stack` and `syscall` one that a blocked execve holds: they are read only in children that may be abandoned.
Layouts: proc(5) and Documentation/filesystems/proc.rst of the kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_ENVIRON_LIMIT = 8 << 20
_CMDLINE_LIMIT = 256 << 10
_SMALL_LIMIT = 1 << 20
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD of include/linux/sched.h
_LISTENING = 0x00010000  # __SO_ACCEPTCON of include/uapi/linux/net.h
_TCP_LISTENING = "0A"
_TCP_STATES = frozenset({"01", _TCP_LISTENING})  # established, listening


@dataclass(frozen=True, slots=True)
class Stat:
    """The fields of /proc/PID/stat in use; `end` is the wait status of a dead process (field 52), 0 where hidden."""

    pid: int
    comm: str
    state: str
    ppid: int
    session: int
    utime: int
    stime: int
    nice: int
    start_ticks: int
    end: int
    is_kernel: bool


@dataclass(frozen=True, slots=True)
class MappedFile:
    """A mapped file: its path as the kernel names it, its inode, and the addresses of its first mapping (`start-end`)."""

    name: str
    inode: int
    addresses: str


@dataclass(frozen=True, slots=True)
class ProcFs:
    """A proc file system below `root`."""

    root: Path = Path("/proc")

    def path(self, pid: int, name: str) -> Path:
        """Path of a file of one process."""
        return self.root / str(pid) / name

    def pids(self) -> list[int]:
        """All processes, in numeric order."""
        return _numbers(self.root)

    def stat(self, pid: int, thread: int | None = None) -> Stat:
        """Identity and state of a process, or of one of its threads. Raises OSError when it is gone."""
        name = "stat" if thread is None else f"task/{thread}/stat"
        return parse_stat(_read(self.path(pid, name), _SMALL_LIMIT))

    def is_alive(self, pid: int) -> bool:
        """Whether the process exists and is more than a zombie."""
        try:
            return self.stat(pid).state not in "ZX"
        except (OSError, ValueError, IndexError):
            return False

    def status(self, pid: int, thread: int | None = None) -> dict[str, str]:
        """The `Name: value` lines of status."""
        name = "status" if thread is None else f"task/{thread}/status"
        lines = _text(_read(self.path(pid, name), _SMALL_LIMIT)).splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def cmdline(self, pid: int) -> tuple[str, ...]:
        """The words of the command line; empty for a kernel thread and a zombie."""
        content = _read(self.path(pid, "cmdline"), _CMDLINE_LIMIT)
        return tuple(_text(word) for word in content.removesuffix(b"\0").split(b"\0")) if content else ()

    def environ(self, pid: int) -> dict[str, str]:
        """The environment as it was at exec; values may hold `=`, and programs that set RANK later do not show it."""
        words = _read(self.path(pid, "environ"), _ENVIRON_LIMIT).split(b"\0")
        pairs = (word.partition(b"=") for word in words if b"=" in word)
        return {_text(name): _text(value) for name, _, value in pairs if name}

    def threads(self, pid: int) -> list[int]:
        """Thread ids, the main thread first."""
        return sorted(_numbers(self.path(pid, "task")), key=lambda thread: thread != pid)

    def text(self, pid: int, name: str) -> str:
        """A small file of a process as stripped text."""
        return _text(_read(self.path(pid, name), _SMALL_LIMIT)).strip()

    def link(self, pid: int, name: str) -> str:
        """Target of a symbolic link of a process, such as exe, cwd or ns/net."""
        return str(self.path(pid, name).readlink())

    def memory(self, pid: int, address: int, size: int) -> bytes:
        """Bytes of the memory of a process. Raises OSError where it may not be traced or maps nothing there."""
        with self.path(pid, "mem").open("rb", buffering=0) as stream:
            stream.seek(address)
            return stream.read(size)

    def descriptors(self, pid: int) -> dict[int, str]:
        """What each open file descriptor refers to, as the kernel names it. The files themselves are not touched."""
        folder = self.path(pid, "fd")
        targets: dict[int, str] = {}
        for number in _numbers(folder):
            try:
                targets[number] = str((folder / str(number)).readlink())
            except FileNotFoundError:  # closed in the meantime
                continue
        return targets

    def mapped_files(self, pid: int) -> Iterator[str]:
        """Paths of mapped files, each once."""
        return (file.name for file in self.mappings(pid))

    def mappings(self, pid: int) -> Iterator[MappedFile]:
        """The mapped files, each path once."""
        seen: set[str] = set()
        with self.path(pid, "maps").open("rb") as stream:
            for line in stream:
                start = line.find(b"/")
                path = _text(line[start:].rstrip(b"\n")) if start >= 0 else ""
                if path and path not in seen:
                    seen.add(path)
                    addresses, _, _, _, inode = line[:start].split()[:5]
                    yield MappedFile(path, int(inode), _text(addresses))

    def locks(self) -> list[str]:
        """Rows of the locks of files that this host knows, each with those that wait for it below."""
        return _text(_read(self.root / "locks", 16 << 20)).splitlines()

    def unix_listeners(self, pid: int) -> dict[int, str]:
        """Inode and bound path of the listening file-system UNIX sockets in the network namespace of a process."""
        sockets = self.unix_sockets(pid)
        return {inode: path for inode, (listens, path) in sockets.items() if listens and path and not path.startswith("@")}

    def unix_sockets(self, pid: int) -> dict[int, tuple[bool, str]]:
        """Of each UNIX socket in the network namespace of a process, by inode: whether it listens, and its path or nothing."""
        lines = _text(_read(self.path(pid, "net/unix"), 64 << 20)).splitlines()[1:]
        rows = (fields for line in lines if len(fields := line.split(None, 7)) > 6)
        return {int(row[6]): (bool(int(row[3], 16) & _LISTENING), row[7] if len(row) > 7 else "") for row in rows}

    def tcp_inodes(self, pid: int) -> set[int]:
        """Inodes of established and listening TCP sockets in the network namespace of a process."""
        return {int(row[9]) for row in self.tcp(pid) if row[3] in _TCP_STATES}

    def tcp_listeners(self, port: int) -> set[int]:
        """Inodes of the sockets that listen on a TCP port in the network namespace of this process."""
        rows = (row for row in self.tcp("self") if row[3] == _TCP_LISTENING)
        return {int(row[9]) for row in rows if int(row[1].rpartition(":")[2], 16) == port}

    def tcp(self, process: int | str) -> Iterator[list[str]]:
        """Fields of the TCP sockets, IPv4 first, in the network namespace of a process."""
        for name in ("net/tcp", "net/tcp6"):
            try:
                content = _text(_read(self.root / str(process) / name, 64 << 20))
            except OSError:
                continue
            yield from (row for line in content.splitlines()[1:] if len(row := line.split()) > 9)


def parse_stat(content: bytes) -> Stat:
    """The line of /proc/PID/stat; the name stands in parentheses and may hold any character."""
    head, _, rest = content.partition(b" (")
    comm, _, tail = rest.rpartition(b")")
    fields = tail.split()
    return Stat(
        pid=int(head),
        comm=_text(comm),
        state=_text(fields[0]),
        ppid=int(fields[1]),
        session=int(fields[3]),
        utime=int(fields[11]),
        stime=int(fields[12]),
        nice=int(fields[16]),
        start_ticks=int(fields[19]),
        end=int(fields[49]) if len(fields) > 49 else 0,
        is_kernel=bool(int(fields[6]) & _KERNEL_THREAD),
    )


def all_stats(procfs: ProcFs) -> dict[int, Stat]:
    """Every process that can be seen, by pid."""
    stats: dict[int, Stat] = {}
    for pid in procfs.pids():
        try:
            stats[pid] = procfs.stat(pid)
        except (OSError, ValueError, IndexError):  # gone in the meantime
            continue
    return stats


def descendants(stats: Mapping[int, Stat], root: int, without: Collection[int] = ()) -> list[int]:
    """Pids of the processes below `root`, nearest first and by start within a level; `root` is not among them.

    What `without` names is left out with all that is below it.
    """
    children: dict[int, list[int]] = {}
    for stat in sorted(stats.values(), key=lambda one: (one.start_ticks, one.pid)):
        children.setdefault(stat.ppid, []).append(stat.pid)
    found: list[int] = []
    level = [root]
    while level:
        level = [child for parent in level for child in children.get(parent, ()) if child != root and child not in without]
        found.extend(level)
    return found


def ancestors(stats: Mapping[int, Stat], pid: int) -> list[int]:
    """Pids of the processes above `pid`, nearest first."""
    found: list[int] = []
    while (stat := stats.get(pid)) is not None and stat.ppid > 0 and stat.ppid not in found:
        pid = stat.ppid
        found.append(pid)
    return found


def inodes(descriptors: Mapping[int, str]) -> set[int]:
    """Inodes of the sockets among open descriptors."""
    sockets = (target[8:-1] for target in descriptors.values() if target.startswith("socket:["))
    return {int(inode) for inode in sockets if inode.isdecimal()}


def _numbers(folder: Path) -> list[int]:
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())


def _read(path: Path, limit: int) -> bytes:
    with path.open("rb", buffering=0) as stream:
        content = bytearray()
        while len(content) < limit and (chunk := stream.read(1 << 16)):
            content += chunk
    return bytes(content)


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")
