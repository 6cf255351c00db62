"""A /proc made of plain files, for processes that do not exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from forensics.collect.processes import ProcFs
from forensics.collect.scan import Scan, look_at

PYTHON = "/usr/bin/python3.11"
TORCH = "/site-packages/torch/lib/libtorch_cpu.so"
TICKS = 100


class FakeProc:
    """Builds the tree process by process; `start` counts clock ticks since boot."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.procfs = ProcFs(root)
        self.pids: list[int] = []
        (root / "self").symlink_to("1")

    def add(
        self,
        pid: int,
        ppid: int = 1,
        *,
        environ: Mapping[str, str | int] | None = None,
        torch: bool | str = False,
        exe: str | None = PYTHON,
        comm: str = "python",
        state: str = "S",
        start: int = 1000,
        end: int = 0,
        uid: int = 0,
        cmdline: Sequence[str] = ("python", "train.py"),
        fds: Mapping[int, str] | None = None,
        threads: Sequence[int] = (),
    ) -> None:
        """One process; a zombie has neither environment nor memory map."""
        folder = self.root / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "ns").mkdir()
        dead = state == "Z"
        self._file(
            folder / "environ",
            b"" if dead else b"".join(b"%s=%s\0" % (k.encode(), str(v).encode()) for k, v in (environ or {}).items()),
        )
        self._file(folder / "cmdline", b"" if dead else "\0".join(cmdline).encode() + b"\0")
        self._file(
            folder / "maps", f"7f00-7f01 r-xp 0 08:01 5    {TORCH if torch is True else torch}\n".encode() if torch else b""
        )
        self._file(folder / "cgroup", b"0::/job\n")
        if exe and not dead:
            (folder / "exe").symlink_to(exe)
        (folder / "ns/net").symlink_to("net:[4026531833]")
        (folder / "root").symlink_to("/")
        for number, target in (fds or {}).items():
            (folder / "fd" / str(number)).symlink_to(target)
        for thread in (pid, *threads):
            self._thread(folder / f"task/{thread}", thread, ppid, comm, state, start, end, uid)
        for name in ("stat", "status"):
            self._file(folder / name, (folder / f"task/{pid}/{name}").read_bytes())
        self.pids.append(pid)

    def scan(self) -> Scan:
        """What a scan of this tree gives, without the child processes a real one uses."""
        found = (look_at(self.procfs, pid) for pid in self.pids)
        return Scan({one.pid: one for one in found if one is not None})

    def network(self, pid: int, *, unix: Mapping[int, str] | None = None, tcp: Sequence[int] = ()) -> None:
        """Listening UNIX sockets by inode, and inodes of established TCP sockets, as the process's namespace shows them."""
        folder = self.root / str(pid) / "net"
        folder.mkdir(exist_ok=True)
        rows = [f"0000: 00000002 00000000 00010000 0001 01 {inode:5} {path}" for inode, path in (unix or {}).items()]
        self._file(folder / "unix", "\n".join(["Num RefCount Protocol Flags Type St Inode Path", *rows, ""]).encode())
        lines = [f"   0: 0100007F:0001 0100007F:0002 01 0:0 00:0 0 0 0 {inode} 1" for inode in tcp]
        self._file(folder / "tcp", "\n".join(["  sl  local_address", *lines, ""]).encode())

    @staticmethod
    def _file(path: Path, content: bytes) -> None:
        path.write_bytes(content)

    def _thread(self, folder: Path, tid: int, ppid: int, comm: str, state: str, start: int, end: int, uid: int) -> None:
        folder.mkdir(parents=True)
        fields = ["0"] * 50
        fields[0], fields[1], fields[6] = state, str(ppid), "4194304"
        fields[11], fields[12], fields[19], fields[49] = "7", "3", str(start), str(end)
        self._file(folder / "stat", f"{tid} ({comm}) {' '.join(fields)}\n".encode())
        status = f"Name:\t{comm}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t{tid}\nTracerPid:\t0\nCapEff:\t0\n"
        self._file(folder / "status", f"{status}voluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n".encode())
        self._file(folder / "wchan", b"futex_do_wait")
        self._file(folder / "syscall", b"202 0x7f\n")
        self._file(folder / "stack", b"[<0>] futex_wait+0x1\n[<0>] do_syscall_64+0x2\n")
