"""The collector that copies what the recorder wrote in the ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from forensics.bundle.layout import Status
from forensics.collect.collectors import stage_files
from forensics.collect.collectors.stage_files import collect_stages, open_files
from forensics.collect.processes import ProcFs
from forensics.collect.target import Context, Target
from forensics.recorder import Recorder, layout
from tests.unit.collect.fake_proc import FakeProc
from tests.unit.ingest.reading import read

ROOT = Path(__file__).parents[3]
TRAINER = """
import sys, time
from forensics.recorder import Recorder
perf = Recorder(sys.argv[1] if len(sys.argv) > 1 else None, rank=5, world_size=8)
with perf.step(), perf.stage("forward"):
    pass
while not perf._writer._written:
    time.sleep(0.01)
print("written", flush=True)
sys.stdin.read()
"""


def record(folder: Path, rank: int, *, at: int = 1_000) -> Path:
    """What a recorder leaves behind."""
    perf = Recorder(folder, rank=rank, world_size=8)
    with perf.step(), perf.stage("forward"):
        pass
    perf.close()
    path = folder / f"rank_{rank}.stages"
    os.utime(path, ns=(at, at))
    return path


def target(proc: FakeProc, environ: Mapping[str, str], fds: Mapping[int, str] | None = None) -> Target:
    """Rank 3, alive with pid 100."""
    proc.add(100, environ=environ, start=500, fds=fds)
    return Target(3, "alive", 100, 100, 3, os.getuid(), environ, 0, start_ticks=500)


def unpacked(context: Context, path: str | None) -> bytes:
    packed = (context.staging.root / (path or "")).read_bytes()
    return zstandard.ZstdDecompressor().decompressobj().decompress(packed)


@contextmanager
def trainer(*arguments: str, environ: Mapping[str, str]) -> Iterator[int]:
    """A real process that has recorded one step and holds its file open."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, "-c", TRAINER, *arguments]
    with subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"written\n"
            yield process.pid
        finally:
            process.kill()


def test_a_folder_that_only_the_trainer_knows_is_found_by_the_open_file(context: Context, tmp_path: Path) -> None:
    with trainer(str(tmp_path / "chosen"), environ={}) as pid:
        here = replace(context, procfs=ProcFs())
        (run,) = collect_stages(here, Target(5, "alive", pid, pid, 5, os.getuid()), 0)
    assert (run.status, run.reason, run.path) == (Status.OK, None, "ranks/5/stages/rank_5.stages.zst")
    found = read(unpacked(context, run.path), "rank_5.stages")
    assert found.identities[0].rank == 5 and [row["stage"] for row in found.rows("stage_spans")] == ["forward"]


def test_a_file_that_was_deleted_under_the_rank_is_still_read(context: Context, tmp_path: Path) -> None:
    with trainer(environ={"FORENSICS_STAGES": str(tmp_path / "stages")}) as pid:
        (tmp_path / "stages/rank_5.stages").unlink()
        here = replace(context, procfs=ProcFs())
        assert [file.is_open for file in open_files(here.procfs, pid)] == [True]
        (run,) = collect_stages(here, Target(5, "alive", pid, pid, 5, os.getuid()), 0)
    assert (run.status, run.path) == (Status.OK, "ranks/5/stages/rank_5.stages.zst")


def test_a_rank_that_is_done_with_recording_left_its_file_in_the_folder(
    context: Context, proc: FakeProc, tmp_path: Path
) -> None:
    content = record(tmp_path / "stages", 3).read_bytes()
    (run,) = collect_stages(context, target(proc, {"FORENSICS_STAGES": str(tmp_path / "stages")}), 0)
    assert (run.status, run.pid, run.path) == (Status.OK, 100, "ranks/3/stages/rank_3.stages.zst")
    assert unpacked(context, run.path) == content and run.bytes < len(content)
    assert run.captured_ns is not None and run.captured_ns > 1_000


def test_the_file_of_a_dead_rank_lies_beside_that_of_a_living_one(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    living = record(tmp_path / "stages", 3)
    record(tmp_path / "stages", 4)
    alive = target(proc, {}, {9: str(living)})
    dead = Target(4, "absent", None, 100, 3, os.getuid(), alive.environ)
    (run,) = collect_stages(context, dead, 0)
    assert (run.status, run.rank, run.path) == (Status.OK, 4, "ranks/4/stages/rank_4.stages.zst")


def test_what_is_not_there_says_why(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (never,) = collect_stages(context, target(proc, {}, {3: "/data/log.txt", 4: "socket:[7]"}), 0)
    assert never.status is Status.NOT_CONFIGURED and "FORENSICS_STAGES is not set" in (never.reason or "")
    configured = Target(3, "alive", 100, 100, 3, os.getuid(), {"FORENSICS_STAGES": str(tmp_path)})
    (absent,) = collect_stages(context, configured, 0)
    assert absent.status is Status.NOT_FOUND and f"{tmp_path}/rank_3.stages" in (absent.reason or "")
    (alone,) = collect_stages(context, Target(3, "absent"), 0)
    assert alone.status is Status.NOT_FOUND and "no living process" in (alone.reason or "")


@pytest.mark.parametrize("what", ["link", "other", "earlier", "owner", "empty"])
def test_what_must_not_be_taken_stays(context: Context, proc: FakeProc, tmp_path: Path, what: str) -> None:
    path = record(tmp_path, 3)
    one = target(proc, {"FORENSICS_STAGES": str(tmp_path)})
    if what == "link":
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    elif what in ("other", "empty"):
        path.write_bytes(b"key: secret" if what == "other" else b"")
    elif what == "earlier":
        one = replace(one, since_ns=2_000)
    else:
        one = replace(one, uid=os.getuid() + 1)
    (run,) = collect_stages(context, one, 0)
    reasons = {
        "link": "is a link",
        "other": "nothing that forensics.recorder wrote",
        "empty": "nothing that forensics.recorder wrote",
        "earlier": "is of an earlier run",
        "owner": "belongs to uid",
    }
    assert (run.status, run.path) == (Status.NOT_FOUND, None) and reasons[what] in (run.reason or "")
    assert not list(context.staging.root.rglob("*.stages*"))


def test_a_huge_ring_is_cut_and_still_read(
    context: Context, proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = record(tmp_path, 3)
    path.write_bytes(path.read_bytes() + bytes(1 << 20))
    monkeypatch.setattr(stage_files, "MOST_BYTES", layout.SLOTS_OFFSET + 4 * layout.slot_bytes(64))
    (run,) = collect_stages(context, target(proc, {"FORENSICS_STAGES": str(tmp_path)}), 0)
    assert run.status is Status.PARTIAL and run.truncated and "cut at" in (run.reason or "")
    assert len(unpacked(context, run.path)) == stage_files.MOST_BYTES
    assert len(read(unpacked(context, run.path), "rank_3.stages").rows("steps")) == 1


def test_open_files_that_may_not_be_seen(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    one = target(proc, {"FORENSICS_STAGES": str(tmp_path)})
    record(tmp_path, 3)

    class Closed(ProcFs):
        """A /proc whose descriptors belong to somebody else."""

        def descriptors(self, pid: int) -> dict[int, str]:
            raise PermissionError(13, "Permission denied")

    closed = replace(context, procfs=Closed(proc.root))
    (run,) = collect_stages(closed, one, 0)
    assert run.status is Status.OK
    (denied,) = collect_stages(closed, replace(one, environ={}), 0)
    assert denied.status is Status.PERMISSION and "open files of process 100" in (denied.reason or "")
