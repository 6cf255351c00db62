"""Tasks of Slurm in whose control group a process was killed for its memory: ranks only where nothing else fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Confidence
from tests.recordings.verdicts import named, unnamed, verdict_of

LOST = "[rank{0}]: RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.4.0.9]:4{0}117\n"
GOES_ON = "".join(f"step {step} loss 2.{900 - step}\n" for step in range(10, 400, 10))
STEPS = "step 300 loss 2.4\nstep 310 loss 2.4\n"
GROUP = "/slurm/uid_1001/job_{job}/step_0/task_{task}"
KERNEL = (
    "[918233.120441] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0\n"
    "[918233.121330] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0-1,"
    "oom_memcg={group},task_memcg={group},task=python,pid=48213,uid=1001\n"
    "[918233.121377] Memory cgroup out of memory: Killed process 48213 (python) total-vm:188743680kB, anon-rss:133959168kB\n"
)
JOURNAL = (
    "Nov 30 06:44:18 ash-2 systemd-oomd[1188]: Killed /system.slice/slurmstepd.scope/job_{job}/step_0/user/task_{task} due to "
    "memory pressure for /system.slice/slurmstepd.scope being 71.22% > 60.00% for > 30s with reclaim activity\n"
)


def lost(*ranks: int) -> str:
    return STEPS + "".join(LOST.format(rank) for rank in ranks)


def kernel(task: int, job: int = 771) -> str:
    return KERNEL.format(group=GROUP.format(job=job, task=task))


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "files",
    [
        {"dmesg.log": kernel(3), "slurm-771.out": lost(0, 1, 2, 4, 5)},
        {"journal.txt": JOURNAL.format(job=771, task=3), "slurm-771.out": lost(0, 1, 2, 4, 5)},
        {"dmesg.log": kernel(3), "slurm-771.out": lost(0, 1)},  # the name of the output says that it is of this job
        {"dmesg.log": kernel(3), "train.log": lost(0, 1, 2, 4, 5)},  # it alone lost nobody
        {"dmesg.log": kernel(3) + kernel(3), "slurm-771.out": lost(0, 1, 2, 4, 5)},
        {"dmesg.log": kernel(3) + kernel(1, job=9), "slurm-771.out": lost(0, 1, 2, 4, 5)},  # the other one is of another job
        {"ticket.txt": f"$ journalctl -u systemd-oomd\n{JOURNAL.format(job=771, task=3)}$ tail job.log\n{lost(0, 1, 2, 4, 5)}"},
    ],
)
def test_the_task_that_was_killed_is_its_rank(tmp_path: Path, files: dict[str, str]) -> None:
    verdict = verdict_of(write(tmp_path, files))
    assert named(verdict) == {3}
    assert verdict.suspects[0].confidence is not Confidence.CONFIRMED


@pytest.mark.first(3)
@pytest.mark.parametrize(
    "files",
    [
        {"dmesg.log": kernel(0), "slurm-771.out": lost(1, 2, 3)},  # the first task of a node may be a launcher
        {"dmesg.log": kernel(1) + kernel(3), "slurm-771.out": lost(0, 2, 4)},  # of two, neither is known to be the first
        {"dmesg.log": kernel(3), "train.log": lost(0, 1, 2, 3, 4)},  # of another job: this rank lost a peer as well
        {"dmesg.log": kernel(3, job=9), "slurm-771.out": lost(0, 1, 2, 4, 5)},  # of another job, whoever is missing
        {"dmesg.log": kernel(3), "train.log": lost(0, 1)},  # nothing shows that it is of this job
        {"dmesg.log": kernel(3), "slurm-771.out": f"nnodes: 2\n{lost(0, 1, 2, 4, 5)}"},  # numbers within a node
        {"dmesg.log": kernel(3), "slurm-771.out": f"torchrun --nproc_per_node=4 train.py\n{lost(0, 1, 2, 4, 5)}"},
        {"dmesg.log": kernel(9), "slurm-771.out": f"world_size=8\n{lost(0, 1, 2, 4, 5)}"},
        {"dmesg.log": kernel(3), "slurm-771.out": GOES_ON},  # a helper of the rank
        {"dmesg.log": kernel(3), "slurm-771.out": f"{GOES_ON}Training completed.\n"},
        {"dmesg.log": kernel(3), "slurm-771.out": f"{STEPS}srun: error: ash-2: task 3: Out Of Memory\n{GOES_ON}"},
        {"dmesg.log": kernel(3), "slurm-771.out": lost(0, 1, 3, 4)},  # it lives to tell
    ],
)
def test_numbers_that_may_be_of_something_else_name_nobody(tmp_path: Path, files: dict[str, str]) -> None:
    unnamed(tmp_path, files)


def test_who_was_killed_is_where_to_begin_where_the_number_shows_no_rank(tmp_path: Path) -> None:
    files = {"dmesg.log": kernel(0), "slurm-771.out": lost(1, 2, 3)}
    lead = unnamed(tmp_path, files).leads[0]
    assert lead.startswith("which rank ran as task 0 of its node in job 771 of Slurm: a process of it was killed")


def test_a_task_of_another_job_is_no_lead(tmp_path: Path) -> None:
    verdict = unnamed(tmp_path, {"dmesg.log": kernel(3, job=9), "slurm-771.out": STEPS})
    assert not any("in job 9 of Slurm" in lead for lead in verdict.leads)


UID = "4f0c2a11-77aa-4b1e-9c55-2c9de1b7a90{0}"
POD = (
    "- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: trainer-{0}\n    uid: {uid}\n  spec:\n    containers:\n    - env:\n"
    '      - name: RANK\n        value: "{0}"\n      name: main\n      resources:\n        limits:\n'
    '          nvidia.com/gpu: "1"\n  status:\n    phase: Running\n'
)


@pytest.mark.parametrize(
    ("group", "log", "expected"),
    [
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{0}.slice/cri-containerd-9e01.scope",
            lost(0, 1, 3),
            {2},
        ),
        ("/kubepods/burstable/pod{1}/9e01", lost(0, 1, 3), {2}),
        ("/kubepods/burstable/podffffffff-77aa-4b1e-9c55-2c9de1b7a902/9e01", lost(0, 1, 3), set()),  # a pod of somebody else
        ("/kubepods/burstable/pod{1}/9e01", GOES_ON, set()),  # a helper of the rank
        ("/kubepods/burstable/pod{1}/9e01", lost(0, 1, 2), set()),  # it lives to tell
    ],
)
def test_the_pod_in_whose_control_group_a_process_was_killed(tmp_path: Path, group: str, log: str, expected: set[int]) -> None:
    uid = UID.format(2)
    pods = "apiVersion: v1\nitems:\n" + "".join(POD.format(rank, uid=UID.format(rank)) for rank in range(4)) + "kind: List\n"
    killed = KERNEL.format(group=group.format(uid.replace("-", "_"), uid))
    files = {"pods.yaml": pods, "dmesg.log": killed, "job.log": log}
    assert named(verdict_of(write(tmp_path, files))) == expected


@pytest.mark.parametrize(
    "killed",
    [
        "/user.slice/user-1000.slice/user@1000.service/app.slice/app-org.chromium.Chromium-2211.scope",
        "/system.slice/docker-9f2.scope",
    ],
)
def test_other_programs_that_were_ended_for_memory_are_no_tasks(tmp_path: Path, killed: str) -> None:
    line = JOURNAL.replace("/system.slice/slurmstepd.scope/job_{job}/step_0/user/task_{task}", killed)
    verdict = unnamed(tmp_path, {"journal.txt": line, "train.log": lost(0, 1, 2, 4, 5)})
    assert not any("task" in lead for lead in verdict.leads)
