from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect.collectors.fr_files import collect_files
from forensics.collect.collectors.fr_live import collect_live
from forensics.collect.collectors.fr_pipe import collect_pipe
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.fake_proc import FakeProc

HANDLERS = json.dumps(["ping", "fr_trace_json", "dump_nccl_trace_json"]).encode()
PAGES = {
    "GET /": b"<h1>torch.distributed.WorkerServer</h1>",
    "GET /handler/": HANDLERS,
    "POST /handler/fr_trace_json": b'{"version":"2.10"}',
    "POST /handler/dump_nccl_trace_json": b'{"version":"2.10","nccl_comm_state":{}}',
}


@contextmanager
def server(path: Path, pages: dict[str, bytes], code: int = 200) -> Iterator[None]:
    """An HTTP server on a UNIX socket that knows some pages."""
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(path.parent, os.O_PATH)
    listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                request = " ".join(connection.recv(65536).decode().split(" ", 2)[:2])
                body = pages.get(request, b"")
                status = code if request.startswith("POST") else 200
                connection.sendall(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


PID = os.getpid()  # the servers of these tests run in this process


def target(proc: FakeProc, **environ: str) -> Target:
    """Rank 3 as this process."""
    proc.add(PID, environ={"RANK": 3, **environ}, fds={5: "socket:[77]"}, uid=os.getuid())
    proc.network(PID)
    return Target(3, "alive", PID, PID, 3, os.getuid(), environ)


def one(runs: Iterator[Run]) -> Run:
    (run,) = runs
    return run


def member(context: Context, run: Run) -> bytes:
    assert run.path is not None
    return (context.staging.root / run.path).read_bytes()


def test_both_recorders_are_taken_from_the_configured_socket(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / ("long" * 40) / "server.sock"  # longer than a UNIX socket address may be
    path.parent.mkdir()
    with server(path, PAGES):
        runs = list(collect_live(context, target(proc, TORCH_WORKER_SERVER_SOCKET=str(path)), 1))
    assert [(run.status, run.path) for run in runs] == [(Status.OK, "ranks/3/fr/1.json"), (Status.OK, "ranks/3/fr/1.nccl.json")]
    assert member(context, runs[0]) == PAGES["POST /handler/fr_trace_json"]
    assert runs[0].bytes == len(PAGES["POST /handler/fr_trace_json"])


def test_a_socket_the_process_listens_on_is_found(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    rank = target(proc)
    proc.network(PID, unix={77: str(path), 78: "/not/its/own.sock"})
    asking = replace(context, settings=replace(context.settings, ask_sockets=True))
    with server(path, PAGES):
        assert {run.status for run in collect_live(asking, rank, 0)} == {Status.OK}


def test_sockets_of_multiprocessing_are_not_spoken_to(context: Context, proc: FakeProc) -> None:
    rank = target(proc)
    proc.network(PID, unix={77: "/tmp/pymp-abc/listener-xyz"})
    run = one(collect_live(context, rank, 0))
    assert run.status is Status.NOT_CONFIGURED
    assert "listens on no UNIX socket" in str(run.reason)


def test_a_server_that_never_answers_costs_its_deadline_only(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    proc.add(PID, state="T", fds={})
    proc.network(PID)
    stopped = Target(3, "alive", PID, PID, 3, 0, {"TORCH_WORKER_SERVER_SOCKET": str(path)})
    run = one(collect_live(context, stopped, 0))
    listener.close()
    assert run.status is Status.TIMEOUT
    assert "state T" in str(run.reason)


def test_a_server_that_drips_is_stopped(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            try:
                while True:
                    connection.sendall(b"x")
                    time.sleep(0.02)
            except OSError:
                return

    thread = threading.Thread(target=drip, daemon=True)
    thread.start()
    run = one(collect_live(context, target(proc, TORCH_WORKER_SERVER_SOCKET=str(path)), 0))
    thread.join()
    listener.close()
    assert run.status is Status.TIMEOUT


@pytest.mark.parametrize(
    ("pages", "code", "status", "words"),
    [
        ({"GET /": b"<h1>jupyter</h1>"}, 200, Status.NOT_CONFIGURED, "no torch worker server"),
        ({**PAGES, "GET /handler/": b'["ping"]'}, 200, Status.UNSUPPORTED, "only ping"),
        ({**PAGES, "GET /handler/": b'["fr_trace_json"]'}, 500, Status.UNSUPPORTED, "HTTP 500"),
    ],
)
def test_what_a_server_does_not_offer_is_said(
    context: Context, proc: FakeProc, tmp_path: Path, pages: dict[str, bytes], code: int, status: Status, words: str
) -> None:
    path = tmp_path / "w.sock"
    with server(path, pages, code):
        run = one(collect_live(context, target(proc, TORCH_WORKER_SERVER_SOCKET=str(path)), 0))
    assert run.status is status
    assert words in str(run.reason)


def test_an_answer_that_breaks_off_is_not_kept(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    full = [PAGES["GET /"], b'["fr_trace_json"]']

    def serve() -> None:
        for body, promised in ((full[0], len(full[0])), (full[1], len(full[1])), (b'{"version', 5000)):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (promised, body))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    run = one(collect_live(context, target(proc, TORCH_WORKER_SERVER_SOCKET=str(path)), 0))
    thread.join()
    listener.close()
    assert (run.status, run.path) == (Status.PARTIAL, None)
    assert "broke off" in str(run.reason)
    assert not list(context.staging.root.rglob("*.json"))


def test_the_recorder_of_another_process_is_not_taken_for_this_ranks(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"  # one path for all ranks: the last one to bind it serves it
    proc.add(PID + 1)
    proc.network(PID + 1)
    other = Target(2, "alive", PID + 1, PID + 1, 2, os.getuid(), {"TORCH_WORKER_SERVER_SOCKET": str(path)})
    with server(path, PAGES):
        run = one(collect_live(context, other, 0))
    assert (run.status, run.path) == (Status.NOT_CONFIGURED, None)
    assert f"served by process {PID}" in str(run.reason)


def test_a_socket_nobody_listens_on(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    path = tmp_path / "w.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.close()
    run = one(collect_live(context, target(proc, TORCH_WORKER_SERVER_SOCKET=str(path)), 0))
    assert (run.status, run.reason) == (Status.NOT_FOUND, f"nobody listens on {path} any more")


def test_a_pipe_without_reader_is_a_finding(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe_3.pipe")
    run = one(collect_pipe(context, target(proc, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/pipe_"), 0))
    assert run.status is Status.NOT_FOUND
    assert "nobody reads" in str(run.reason)


def test_a_pipe_that_does_not_exist_or_is_none(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    rank = target(proc, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/pipe_")
    assert one(collect_pipe(context, rank, 0)).status is Status.NOT_FOUND
    (tmp_path / "pipe_3.pipe").write_bytes(b"keep")
    assert one(collect_pipe(context, rank, 0)).status is Status.UNSUPPORTED
    assert (tmp_path / "pipe_3.pipe").read_bytes() == b"keep"


def test_the_pipe_makes_the_rank_write_a_new_dump(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    pipe, dump = tmp_path / "pipe_3.pipe", tmp_path / "dump_3"
    os.mkfifo(pipe)
    dump.write_bytes(b"an earlier dump")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def monitor() -> None:
        while True:
            try:
                if os.read(reader, 1):
                    dump.write_bytes(b"a fresh dump")
                    return
            except BlockingIOError:
                pass
            time.sleep(0.01)

    thread = threading.Thread(target=monitor)
    thread.start()
    environ = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": f"{tmp_path}/pipe_", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dump_"}
    rank = target(proc, **environ)
    (proc.root / f"{PID}/fd/6").symlink_to(pipe)
    run = one(collect_pipe(context, rank, 0))
    thread.join()
    os.close(reader)
    assert (run.status, run.path) == (Status.OK, "ranks/3/fr/pipe.dump_3")
    assert member(context, run) == b"a fresh dump"


def test_a_pipe_that_is_read_without_a_dump_following(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe_3.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    hasty = replace(context, settings=replace(context.settings, dump_wait_s=0.3))
    rank = target(proc, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/pipe_")
    (proc.root / f"{PID}/fd/6").symlink_to(pipe)
    run = one(collect_pipe(hasty, rank, 0))
    assert run.status is Status.TIMEOUT
    assert os.read(reader, 128) == b""
    os.close(reader)


def test_the_pipe_can_be_left_alone(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe_3.pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    careful = replace(context, settings=replace(context.settings, use_pipe=False))
    run = one(collect_pipe(careful, target(proc, TORCH_NCCL_DEBUG_INFO_PIPE_FILE=f"{tmp_path}/pipe_"), 0))
    assert run.status is Status.SKIPPED_BY_POLICY
    assert os.read(reader, 1) == b""
    os.close(reader)


def test_a_dump_of_the_watchdog_is_taken_under_its_own_name(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (tmp_path / "dump_3").write_bytes(b"dump")
    run = one(collect_files(context, target(proc, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/dump_"), 0))
    assert (run.status, run.path) == (Status.OK, "ranks/3/fr/dump_3")
    assert run.captured_ns == (tmp_path / "dump_3").stat().st_mtime_ns
    assert member(context, run) == b"dump"


def test_the_default_place_of_dumps_is_in_the_users_cache(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    dump = tmp_path / "home/.cache/torch/comm_lib_trace_rank_3"
    dump.parent.mkdir(parents=True)
    dump.write_bytes(b"dump")
    assert one(collect_files(context, target(proc, HOME=f"{tmp_path}/home"), 0)).status is Status.OK


def test_a_dump_of_an_earlier_run_is_not_taken(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (tmp_path / "dump_3").write_bytes(b"dump")
    os.utime(tmp_path / "dump_3", (1000, 1000))
    rank = replace(target(proc, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/dump_"), since_ns=2000 * 10**9)
    run = one(collect_files(context, rank, 0))
    assert (run.status, run.path) == (Status.NOT_FOUND, None)
    assert "stale" in str(run.reason)


def test_a_dump_that_belongs_to_somebody_else_is_not_taken(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    (tmp_path / "dump_3").write_bytes(b"dump")
    rank = replace(target(proc, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/dump_"), uid=os.getuid() + 4242)
    run = one(collect_files(context, rank, 0))
    assert run.status is Status.NOT_FOUND
    assert "belongs to uid" in str(run.reason)


def test_a_dead_rank_may_have_left_a_dump(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    witness = target(proc, TORCH_FR_DUMP_TEMP_FILE=f"{tmp_path}/dump_")
    (tmp_path / "dump_2").write_bytes(b"dump")
    dead = Target(2, "absent", None, PID, 3, os.getuid(), witness.environ)
    assert one(collect_files(context, dead, 0)).path == "ranks/2/fr/dump_2"
    assert one(collect_live(context, dead, 0)).status is Status.NOT_FOUND
    assert one(collect_pipe(context, dead, 0)).status is Status.NOT_FOUND


def test_where_was_looked_for_dumps_is_said(context: Context, proc: FakeProc) -> None:
    run = one(collect_files(context, target(proc, TORCH_FR_DUMP_TEMP_FILE="/no/such/dump_"), 0))
    assert run.status is Status.NOT_FOUND
    assert "/no/such/dump_<rank>, /tmp/nccl_trace_rank_<rank>" in str(run.reason)
