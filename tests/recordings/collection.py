"""What a collector leaves behind (docs/bundle.md): members by path, written as a folder, a tar, or loose files."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Collection as Some
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forensics.bundle.layout import member_order
from tests.recordings.job import SECOND, Job, as_json, as_pickle
from tests.recordings.places import ALL_REDUCE, Place

NODE = "gpu-017"
FIRST_PID = 4100


def pid_of(rank: int) -> int:
    return FIRST_PID + 10 * rank


def iso_time(time_ns: int) -> str:
    """A time with its zone, in whole seconds, as journals write it."""
    return datetime.fromtimestamp(time_ns // SECOND, UTC).isoformat()


def py_spy(place: Place, pid: int, *, thread_name: str = "MainThread", owns_gil: bool = False, active: bool = False) -> bytes:
    """`py-spy dump --json` of a process with one Python thread."""
    frames = [
        {
            "name": name,
            "filename": file,
            "module": None,
            "short_filename": file.rpartition("/")[2],
            "line": line,
            "locals": None,
            "is_entry": False,
            "is_shim_entry": False,
        }
        for name, file, line in place
    ]
    thread = {
        "pid": pid,
        "thread_id": 139906717312704,
        "thread_name": thread_name,
        "os_thread_id": pid,
        "active": active,
        "owns_gil": owns_gil,
        "frames": frames,
        "process_info": None,
    }
    return json.dumps([thread], indent=1).encode()


def _with_main(document: bytes, main: Place, pid: int) -> bytes:
    """The dump of a process whose main thread is at `main`, and the thread of `document` is its second one."""
    (thread,) = json.loads(document)
    second = {**thread, "thread_name": "runner", "thread_id": thread["thread_id"] + 1, "os_thread_id": pid + 5}
    return json.dumps([*json.loads(py_spy(main, pid)), second], indent=1).encode()


def process_sample(
    rank: int,
    time_ns: int,
    *,
    state: str = "S",
    wchan: str | None = None,
    syscall: str | None = None,
    switches: int = 40,
    tracer: int = 0,
    signals: str | None = None,
) -> bytes:
    """One look at the main thread of a rank."""
    thread = {
        "tid": pid_of(rank),
        "name": "python",
        "state": state,
        "wchan": wchan,
        "syscall": syscall,
        "stack": None,
        "utime_ticks": 300,
        "stime_ticks": 20,
        "voluntary_switches": switches,
        "involuntary_switches": 3,
        "tracer_pid": tracer,
        "signals_caught": signals,
    }
    process = {"pid": pid_of(rank), "ppid": 4000, "is_child": False, "threads": [thread], "errors": []}
    return json.dumps({"schema": "forensics.proc/1", "rank": rank, "time_ns": time_ns, "processes": [process]}).encode()


@dataclass(slots=True)
class Collection:
    """Members of a bundle; `at_ns` is when the collection begins, samples lie two seconds apart."""

    world: int
    at_ns: int
    members: dict[str, bytes] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    ranks: dict[int, dict[str, Any]] = field(default_factory=dict)
    node: str = NODE

    def rank(self, rank: int, state: str = "alive", *, exit_signal: int | None = None, exit_code: int | None = None) -> None:
        """Identity of a rank and of its process."""
        pid = pid_of(rank) if state != "absent" else None
        self.ranks[rank] = {"node": self.node, "pid": pid, "state": state}
        document = {
            "rank": rank,
            "node": self.node,
            "local_rank": rank,
            "rank_method": "RANK",
            "pid": pid,
            "ns_pid": pid,
            "ppid": 4000,
            "start_ns": self.at_ns - 3600 * SECOND,
            "state": state,
            "exit_signal": exit_signal,
            "exit_code": exit_code,
            "state_method": "/proc",
            "cmdline": ["python", "pretrain.py"],
            "env": {"RANK": str(rank), "WORLD_SIZE": str(self.world), "MASTER_PORT": "29500"},
            "env_withheld": [],
            "children": [],
            "devices": [],
        }
        self.members[f"ranks/{rank}/rank.json"] = json.dumps(document).encode()

    def dump(self, job: Job, rank: int, number: int = 0, at_ns: int | None = None) -> None:
        """The worker server's answer number `number`."""
        self._member("fr.live", rank, number, f"ranks/{rank}/fr/{number}.json", as_json(job.dump(rank)), at_ns)

    def stacks(self, rank: int, *places: Place, owns_gil: bool = False, main: Place = (), active: bool = False) -> None:
        """Samples of the rank's main thread, in order; with `main` that one is there, and a second thread at the places."""
        for number, place in enumerate(places):
            path = f"ranks/{rank}/stacks/{number}.json"
            document = py_spy(place, pid_of(rank), owns_gil=owns_gil, active=active)
            self._member("stack.pyspy", rank, number, path, _with_main(document, main, pid_of(rank)) if main else document)

    def child(self, rank: int, place: Place, pid: int, number: int = 0) -> None:
        """One sample of a child process of the rank."""
        path = f"ranks/{rank}/stacks/child-{pid}.{number}.json"
        self._member("stack.pyspy", rank, number, path, py_spy(place, pid))

    def samples(
        self,
        rank: int,
        state: str = "S",
        count: int = 3,
        *,
        moving: bool = False,
        woken: int = 25,
        tracer: int = 0,
        wchan: str | None = None,
        syscall: str | None = None,
        signals: str | None = None,
    ) -> None:
        """Looks at the process through /proc, two seconds apart; a moving one was scheduled so many times in between."""
        for number in range(count):
            time_ns = self.at_ns + 2 * number * SECOND
            switches = 40 + woken * number * moving
            kernel = {"wchan": wchan, "syscall": syscall, "signals": signals}
            content = process_sample(rank, time_ns, state=state, switches=switches, tracer=tracer, **kernel)
            self._member("proc.tasks", rank, number, f"ranks/{rank}/proc/{number}.json", content)

    def written(self, rank: int, counts: Iterable[int | None]) -> None:
        """Bytes that the process of a rank had written by each of its samples."""
        for number, count in enumerate(counts):
            name = f"ranks/{rank}/proc/{number}.json"
            document = json.loads(self.members[name])
            document["processes"][0]["written_bytes"] = count
            self.members[name] = json.dumps(document).encode()

    def worked(self, rank: int, ticks: Iterable[int]) -> None:
        """Hundredths of a second of a processor that the main thread of a rank had used by each of its samples."""
        for number, count in enumerate(ticks):
            name = f"ranks/{rank}/proc/{number}.json"
            document = json.loads(self.members[name])
            document["processes"][0]["threads"][0]["utime_ticks"] = count
            self.members[name] = json.dumps(document).encode()

    def log(self, rank: int, *lines: str, written_ns: int | None = None) -> None:
        """The tail of the rank's log, and when it was last written to."""
        self._member("log.files", rank, None, f"ranks/{rank}/logs/train.log", ("\n".join(lines) + "\n").encode())
        self.runs[-1]["captured_ns"] = written_ns

    def kernel_log(self, *lines: str) -> None:
        self._member("kernel.log", None, None, f"nodes/{self.node}/kernel/dmesg.txt", ("\n".join(lines) + "\n").encode())

    def service(self, collector: str, sample: int, path: str, content: bytes, at_ns: int) -> None:
        """What a service of the node answered at a time; `path` is below the folder of the node."""
        self._member(collector, None, sample, f"nodes/{self.node}/{path}", content, at_ns)

    def _member(
        self, collector: str, rank: int | None, sample: int | None, path: str, content: bytes, at_ns: int | None = None
    ) -> None:
        begin = self.at_ns + 2 * (sample or 0) * SECOND if at_ns is None else at_ns
        self.members[path] = content
        self.runs.append(
            {
                "id": collector,
                "rank": rank,
                "pid": None if rank is None else pid_of(rank),
                "sample": sample,
                "argv": [],
                "begin_ns": begin,
                "end_ns": begin + SECOND // 10,
                "status": "ok",
                "reason": None,
                "bytes": len(content),
                "truncated": False,
                "sha256": None,
                "path": path,
            }
        )

    def finished(self) -> dict[str, bytes]:
        """All members, with the manifest, in the order a bundle has them."""
        manifest = {
            "schema": "forensics.bundle/1",
            "tool": "forensics 0",
            "begin_ns": self.at_ns,
            "end_ns": self.at_ns + 10 * SECOND,
            "interrupted": False,
            "job_id": None,
            "world_size": self.world,
            "nodes": [self.node],
            "ranks": {str(rank): facts for rank, facts in sorted(self.ranks.items())},
            "status": {},
            "node_status": {},
        }
        lines = b"".join(json.dumps(run).encode() + b"\n" for run in self.runs)
        members = {"bundle.json": json.dumps(manifest).encode(), f"nodes/{self.node}/collectors.jsonl": lines, **self.members}
        return {path: members[path] for path in sorted(members, key=member_order)}

    def write(self, folder: Path) -> Path:
        """The bundle as a directory."""
        return write(folder, self.finished())

    def tar(self, path: Path) -> Path:
        """The bundle as a tar."""
        path.write_bytes(tar_of(self.finished()))
        return path


def whole(
    job: Job, places: Mapping[int, Place], *, silence_ns: int = 60 * SECOND, dumps: int = 1, samples: int = 3
) -> Collection:
    """A complete collection of a job that stands still: every rank alive, dumped, sampled and looked at.

    Ranks without a place of their own sit in the gradient reduction.
    """
    found = Collection(job.world, job.now_ns + silence_ns)
    for rank in range(job.world):
        found.rank(rank)
        found.samples(rank)
        found.stacks(rank, *[places.get(rank, ALL_REDUCE)] * samples)
        for number in range(dumps):
            found.dump(job, rank, number)
    return found


def loose(
    job: Job,
    folder: Path,
    ranks: Some[int] | None = None,
    *,
    form: str = "pickle",
    name: str = "nccl_trace_rank_{rank}",
    ring: int = 2000,
    only_active: bool = False,
    skew_ns: Mapping[int, int] | None = None,
) -> Path:
    """Flight Recorder files as jobs leave them on disk, without anything that dates them."""
    encode = as_pickle if form == "pickle" else as_json
    files = {}
    for rank in range(job.world) if ranks is None else ranks:
        dump = job.dump(rank, ring=ring, only_active=only_active, skew_ns=(skew_ns or {}).get(rank, 0))
        files[name.format(rank=rank)] = encode(dump)
    return write(folder, files)


def write(folder: Path, members: Mapping[str, bytes]) -> Path:
    """Files below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in members.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def tar_of(members: Mapping[str, bytes]) -> bytes:
    """A plain tar of the members in their order."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content in members.items():
            info = tarfile.TarInfo(path)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return stream.getvalue()
