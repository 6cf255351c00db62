from __future__ import annotations

import pytest

from forensics.bundle.origin import bundle_origin, origin


@pytest.mark.parametrize(
    ("path", "rank", "method"),
    [
        ("nccl_trace_rank_3", 3, "path"),
        ("comm_lib_trace_rank_12", 12, "path"),
        ("_dump_15", 15, "path"),
        ("gpu-017_rank3.json", 3, "path"),
        ("rank2.fr.0.json", 2, "path"),
        ("rank-7.log.gz", 7, "path"),
        ("stack.rank=4.txt", 4, "path"),
        ("ranks/6/fr/0.json", 6, "path"),
        ("node3/rank_5/stack_1.json", 5, "path"),
        ("rank_5/_dump_5", 5, "path"),
        ("rank5.zip/stacks/0.json", 5, "path"),
        ("all.tar/gpu-017_rank5.tar.gz/stacks/0.json", 5, "path"),
        ("dump.3", 3, "guessed"),
        ("7.json", 7, "guessed"),
        ("fr_11.pickle", 11, "guessed"),
        ("fr_r3.json", 3, "guessed"),
        ("job-77_3.out", 3, "guessed"),
        ("slurm-77_3.out", None, None),
        ("r3.log", 3, "guessed"),
        ("st/r3.1.txt", 3, "guessed"),
        ("user_logs/std_log_process_05.txt", 5, "guessed"),
        ("log_process_5.txt", None, None),
        ("round-2.txt", None, None),
        ("lr3.log", None, None),
        ("rank3.json#2", 3, "path"),
        ("rank 3 on gx-1", 3, "guessed"),
        ("py-spy rank 3.txt", 3, "guessed"),
        ("rank 3/stack.txt", 3, "path"),
        ("local rank 3.log", None, None),
        ("hang of rank 3/gx-1.txt", 1, "guessed"),
        ("global_rank_8_local_rank_0.json", 8, "path"),
        ("local_rank_2.log", None, None),
        ("log_globalrank-11_localrank-3.txt", 11, "path"),
        ("log_localrank-3.txt", None, None),
        ("noderank-3.txt", None, None),
        ("tp_rank3.json", None, None),
        ("hang_of_rank2/_dump_1", 1, "path"),
        ("hang_of_rank2_tuesday/fr.json", None, None),
        ("stack_pid_41.json", None, None),
        ("step_100.log", None, None),
        ("nodes/gpu-017/ib/counters-1.json", None, None),
        ("log_20250101.txt", None, None),
        ("train.log", None, None),
        ("", None, None),
    ],
)
def test_the_rank_a_path_names(path: str, rank: int | None, method: str | None) -> None:
    found = origin(path)
    assert (found.rank, found.rank_method) == (rank, method)


@pytest.mark.parametrize(
    ("path", "sample"),
    [
        ("rank2.fr.0.json", 0),
        ("rank2.fr.1.json", 1),
        ("rank2_sample3.json", 3),
        ("r2_1.txt", 1),
        ("rank_2/stack_1.json", 1),
        ("rank_2/1.json", 1),
        ("rank2.json", None),
        ("nccl_trace_rank_3", None),
        ("_dump_3", None),
        ("fr.7", None),
        ("rank2_20250101.json", None),
    ],
)
def test_the_sample_is_the_number_that_is_left_over(path: str, sample: int | None) -> None:
    assert origin(path).sample == sample


@pytest.mark.parametrize("path", ["upload-2.txt", "file3.log", "Attachment_10.txt", "a/paste-1", "split.4.gz"])
def test_the_order_of_attachments_is_no_rank(path: str) -> None:
    assert origin(path).rank is None


@pytest.mark.parametrize(
    ("path", "is_child", "pid"),
    [
        ("rank0.child5771.0.json", True, 5771),
        ("rank0_worker_1.json", True, None),
        ("rank0_dataloader.json", True, None),
        ("trainjob-worker-3_rank3.json", None, None),
        ("rank0_pid41.json", None, 41),
        ("dumps/gpu-017-51630.pkl", None, 51630),
        ("gpu-51630.pkl", None, None),
        ("step100-51630.pkl", None, None),
    ],
)
def test_children(path: str, is_child: bool | None, pid: int | None) -> None:
    found = origin(path)
    assert (found.is_child, found.pid) == (is_child, pid)


@pytest.mark.parametrize(
    ("path", "host"),
    [
        ("gpu-017_rank3.json", "gpu-017"),
        ("ip-10-0-0-1/rank3.json", "ip-10-0-0-1"),
        ("node3/rank_5/0.json", "node3"),
        ("dumps/gpu-017-51630.pkl", "gpu-017"),
        ("gpu3/rank3.json", None),
        ("nccl_trace_rank_3", None),
        ("step100_rank3.json", None),
    ],
)
def test_hosts(path: str, host: str | None) -> None:
    assert origin(path).host == host


def test_the_layout_of_a_bundle_needs_no_guess() -> None:
    assert bundle_origin("nodes/gpu-1/nccl/ras-0.txt").rank is None
    assert bundle_origin("job/rank_3.txt").rank is None
    assert bundle_origin("ranks/12/proc/2.json").rank == 12
    assert bundle_origin("ranks/x/proc/2.json").rank is None
