from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.unit.ingest.reading import read, sample

TORCH = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"


def events(text: str, path: str = "rank4.log", **known: object) -> list[tuple[int | None, int, str, str | None]]:
    """What was understood, without the frames of tracebacks."""
    rows = read(text.encode(), path, **known).rows("log_events")
    return [(row["rank"], row["locator"], row["kind"], row["subject"]) for row in rows if row["kind"] != "traceback"]


def test_a_killed_rank_and_the_victim_that_torchrun_ended() -> None:
    rows = sample("training_log/kill.log").rows("log_events")
    assert [(row["rank"], row["kind"], row["subject"]) for row in rows if row["kind"] != "traceback"] == [
        (0, "exception", "RuntimeError"),
        (0, "peer_closed", "127.0.0.1:9886"),
        (None, "signal_sent", "pid=17266 SIGTERM"),
        (None, "process_exit", "exitcode=-9 pid=17267 local_rank=1"),
        (None, "exception", TORCH),
        (0, "process_exit", "exitcode=-15 pid=17266 time=2026-11-20_14:13:22"),
        (1, "process_exit", "exitcode=-9 pid=17267 first time=2026-11-20_14:13:22"),
    ]


def test_a_size_mismatch() -> None:
    result = sample("training_log/size.log")
    row = result.row("log_events", kind="size_mismatch")
    assert (row["subject"], row["locator"], row["rank"]) == ("1000 vs 700", 2, None)


def test_a_timeout_of_gloo() -> None:
    assert sample("training_log/timeout.log").row("log_events", kind="transfer_timeout")["subject"] == "recv after 8000 ms"


def test_an_exception_of_a_data_worker_is_read_through_and_no_lost_peer_is_made_of_its_queue() -> None:
    rows = sample("training_log/worker.log").rows("log_events")
    found = [(row["rank"], row["subject"]) for row in rows if row["kind"] == "exception"]
    assert found == [(0, "ValueError"), (0, "ValueError"), (1, "ConnectionResetError"), (None, TORCH)]
    assert not [row for row in rows if row["kind"] == "peer_closed"]


def test_nccl_watchdog_lines_and_the_end_of_the_job() -> None:
    rows = sample("training_log/handmade_watchdog_rank1.log").rows("log_events")
    assert [(row["rank"], row["kind"], row["subject"]) for row in rows] == [
        (1, "watchdog_timeout", "ALLREDUCE seq=1580"),
        (1, "watchdog_progress", "pg=0(default_pg) enqueued=1582 completed=1579"),
        (None, "job_cancelled", "job=4711 DUE TO TIME LIMIT"),
    ]


def test_tracebacks_of_ranks_that_write_at_once() -> None:
    text = (
        "[rank1]: Traceback (most recent call last):\n[rank3]: Traceback (most recent call last):\n"
        '[rank1]:   File "x.py", line 1, in f\nstep 5\n[rank3]:   File "x.py", line 2, in f\n'
        "[rank3]: KeyError: 'loss'\n[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n"
    )
    assert events(text, rank=0) == [(3, 6, "exception", "KeyError"), (1, 7, "exception", "torch.OutOfMemoryError")]


@pytest.mark.parametrize(
    ("front", "below"),
    [
        ("2024-01-23 17:45:02,101: rank6[54416][MainThread]: ERROR: fit.loop: ", ""),
        ("[rank6]: ERROR fit.loop: step failed: ", "[rank6]: "),
    ],
)
def test_a_traceback_that_was_logged_behind_a_message(front: str, below: str) -> None:
    lines = [
        '  File "t.py", line 9, in <module>',
        "    main()",
        '  File "u.py", line 3, in main',
        "    open(x)",
        "ValueError: bad",
    ]
    text = front + "Traceback (most recent call last):\n" + "".join(f"{below}{line}\n" for line in lines)
    found = {row["kind"]: row for row in read(text.encode(), "job.log").rows("log_events")}
    assert (found["exception"]["rank"], found["exception"]["subject"]) == (6, "ValueError")
    assert found["traceback"]["text"].splitlines()[-1] == 'File "u.py", line 3, in main'


def test_a_bare_frame_below_another_ones_traceback_stays_with_its_own() -> None:
    text = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
        '[rank1]: ERROR fit: Traceback (most recent call last):\n  File "b.py", line 2, in main\nKeyError: 1\n'
    )
    raised = [row for row in read(text.encode(), "job.log").rows("log_events") if row["kind"] == "exception"]
    assert [(row["rank"], row["subject"]) for row in raised] == [(None, "KeyError")]


def test_frames_of_a_traceback_are_kept_innermost_last_and_bounded() -> None:
    frames = [f'  File "/srv/job/deep.py", line {line}, in descend' for line in range(1, 201)]
    lines = ["Traceback (most recent call last):", *(line for each in frames for line in (each, "    descend()")), "E: x"]
    text = "\n".join(f"[rank3]: {line}" for line in lines)
    (row,) = (row for row in read(text.encode(), "job.log").rows("log_events") if row["kind"] == "traceback")
    assert (row["rank"], row["subject"], row["locator"]) == (3, "E", 402)
    assert row["text"].splitlines() == [each.strip() for each in frames[-64:]]


def test_a_line_that_looks_like_an_exception_needs_a_traceback() -> None:
    assert events("Done\nValueError: x\nEpoch: 3\n") == [(None, 2, "bare_error", "ValueError")]


@pytest.mark.parametrize(
    ("line", "kind", "subject"),
    [
        ("NET/Socket : Connection closed by remote peer gpu-002<45123>", "peer_closed", "gpu-002"),
        (
            "NET/Socket : Connection closed by remote peer 172-20-44-1.bert-worker-3.nlp.svc<45123>",
            "peer_closed",
            "172-20-44-1.bert-worker-3.nlp.svc",
        ),
        ("Connection closed by peer [10.0.0.2]:3991", "peer_closed", "10.0.0.2:3991"),
        ("[c10d] TCPStore recvVector failed: Broken pipe", "peer_closed", None),
        ("Process group watchdog got stuck for 480 seconds without making progress", "watchdog_stuck", "480 s"),
        ("srun: error: gpu-003: task 12: Killed", "process_exit", "task=12 host=gpu-003 Killed"),
        ("run.sh: line 5: 4242 Killed                  python train.py", "process_exit", "pid=4242 Killed"),
        ("Killed", "process_exit", "Killed"),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ",
            "worker_exit",
            "pid=77 is killed by signal: Killed",
        ),
        ("Fatal Python error: Segmentation fault", "fatal_error", "Segmentation fault"),
        ("Closing process 293866 via signal SIGTERM", "signal_sent", "pid=293866 SIGTERM"),
    ],
)
def test_single_lines(line: str, kind: str, subject: str | None) -> None:
    assert [each for each in events(line + "\n", rank=4) if each[2] != "bare_error"] == [(4, 1, kind, subject)]


def test_ranks_of_groups_and_hosts_are_not_taken_for_global_ones() -> None:
    line = (
        "[E ProcessGroupNCCL.cpp:563] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=8, OpType=GATHER)"
    )
    assert events(line, rank=6) == [(6, 1, "watchdog_timeout", "GATHER seq=8")]


def test_escapes_are_removed_and_progress_bars_split() -> None:
    text = "\x1b[31mEpoch 0:  1%\rEpoch 0:  2%\rConnection closed by peer [10.0.0.2]:3991\x1b[0m\n"
    (row,) = read(text.encode(), "out.log").rows("log_events")
    assert (row["locator"], row["text"]) == (1, "Connection closed by peer [10.0.0.2]:3991")


def test_times_need_a_zone() -> None:
    stamps = ("2026-03-21T02:07:08.5+00:00", "2026-03-21 02:07:08")
    text = "\n".join(f"{stamp} Connection closed by peer [10.0.0.2]:1" for stamp in stamps)
    rows = read(text.encode(), "out.log").rows("log_events")
    assert [row["time_ns"] for row in rows] == [1774058828500000000, None]


def test_a_line_of_any_length_costs_no_memory_and_keeps_the_numbering() -> None:
    text = b"x" * 3_000_000 + b"\nConnection closed by peer [10.0.0.2]:1\n"
    (row,) = read(text, "out.log").rows("log_events")
    assert row["locator"] == 2


def test_source_code_and_documents_are_no_logs() -> None:
    from forensics.ingest import choose

    assert choose(b"import os\n", "logs/train.py") is None
    assert choose(b"hello\n", "README.txt") is None
    assert choose(b"\x00\x01", "train.log") is None


@pytest.mark.parametrize(
    ("status", "enqueued", "started", "completed", "timed_out"),
    [
        (
            " failure detected by watchdog at work sequence id: 5 PG status: last enqueued work: 7, last completed work: 4",
            7,
            None,
            4,
            5,
        ),
        (
            "Exception (either an error or timeout) detected by watchdog at work: 5, last enqueued NCCL work: 7, last "
            "completed NCCL work: 4.",
            7,
            None,
            4,
            5,
        ),
        ("Timeout at NCCL work: 5, last enqueued NCCL work: 7, last completed NCCL work: 4.", 7, None, 4, 5),
        ("PG status: last enqueued work: 7, last started work: 6 (_ALLGATHER_BASE), last completed work: -1", 7, 6, -1, None),
        (
            "Received a dump signal due to a collective timeout from  rank 2 and we will try our best to dump the debug info. "
            "Last enqueued NCCL work: 7, last completed NCCL work: 7.This is most likely caused by",
            7,
            None,
            7,
            None,
        ),
    ],
)
@pytest.mark.parametrize("front", ["[PG ID 2 PG GUID 43(TENSOR (2)) Rank 1]", "[PG 43 Rank 1]", "[PG ID 2 PG GUID 43 Rank 1]"])
def test_positions_in_the_words_of_all_versions(
    front: str, status: str, enqueued: int, started: int | None, completed: int, timed_out: int | None
) -> None:
    text = f"[rank9]:[E1121 19:03:29.123456789 ProcessGroupNCCL.cpp:2241] {front} {status}\n"
    (row,) = read(text.encode(), "out.log").rows("log_positions")
    assert (row["rank"], row["group_rank"], str(row["communicator"])[:2]) == (9, 1, "43")
    assert (row["enqueued"], row["started"], row["completed"], row["timed_out"]) == (enqueued, started, completed, timed_out)


def test_the_work_that_the_watchdog_gave_up_on() -> None:
    row = sample("training_log/handmade_watchdog_rank1.log").row("log_positions")
    assert (row["kind"], row["count"], row["timed_out"], row["is_p2p"]) == ("all_reduce", 466119168, 1580, False)
    assert (row["communicator"], row["rank"], row["locator"]) == ("0:default_pg", 1, 2)


def test_a_rank_within_a_group_is_global_in_the_default_group_only() -> None:
    status = "last enqueued NCCL work: 7, last completed NCCL work: 7."
    text = f"[PG ID 0 PG GUID 0(default_pg) Rank 3] {status}\n[PG ID 1 PG GUID 5(TENSOR) Rank 1] {status}\n"
    rows = read(text.encode(), "slurm-1.out").rows("log_positions")
    assert [(row["rank"], row["group_rank"]) for row in rows] == [(3, 3), (None, 1)]


def test_labels_of_launchers_become_ranks_where_the_file_says_so() -> None:
    status = "[PG ID 1 PG GUID 5(TENSOR) Rank 1] last enqueued NCCL work: 7, last completed NCCL work: 7."
    tee = f"[default3]:[rank11]: RuntimeError\n[default3]:{status}\n[default2]:Fatal Python error: Aborted\n"
    result = read(tee.encode(), "node1.log")
    assert [row["rank"] for row in result.rows("log_positions")] == [11]
    assert [(row["rank"], row["kind"]) for row in result.rows("log_events")] == [
        (11, "exception"),
        (11, "watchdog_progress"),
        (None, "fatal_error"),
        (None, "several_nodes"),
    ]
    tasks = f"0: step\n1: {status}\n1: Fatal Python error: Aborted\n"
    assert [row["rank"] for row in read(tasks.encode(), "srun.log").rows("log_events")] == [1, 1]
    nodes = "0: [rank0]: x\n1: [rank8]: x\n1: [rank9]: x\n1: Fatal Python error: Aborted\n"
    assert [row["rank"] for row in read(nodes.encode(), "srun.log").rows("log_events")] == [None, None]


def test_words_of_the_monitors() -> None:
    text = (
        "[rank1]:[E ProcessGroupNCCL.cpp:1316] [PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated\n"
        "[rank1]:[E ProcessGroupNCCL.cpp:1900] [PG 0 Rank 1] Could not acquire GIL within 300 ms on exit, possible GIL\n"
        "[rank2]:[E ProcessGroupNCCL.cpp:1987] [PG 0 Rank 2] Received a dump signal due to a collective "
        "timeout from this local rank\n"
        "\t   - [3] finished collective #41, but didn't join collective #42 (count from 1)\n"
        "wait timeout after 600000ms, keys: /default_pg/0//cuda:0//0\n"
    )
    rows = read(text.encode(), "out.log").rows("log_events")
    assert [(row["rank"], row["kind"], row["subject"]) for row in rows] == [
        (1, "watchdog_stuck", None),
        (1, "gil_not_free", "300 ms"),
        (2, "dump_signal", "this local rank"),
        (None, "desync_report", "ranks=3 finished 41"),
        (None, "store_timeout", "/default_pg/0//cuda:0//0 after 600000 ms"),
    ]


@pytest.mark.parametrize(
    ("line", "kind", "subject"),
    [
        (
            "slurmstepd: error: *** STEP 4711.0 ON gpu-001 CANCELLED AT 2026-03-21T02:20:00 DUE to SIGNAL Terminated ***",
            "job_cancelled",
            "job=4711.0 DUE to SIGNAL Terminated",
        ),
        ("slurmstepd: error: *** JOB 4711 ON gpu-001 CANCELLED AT 2026-03-21T02:20:00 ***", "job_cancelled", "job=4711"),
        (
            "slurmstepd: error: *** JOB 4711 ON gpu-001 CANCELLED AT 2026-03-21T02:20:00 DUE TO NODE FAILURE, SEE "
            "SLURMCTLD LOG ***",
            "job_cancelled",
            "job=4711 DUE TO NODE FAILURE",
        ),
        ("srun: Job step aborted: Waiting up to 32 seconds for job step to finish.", "job_cancelled", None),
        ("W0321 Received 15 death signal, shutting down workers", "job_cancelled", "launcher got signal 15"),
        ("srun: error: Node failure on gpu-017", "node_failed", "gpu-017"),
        (
            "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been OOM Killed.",
            "oom_kill",
            "StepId=4711.0",
        ),
    ],
)
def test_what_ended_the_job(line: str, kind: str, subject: str | None) -> None:
    rows = read((line + "\n").encode(), "slurm-1.out").rows("log_events")
    assert (kind, subject) in [(row["kind"], row["subject"]) for row in rows]


def test_times_to_the_nanosecond_behind_a_label() -> None:
    stamp = "2026-03-21T02:07:08.500000001Z"
    text = f"[default0]:{stamp} Connection closed by peer [::1]:1\n{stamp} stdout F Connection closed by peer [::1]:1\n"
    rows = read(text.encode(), "out.log").rows("log_events")
    assert [row["time_ns"] for row in rows] == [1774058828500000001] * 2


@pytest.mark.parametrize("name", ["paste.txt", "slack message", "job (2).TXT", "job.log"])
def test_a_pasted_log_is_read_whatever_it_is_called(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("all well\n" * 2000 + "Worker proc VllmWorker-6 died unexpectedly, shutting down executor.\n")
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT kind, status FROM sources").fetchall() == [("training_log", "ok")]


def test_text_in_which_nothing_of_a_log_stands_is_none(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text("[rank0]: RuntimeError: lost\n")
    (tmp_path / "notes.txt").write_text("torch==2.13.0\nthe lamps are green\n")
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT status, reason FROM sources WHERE path LIKE '%notes.txt'").fetchall() == [
            ("ignored", "text of no known form")
        ]
