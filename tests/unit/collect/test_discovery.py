from __future__ import annotations

import pytest

from forensics.collect.discovery import Discovery, discover, own_tree
from forensics.collect.spawned import given_ranks, guess_ranks, only_inherited, parents_of
from tests.unit.collect.fake_proc import FakeProc

OWN = 9000


def rank_env(rank: int, world: int = 2, port: int = 29500, **more: str | int) -> dict[str, str | int]:
    return {"RANK": rank, "WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, **more}


def add_job(proc: FakeProc, first_pid: int, world: int, launcher: int, port: int = 29500) -> None:
    proc.add(launcher, 1, start=50)
    for rank in range(world):
        proc.add(first_pid + rank, launcher, environ=rank_env(rank, world, port), torch=True, start=100 + rank)


def found(proc: FakeProc, job: str | None = None) -> Discovery:
    proc.add(OWN, 1, cmdline=("python", "-m", "forensics"))
    return discover_beside(proc, OWN, job)


def discover_beside(proc: FakeProc, own_pid: int, job: str | None = None) -> Discovery:
    scan = proc.scan()
    return discover(scan, own_tree(scan, own_pid), job)


def pids(discovery: Discovery) -> dict[int, int]:
    return {one.rank: one.process.pid for one in discovery.ranks}


def test_workers_inherit_the_rank_and_are_not_ranks(proc: FakeProc) -> None:
    add_job(proc, 100, 2, launcher=90)
    proc.add(200, 100, environ=rank_env(0), torch=True, start=300)
    proc.add(201, 200, environ=rank_env(0), torch=True, start=301)
    assert pids(found(proc)) == {0: 100, 1: 101}


def test_the_trainer_is_found_below_a_shell(proc: FakeProc) -> None:
    proc.add(90)
    proc.add(100, 90, environ=rank_env(0), exe="/bin/bash", comm="bash", cmdline=("bash", "run.sh"))
    proc.add(101, 100, environ=rank_env(0), exe="/usr/bin/sidecar", comm="sidecar", cmdline=("sidecar",), start=1001)
    proc.add(102, 100, environ=rank_env(0), torch=True, start=1002)
    discovery = found(proc)
    assert pids(discovery) == {0: 102}
    assert discovery.ranks[0].head.pid == 100


def test_a_python_that_has_not_loaded_torch_yet_is_still_a_rank(proc: FakeProc) -> None:
    proc.add(100, 1, environ=rank_env(0), exe="/bin/sh", cmdline=("sh", "-c", "x"))
    proc.add(101, 100, environ=rank_env(0))
    assert pids(found(proc)) == {0: 101}


def test_the_number_of_a_pod_is_not_a_rank(proc: FakeProc) -> None:
    pod: dict[str, str | int] = {"RANK": 0, "WORLD_SIZE": 2, "MASTER_ADDR": "pod-0", "MASTER_PORT": 23456}
    proc.add(90, 1, environ=pod, exe="/bin/bash", cmdline=("bash",))
    proc.add(91, 90, environ=pod, torch=True, cmdline=("python", "torchrun"))
    for rank in range(2):
        proc.add(100 + rank, 91, environ={**pod, "RANK": rank, "WORLD_SIZE": 4, "LOCAL_RANK": rank}, torch=True)
    discovery = found(proc)
    assert pids(discovery) == {0: 100, 1: 101}
    assert discovery.world_size == 4
    assert discovery.warnings == ()


def test_the_task_of_srun_that_runs_torchrun_is_not_a_rank(proc: FakeProc) -> None:
    task = {"SLURM_JOB_ID": 5, "SLURM_PROCID": 1, "SLURM_LOCALID": 0}
    proc.add(91, 1, environ=task, torch=True, cmdline=("python", "torchrun"))
    for rank in (8, 9):
        proc.add(100 + rank, 91, environ={**task, **rank_env(rank, 16), "LOCAL_RANK": rank - 8}, torch=True)
    assert pids(found(proc)) == {8: 108, 9: 109}


def test_of_two_jobs_the_one_with_more_ranks_is_taken_and_the_other_named(proc: FakeProc) -> None:
    add_job(proc, 100, 2, launcher=90)
    add_job(proc, 200, 3, launcher=91, port=29501)
    discovery = found(proc)
    assert pids(discovery) == {0: 200, 1: 201, 2: 202}
    assert "ranks collide (rank 0-1)" in discovery.warnings[0]
    assert "--job 127.0.0.1:29500" in discovery.warnings[1]


def test_a_job_can_be_named(proc: FakeProc) -> None:
    add_job(proc, 100, 2, launcher=90)
    add_job(proc, 200, 3, launcher=91, port=29501)
    discovery = found(proc, job="29500")
    assert pids(discovery) == {0: 100, 1: 101}
    assert discovery.warnings == ()
    assert found_nothing_but_jobs(proc)


def found_nothing_but_jobs(proc: FakeProc) -> bool:
    other = discover_beside(proc, OWN, "no such job")
    return other.ranks == () and len(other.jobs_seen) == 2


def test_two_processes_of_one_job_that_claim_one_rank_are_stated(proc: FakeProc) -> None:
    add_job(proc, 100, 2, launcher=90)
    proc.add(150, 90, environ=rank_env(1), torch=False, start=1)
    discovery = found(proc)
    assert pids(discovery) == {0: 100, 1: 101}
    assert discovery.warnings == (
        "rank 1 is claimed by several processes: took pid 101 (maps libtorch or jaxlib and started first), left out 150",
    )


def test_what_a_dead_rank_left_behind_is_not_that_rank(proc: FakeProc) -> None:
    proc.add(80, 1, exe="/bin/bash", comm="bash", cmdline=("bash",))
    proc.add(90, 80, start=50)
    proc.add(100, 90, environ=rank_env(0), torch=True, start=100)
    proc.add(140, 1, environ=rank_env(1), torch=True, start=500)
    discovery = found(proc)
    assert pids(discovery) == {0: 100}
    assert [one.pid for one in discovery.orphans[1]] == [140]


def test_a_data_loader_worker_is_known_by_the_name_torch_gives_it(proc: FakeProc) -> None:
    proc.add(140, 1, environ=rank_env(1), torch=True, comm="pt_data_worker")
    discovery = found(proc)
    assert pids(discovery) == {}
    assert [one.pid for one in discovery.orphans[1]] == [140]


def test_a_rank_whose_launcher_died_too_is_a_rank(proc: FakeProc) -> None:
    for rank in range(2):
        proc.add(100 + rank, 1, environ=rank_env(rank), torch=True, start=100 + rank)
    assert pids(found(proc)) == {0: 100, 1: 101}


def test_the_collector_and_its_shell_are_left_out_but_not_a_trainer_that_starts_it(proc: FakeProc) -> None:
    proc.add(100, 1, environ=rank_env(0), torch=True)
    proc.add(8000, 100, environ=rank_env(0), exe="/bin/bash", cmdline=("bash",))
    proc.add(OWN, 8000, environ=rank_env(0), cmdline=("python", "-m", "forensics"))
    proc.add(9001, OWN, environ=rank_env(0))
    assert pids(discover_beside(proc, OWN)) == {0: 100}
    shell = {"SLURM_PROCID": 0, "SLURM_JOB_ID": 5}
    proc.add(8100, 1, environ=shell, exe="/bin/bash", cmdline=("bash",))
    proc.add(9100, 8100, environ=shell)
    assert pids(discover_beside(proc, 9100)) == {0: 100}


def test_what_the_collector_had_started_before_it_began_is_not_its_own(proc: FakeProc) -> None:
    proc.add(OWN, 1, start=10)
    proc.add(100, OWN, environ=rank_env(0), start=500)
    proc.add(9001, OWN, environ=rank_env(0), start=700)
    assert own_tree(proc.scan(), OWN, began_ticks=600) == {1, OWN, 9001}


def add_script(proc: FakeProc, first: int, world: int, node: int = 0, copies: int = 3) -> None:
    """A script that started itself once more for each further device of its host."""
    proc.add(first, 1, torch=True, start=50, environ={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500})
    for local in range(1, copies + 1):
        environ: dict[str, str | int] = {"NODE_RANK": node, "LOCAL_RANK": local, "WORLD_SIZE": world}
        environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": 29500}
        proc.add(first + local, first, torch=True, environ=environ, start=100 + local)


def test_a_script_that_started_itself_again_is_the_first_rank_of_its_node(proc: FakeProc) -> None:
    add_script(proc, 100, 8, node=1)
    worker: dict[str, str | int] = {"NODE_RANK": 1, "LOCAL_RANK": 2, "WORLD_SIZE": 8, "MASTER_PORT": 29500}
    worker["MASTER_ADDR"] = "127.0.0.1"
    proc.add(120, 102, torch=True, environ=worker, start=300)
    proc.add(121, 100, torch=True, environ={**worker, "LOCAL_RANK": 0}, start=301)
    proc.add(122, 100, torch=True, start=302)
    discovery = found(proc, "127.0.0.1:29500")
    assert pids(discovery) == {4: 100, 5: 101, 6: 102, 7: 103}
    assert (discovery.world_size, discovery.warnings) == (8, ())
    assert discovery.ranks[0].started == {101, 102, 103}
    named = given_ranks(proc.scan(), [100, 103])
    assert pids(named) == {4: 100, 7: 103}
    assert [one.started for one in named.ranks] == [{103}, set()]


def test_a_launcher_that_counts_no_ranks_is_no_rank(proc: FakeProc) -> None:
    proc.add(90, 1, start=50)
    for local in range(2):
        environ: dict[str, str | int] = {"NODE_RANK": 0, "LOCAL_RANK": local, "WORLD_SIZE": 2}
        proc.add(100 + local, 90, torch=True, environ=environ, start=100 + local)
    assert pids(found(proc)) == {0: 100, 1: 101}


@pytest.mark.parametrize("library", ["/site-packages/torch/lib/libtorch_cpu.so", "/site-packages/jaxlib/libjax_common.so"])
def test_spawned_ranks_are_guessed_from_the_order_of_their_start(library: str, proc: FakeProc) -> None:
    proc.add(90, 1, torch=True, fds={0: "/dev/null"})
    proc.network(90)
    for index, pid in enumerate((103, 101, 102)):
        proc.add(pid, 90, torch=library, start=100 + index, fds={3: f"socket:[{pid}]"})
        proc.network(pid, tcp=(101, 102, 103))
    proc.add(200, 101, torch=True, start=500, fds={3: "socket:[101]"})
    proc.network(200, tcp=(101, 102, 103))
    proc.add(OWN, 1)
    discovery = guess_ranks(proc.procfs, proc.scan(), frozenset({OWN}))
    assert pids(discovery) == {0: 103, 1: 101, 2: 102}
    assert {one.method for one in discovery.ranks} == {"guessed"}
    assert "guessed ranks 0-2" in discovery.warnings[0]


def spawned(proc: FakeProc, *, launcher_maps_torch: bool = True) -> None:
    """Three ranks that set RANK after exec, and a program without torch that the third one started."""
    proc.add(90, 1, torch=launcher_maps_torch)
    proc.network(90)
    for pid in (101, 102, 103):
        proc.add(pid, 90, torch=True, start=pid, fds={3: f"socket:[{pid}]"})
        proc.network(pid, tcp=(101, 102, 103))
    proc.add(300, 103, environ=rank_env(2, 3), start=900)
    proc.add(OWN, 1)


def test_what_a_rank_started_tells_its_number_and_is_no_rank(proc: FakeProc) -> None:
    spawned(proc)
    proc.add(80, 1)
    for pid in range(201, 206):  # a larger job beside it
        proc.add(pid, 80, torch=True, fds={3: f"socket:[{pid}]"})
        proc.network(pid, tcp=(pid,))
    scan = proc.scan()
    claimed = discover(scan, frozenset({OWN}))
    assert only_inherited(claimed)
    discovery = parents_of(claimed, guess_ranks(proc.procfs, scan, frozenset({OWN}), (300,)), scan)
    assert pids(discovery) == {0: 101, 1: 102, 2: 103}
    assert discovery.world_size == 3
    assert "pid 300 only inherited the number" in discovery.warnings[0]


def test_a_rank_that_has_not_loaded_torch_yet_is_none_that_inherited_its_number(proc: FakeProc) -> None:
    """Its launcher maps libtorch and holds the connections of the store."""
    proc.add(90, 1, torch=True, fds={3: "socket:[90]"})
    proc.network(90, tcp=(90,))
    proc.add(300, 90, environ=rank_env(0, 1, LOCAL_RANK=0, LOCAL_WORLD_SIZE=1), start=900)
    scan = proc.scan()
    claimed = discover(scan, frozenset())
    assert pids(parents_of(claimed, guess_ranks(proc.procfs, scan, frozenset()), scan)) == {0: 300}


def test_processes_beside_those_with_a_rank_are_not_their_parents(proc: FakeProc) -> None:
    proc.add(90, 1)
    proc.add(91, 90, torch=True, fds={3: "socket:[91]"})
    proc.network(91, tcp=(91,))
    proc.add(300, 90, environ=rank_env(0, 1))
    scan = proc.scan()
    claimed = discover(scan, frozenset())
    assert parents_of(claimed, guess_ranks(proc.procfs, scan, frozenset()), scan) is claimed


def test_nothing_is_guessed_from_a_torch_without_connections(proc: FakeProc) -> None:
    proc.add(100, 1, torch=True)
    proc.network(100)
    assert guess_ranks(proc.procfs, proc.scan(), frozenset()).ranks == ()


def test_of_all_processes_of_a_script_launcher_and_workers_are_no_ranks(proc: FakeProc) -> None:
    add_job(proc, 100, 2, launcher=90)
    proc.add(110, 100, environ=rank_env(0), comm="pt_data_worker", start=300)
    proc.add(111, 101, environ=rank_env(1), start=301)
    discovery = given_ranks(proc.scan(), (90, 100, 101, 110, 111))
    assert pids(discovery) == {0: 100, 1: 101}
    assert discovery.warnings == ("left out pid 90, 110, 111: a launcher, or a process that a rank among them started",)


def test_a_worker_of_a_spawned_rank_is_no_rank_and_what_is_named_alone_is_one(proc: FakeProc) -> None:
    for index in range(2):
        proc.add(100 + index, 90, torch=True, start=100 + index)
        proc.add(110 + index, 100 + index, comm="pt_data_worker", start=300 + index)
    assert pids(given_ranks(proc.scan(), (100, 110, 101, 111))) == {0: 100, 1: 101}
    assert pids(given_ranks(proc.scan(), (110, 111))) == {0: 110, 1: 111}


def test_who_started_a_program_that_shows_its_number_is_a_rank_itself(proc: FakeProc) -> None:
    """A spawned rank sets its number after exec: only what it starts shows it."""
    proc.add(100, 90, torch=True, start=100)
    proc.add(110, 100, environ=rank_env(0), start=300)
    assert 100 in pids(given_ranks(proc.scan(), (100, 110))).values()


def test_named_processes_keep_their_rank_and_the_others_get_the_free_numbers(proc: FakeProc) -> None:
    proc.add(100, 1, environ=rank_env(1, 4), torch=True)
    proc.add(101, 1, start=300)
    proc.add(102, 1, start=200)
    discovery = given_ranks(proc.scan(), (100, 101, 102))
    assert pids(discovery) == {0: 102, 1: 100, 2: 101}
    assert discovery.world_size == 4
    assert len(discovery.warnings) == 1
