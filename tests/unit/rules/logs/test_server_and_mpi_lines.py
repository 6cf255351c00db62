"""Lines of servers, of UCX and Open MPI, and of Ray's processes: who ended is named where the line proves whose it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.verdicts import named, pasted
from tests.unit.ingest.reading import read

LOADED = "".join(
    f"(Worker_TP{rank} pid=7735{rank}) INFO 10-22 09:33:01 [runner.py:26] Model loading took 4 GiB\n" for rank in range(4)
)


def raised(rank: int) -> str:
    """A traceback of one worker of vLLM."""
    front = f"(Worker_TP{rank} pid=7735{rank}) ERROR 10-22 09:44:01 [multiproc_executor.py:671] "
    said = (
        "WorkerProc hit an exception.",
        "Traceback (most recent call last):",
        '  File "/v/w.py", line 6, in worker_busy_loop',
    )
    return "".join(f"{front}{line}\n" for line in (*said, "torch.AcceleratorError: CUDA error: an illegal memory access"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LOADED + raised(3), {3}),
        (raised(3), set()),
        (LOADED + raised(1) + raised(3), set()),
        (LOADED + raised(3).replace("WorkerProc hit an exception.", "retrying"), set()),
    ],
    ids=["one of four", "cut to one", "two of them", "a caught one"],
)
@pytest.mark.parametrize("front", ["(Worker_TP{} pid=7735{}) ", "(VllmWorker rank={} pid=7735{}) "])
def test_a_worker_of_a_server_that_hit_an_exception(tmp_path: Path, text: str, expected: set[int], front: str) -> None:
    for rank in range(4):
        text = text.replace(f"(Worker_TP{rank} pid=7735{rank}) ", front.format(rank, rank))
    assert named(pasted(tmp_path, text)) == expected


@pytest.mark.parametrize(
    "line",
    [
        '(APIServer pid=9) INFO:     10.0.0.7:41000 - "POST /v1/completions HTTP/1.1" 200 OK',
        "INFO 10-22 09:33:12 [loggers.py:127] Engine 000: Avg generation throughput: 55.0 tokens/s, Running: 3 reqs",
        "[2025-03-09 00:50:16 TP0] Decode batch. #running-req: 3, gen throughput (token/s): 80.1, #queue-req: 0",
    ],
)
def test_a_server_that_answers_is_evidence(tmp_path: Path, line: str) -> None:
    (tmp_path / "pasted.txt").write_text(f"starting\n{line}\n{line}\n")
    connection = open_case([tmp_path / "pasted.txt"])
    assert connection.execute("SELECT kind, subject, locator FROM log_events").fetchall() == [("served", "2 answers", 3)]


@pytest.mark.parametrize(("ranks", "expected"), [((2,), {2}), ((1, 2), set())], ids=["one", "two together"])
def test_shards_of_a_server_that_a_signal_ended(tmp_path: Path, ranks: tuple[int, ...], expected: set[int]) -> None:
    front = "2024-05-01T01:17:{0}2.618817Z  {1} shard-manager: text_generation_launcher: "
    log = [front.format(rank, "INFO") + f"Waiting for shard to be ready... rank={rank}" for rank in range(4)]
    log += [front.format(5, "ERROR") + f"Shard process was signaled to shutdown with signal 9 rank={rank}" for rank in ranks]
    log += [front.format(5, "INFO") + "Shard terminated rank=0"]
    assert named(pasted(tmp_path, "\n".join(log))) == expected


@pytest.mark.parametrize(("ranks", "expected"), [((2,), {2}), ((2, 1), set())], ids=["one", "two alike"])
def test_the_traceback_of_a_shard_that_did_not_start(tmp_path: Path, ranks: tuple[int, ...], expected: set[int]) -> None:
    front = "2024-12-12T14:27:33.914690Z {0} {1}text_generation_launcher: "
    error, info = front.format("ERROR", "shard-manager: "), front.format("INFO", "shard-manager: ")
    text = "".join(f"{info}Starting shard rank={rank}\n" for rank in range(4))
    for rank in ranks:
        text += f"{error}Shard complete standard error output:\n\nTraceback (most recent call last):\n"
        text += '  File "/s/cli.py", line 7, in serve\n'
        text += f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB. rank={rank}\n"
    text += f"{front.format('ERROR', '')}Shard {ranks[0]} failed to start\n"
    text += "".join(f"{info}Terminating shard rank={rank}\n" for rank in range(4) if rank not in ranks)
    assert named(pasted(tmp_path, text)) == expected


STEPS = "[1,0]<stdout>:step 20 loss 3.1\n[1,1]<stdout>:step 20 loss 3.1\n"
CAUGHT = "[1,{0}]<stderr>:[node4:1954{0}:0:1954{0}] Caught signal 11 (Segmentation fault: address not mapped)\n"
OPAL = "[1,{0}]<stderr>:[node4:1954{0}] Signal: Segmentation fault (11)\n"
LOST = "[1,0]<stderr>:[1678886400.512345] [node4:19540:0] ib.c:139  UCX  ERROR Transport retry count exceeded on mlx5_0:1/IB\n"


@pytest.mark.parametrize("line", [CAUGHT, OPAL, CAUGHT.replace("node4", "01b962a216fb")])
def test_a_signal_that_no_peer_sends_ended_its_process(tmp_path: Path, line: str) -> None:
    assert named(pasted(tmp_path, STEPS + line.format(1) + LOST)) == {1}
    assert named(pasted(tmp_path, STEPS + line.format(1) + line.format(0))) == set()


def test_processes_of_lines_without_a_rank_are_distinguished() -> None:
    text = "".join(CAUGHT.format(rank).partition(":")[2] for rank in range(2))
    found = read(text.encode(), "job.log").rows("log_events")
    assert [(row["host"], row["rank"], row["subject"]) for row in found] == [("node4", None, "SIGSEGV")] * 2


def test_what_all_processes_say_of_a_configuration_ends_nobody(tmp_path: Path) -> None:
    line = (
        "[1667117403.755480] [luna:17248{0}:0]     ucc_context.c:240  UCC  ERROR required TL nccl is not part of the context\n"
    )
    assert named(pasted(tmp_path, "".join(line.format(rank) for rank in range(3)))) == set()


def test_a_cuda_error_that_ucc_reports_is_of_its_process() -> None:
    line = "[1678886400.512345] [node-3:56373:0] mc_cuda.c:44   cuda mc ERROR cuda failed with ret:2(out of memory)\n"
    (row,) = read(line.encode(), "job.log").rows("log_events")
    assert (row["kind"], row["subject"], row["host"]) == ("cuda_failure", "2(out of memory)", "node-3")


@pytest.mark.parametrize(
    "said", ["distributed init (rank {0}): env://", "initializing distributed: GLOBAL_RANK: {0}, MEMBER: 1/4"]
)
def test_processes_of_ray_say_their_rank_behind_the_label(tmp_path: Path, said: str) -> None:
    front = "(RayTrainWorker pid=91{0}, ip=10.0.0.{0}) "
    log = [front.format(rank) + said.format(rank) for rank in range(4)]
    log += [
        front.format(2) + line
        for line in ("Traceback (most recent call last):", '  File "t.py", line 3, in loop', "KeyError: 'x'")
    ]
    log += [front.format(0) + "RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.2]:21658"]
    assert named(pasted(tmp_path, "\n".join(log))) == {2}


def test_dates_with_the_name_of_the_month_stand_in_front_of_labels(tmp_path: Path) -> None:
    log = ["world_size=4", *(f"17-Jan-23 10:01:11 [Worker:{rank}] INFO step 10 loss 2.1" for rank in range(4))]
    log += [
        f"17-Jan-23 10:01:15 [Worker:2] ERROR {line}"
        for line in ("Traceback (most recent call last):", '  File "t.py", line 3, in <module>')
    ]
    log += ["17-Jan-23 10:01:15 [Worker:2] ERROR KeyError: 'x'"]
    log += ["17-Jan-23 10:02:15 [Worker:0] ERROR RuntimeError: [pair.cc:598] Connection closed by peer [10.0.0.9]:21658"]
    assert named(pasted(tmp_path, "\n".join(log))) == {2}


def test_numbers_of_rounds_beside_processes_that_say_who_they_are(tmp_path: Path) -> None:
    """`head_spy_1.txt` and `head_spy_2.txt` are two looks at one worker of vLLM, not ranks 1 and 2."""
    frames = {
        "head": "all_gather (vllm/distributed/device_communicators/pynccl.py:173)",
        "peer": "norm (vllm/_custom_ops.py:331)",
    }
    for at, (host, inner) in enumerate(frames.items()):
        for turn in (1, 2):
            text = f'Process 41{at}: VLLM::Worker_TP{at}\nPython v3.12.3\n\nThread 41{at} (active): "MainThread"\n    {inner}\n'
            loop = f"    worker_busy_loop (vllm/v1/executor/multiproc_executor.py:86{turn})\n"
            (tmp_path / f"{host}_spy_{turn}.txt").write_text(text + loop)
    connection = open_case([tmp_path])
    found = connection.execute("SELECT DISTINCT s.path[:4], t.rank FROM stacks t JOIN sources s USING (source_id) ORDER BY ALL")
    assert found.fetchall() == [("head", 0), ("peer", 1)]
