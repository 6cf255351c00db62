"""Nothing of the job is opened but plain files and the sockets that are meant for it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect.collectors.fr_files import collect_files
from forensics.collect.collectors.fr_live import collect_live
from forensics.collect.collectors.gpu_smi import collect_smi
from forensics.collect.collectors.kernel_log import collect_kernel_log
from forensics.collect.collectors.worker_server import NotAWorkerServer, handlers
from forensics.collect.opening import NotAPlainFileError, open_plain_file
from forensics.collect.processes import ProcFs
from forensics.collect.target import Context, Target
from tests.unit.collect.fake_proc import FakeProc
from tests.unit.collect.real_processes import eventually, running, state

# A service of a rank that speaks the protocol of multiprocessing, in a place of its own.
LISTENER = """
import sys
from multiprocessing.connection import Listener
with Listener(sys.argv[1], authkey=b"secret") as listener:
    print(0, flush=True)
    while True:
        listener.accept().recv()
"""


@pytest.fixture
def real(context: Context) -> Context:
    return replace(context, procfs=ProcFs())


def test_a_plain_file_is_opened_for_reading(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for descriptor in (open_plain_file(tmp_path / "file", follow=False), open_plain_file(tmp_path / "link")):
        assert os.read(descriptor, 99) == b"content"
        os.close(descriptor)
    with pytest.raises(OSError, match="symbolic links"):
        open_plain_file(tmp_path / "link", follow=False)


def test_a_pipe_in_the_place_of_a_dump_gets_no_reader(context: Context, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "dump_3")
    code = f"import os\nprint(0, flush=True)\nos.write(os.open({str(tmp_path / 'dump_3')!r}, os.O_WRONLY), b'x')"
    with running(code) as writer:
        target = Target(3, "alive", writer.pid, environ={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"})
        (run,) = collect_files(replace(context, procfs=ProcFs()), target, 0)
        assert (run.status, run.reason) == (Status.NOT_FOUND, f"{tmp_path}/dump_3 is not a plain file")
        assert not eventually(lambda: state(writer.pid) in ("", "Z"), attempts=40)  # it still waits for its reader


def test_a_device_is_looked_at_and_not_opened() -> None:
    with pytest.raises(NotAPlainFileError):
        open_plain_file(Path("/dev/null"))


def test_a_server_of_another_protocol_lives_on(real: Context, tmp_path: Path) -> None:
    with running(LISTENER, str(tmp_path / "s")) as rank:
        (run,) = collect_live(real, Target(0, "alive", rank.pid), 0)
        assert run.status is Status.NOT_CONFIGURED
        assert f"{tmp_path / 's'}, which only --ask-sockets asks" in str(run.reason)
        assert not eventually(lambda: state(rank.pid) in ("", "Z"), attempts=40)


def test_a_page_without_end_is_read_to_its_limit(tmp_path: Path) -> None:
    code = """
import socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
listener.listen()
print(0, flush=True)
connection, _ = listener.accept()
connection.recv(65536)
connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n")
sent = 0
try:
    while True:
        sent += connection.send(b"x" * 65536)
except OSError:
    print(sent, flush=True)
"""
    with running(code, str(tmp_path / "s")) as server:
        with pytest.raises(NotAWorkerServer):
            handlers(tmp_path / "s", server.pid, 60.0)
        assert server.stdout is not None
        assert int(server.stdout.readline()) < 8 << 20


def test_a_kernel_that_logs_without_end_is_read_to_a_limit(context: Context) -> None:
    bounded = replace(context, settings=replace(context.settings, text_bytes=10_000))
    (run,) = collect_kernel_log(bounded, 0, Path("/dev/zero"))
    assert run.status is Status.OK
    assert 10_000 <= run.bytes < 40_000


def test_a_disk_that_the_job_needs_too_is_not_filled(context: Context, tmp_path: Path) -> None:
    (tmp_path / "dump_3").write_bytes(bytes(3 << 20))
    full = replace(context, procfs=ProcFs(), staging=replace(context.staging, reserve=1 << 60))
    target = Target(3, "alive", os.getpid(), environ={"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"})
    (run,) = collect_files(full, target, 0)
    assert "of the disk would be left" in str(run.reason)
    assert not [path for path in context.staging.root.rglob("*") if path.is_file()]
    (tmp_path / "dump_3").write_bytes(b"small")
    assert next(iter(collect_files(full, target, 0))).status is Status.OK


def test_nvidia_smi_is_not_started_beside_one_that_hangs_in_the_driver(
    context: Context, proc: FakeProc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho x >>{started}\necho '<?xml?>'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    proc.add(700, comm="nvidia-smi", state="S", start=0)
    (run,) = collect_smi(context, 0)
    assert (run.status, started.read_text()) == (Status.OK, "x\n")
    proc.add(701, comm="nvidia-smi", state="D", start=0)
    (run,) = collect_smi(context, 0)
    assert (run.status, started.read_text()) == (Status.SKIPPED_BY_POLICY, "x\n")
    assert "process 701" in str(run.reason)
