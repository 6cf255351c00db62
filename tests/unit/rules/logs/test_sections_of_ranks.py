"""What a launcher prints of each rank between rules, processes of several hosts in one log, tasks that the kernel blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted, verdict_of
from tests.unit.ingest.reading import read

SECTION = (
    "Global rank {0} (PID 54{0}) exited with code 1\n------Begin global rank {0} STDERR------\n"
    "{1}------End global rank {0} STDERR------\n"
)
RAISED = 'Traceback (most recent call last):\n  File "t.py", line 9, in <module>\n    main()\n{}\n'
OWN = RAISED.format("RuntimeError: shard 40211 is corrupt")
LOST = RAISED.format("torch.distributed.DistBackendError: NCCL error, remote process exited or there was a network error")
SPAWNED = "worker-{0}: [INFO] [launch.py:256:main] process {0}{1}01 spawned with command: ['python', '--local_rank={1}', 'x']\n"
STARTED = "worker-0: [INFO] [launch.py:151:main] nnodes=2, num_local_procs=2, node_rank=0\n"
MAPPING = "worker-0: [INFO] global_rank_mapping=defaultdict(<class 'list'>, {'worker-0': [0, 1], 'worker-1': [2, 3]})\n"
STARTS = "".join(SPAWNED.format(host, local) for host in (1, 2) for local in range(2)).replace("worker-2", "worker-0")
KILLED = "[88210.900231] Out of memory: Killed process {} (python) total-vm:310221004kB, anon-rss:254000000kB\n"
READY = "".join(f"Jun 14 03:00:0{rank} bm-7 fit[70{rank}1]: rank {rank}/4 pid 70{rank}1 ready\n" for rank in range(4))
STUCK = "Jun 14 03:07:11 bm-7 kernel: INFO: task python3:{} blocked for more than {} seconds.\n"


@pytest.mark.parametrize("order", [(6, 2), (2, 6)])
def test_the_rank_whose_section_has_an_error_of_its_own(tmp_path: Path, order: tuple[int, int]) -> None:
    sections = {6: SECTION.format(6, OWN), 2: SECTION.format(2, LOST)}
    assert named(pasted(tmp_path, "".join(sections[rank] for rank in order))) == {6}


def test_what_stands_behind_a_section_is_of_nobody() -> None:
    raised = read((SECTION.format(2, LOST) + OWN).encode(), "job.log").rows("log_events")
    assert [row["rank"] for row in raised if row["kind"] == "exception"] == [2, None]


def killed(folder: Path, text: str, dmesg: str) -> set[int]:
    (folder / "ds.log").write_text(text)
    (folder / dmesg).write_text(KILLED.format(1101))
    return named(verdict_of(folder))


def test_a_process_of_another_host_is_no_rank_of_the_node_that_states_its_number(tmp_path: Path) -> None:
    assert killed(tmp_path, STARTED + STARTS, "dmesg.txt") == set()


def test_a_process_of_another_host_is_the_rank_of_the_mapping(tmp_path: Path) -> None:
    assert killed(tmp_path, STARTED + MAPPING + STARTS, "dmesg_worker-1.txt") == {3}


def test_the_one_rank_that_the_kernel_blocks_is_where_to_begin(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, READY + STUCK.format(7011, 120) + STUCK.format(7011, 241))
    assert not named(verdict)
    assert "process 7011 of rank 1" in verdict.would_change[0] and "241 s" in verdict.would_change[0]


@pytest.mark.parametrize(
    "text",
    [
        READY + STUCK.format(7011, 120) + STUCK.format(7021, 120),
        READY + STUCK.format(9999, 120),
        READY + STUCK.format(7011, 120) + "".join(f"step {at}/90 loss 2.{at}\n" for at in range(4)),
    ],
)
def test_several_blocked_ones_others_and_those_that_went_on_are_no_lead(tmp_path: Path, text: str) -> None:
    assert not any("blocked" in each for each in pasted(tmp_path, text).would_change)


@pytest.mark.parametrize(
    "line",
    [
        "[pod/fit-worker-1/main] Segmentation fault (core dumped)",
        "1: /var/spool/job/slurm_script: line 9: 88121 Killed   torchrun t.py",
    ],
)
def test_what_a_shell_says_of_one_process_is_where_to_begin(tmp_path: Path, line: str) -> None:
    others = "".join(f"{rank // 8}: [rank{rank}]: step 3\n" for rank in range(16)) + "[pod/fit-worker-0/main] step 3\n"
    verdict = pasted(tmp_path, f"{others}{line}\n")
    assert not named(verdict)
    assert line in verdict.would_change[0]


def test_what_a_shell_says_of_several_is_no_lead(tmp_path: Path) -> None:
    text = "[pod/fit-worker-1/main] Killed\n[pod/fit-worker-0/main] Killed\n"
    assert not any("Killed" in each for each in pasted(tmp_path, text).would_change)
