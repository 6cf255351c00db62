from __future__ import annotations

from forensics.bundle.claims import claim, job_id

SLURM = {"SLURM_JOB_ID": "77", "SLURM_PROCID": "9", "SLURM_NTASKS": "20", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}


def test_the_launcher_nearest_to_the_rank_wins() -> None:
    inner = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    found = claim({**SLURM, **inner})
    assert found is not None
    assert (found.rank, found.method, found.world_size, found.local_rank, found.local_size) == (5, "RANK", 16, 1, 4)


def test_slurm_counts_the_tasks_of_its_own_node() -> None:
    found = claim({**SLURM, "SLURM_TASKS_PER_NODE": "8(x2),4"})
    assert found is not None
    assert (found.rank, found.method, found.local_size) == (9, "SLURM_PROCID", 8)
    last = claim({**SLURM, "SLURM_TASKS_PER_NODE": "8(x2),4", "SLURM_NODEID": "2"})
    assert last is not None
    assert last.local_size == 4


def test_open_mpi_and_pmi() -> None:
    ompi = claim({"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PMI_RANK": "9"})
    assert ompi is not None
    assert (ompi.rank, ompi.method, ompi.world_size) == (2, "OMPI_COMM_WORLD_RANK", 4)
    pmi = claim({"PMI_RANK": "9", "PMI_SIZE": "12"})
    assert pmi is not None
    assert (pmi.rank, pmi.world_size) == (9, 12)


def test_a_rank_is_computed_from_group_and_local_rank() -> None:
    found = claim({"LOCAL_RANK": "3", "GROUP_RANK": "2", "LOCAL_WORLD_SIZE": "8"})
    assert found is not None
    assert (found.rank, found.method) == (19, "LOCAL_RANK+GROUP_RANK")
    assert claim({"LOCAL_RANK": "3"}) is None


def test_what_is_no_number_gives_no_rank() -> None:
    assert claim({"RANK": "", "SLURM_PROCID": "x"}) is None
    assert claim({"RANK": "-1"}) is None


def test_jobs_on_a_loopback_address_are_distinguished_by_their_network() -> None:
    local = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    assert job_id(local, "net:[1]") != job_id(local, "net:[2]")
    remote = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert job_id(remote, "net:[1]") == job_id(remote, "net:[2]")


def test_a_job_is_named_by_its_scheduler_before_its_address() -> None:
    address = {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    assert job_id({**address, "SLURM_JOB_ID": "77"}).name == "77"
    assert job_id({**address, "TORCHELASTIC_RUN_ID": "none"}).name == "10.0.0.1:29500"
    assert job_id({}).name is None
    assert job_id({**address, "SLURM_JOB_ID": "77"}).matches("29500")
