"""The stand-in hardware is honest: real sums over real chunks, the symbols of the real libraries, counters that agree."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.testbed import SOURCES, STATIC, Job, Shape, built, start

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("collectives.py")


def listed(*command: str) -> list[list[str]]:
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [line.split() for line in done.stdout.splitlines()]


def symbols(library: str) -> dict[str, str]:
    return {row[-1]: row[-2] for row in listed("nm", "-D", "--defined-only", str(built() / library))}


@pytest.mark.parametrize(
    "shape",
    [
        Shape(pp=2, per_host=1),
        Shape(pp=4, per_host=2),
        Shape(dp=3, per_host=4, more={"elements": 5003}),
        Shape(pp=2, dp=2, per_host=1, more={"shards": 1, "split": 1, "elements": 20000}),
        Shape(pp=2, dp=2, tp=2, per_host=2, steps=2),
    ],
    ids=["wire", "both", "memory", "shards", "three-ways"],
)
def test_a_healthy_job_ends_with_the_right_sums(shape: Shape, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", shape) as job:
        assert job.finish() == [0] * shape.world, job.log(0)
        assert all(f"step {shape.steps - 1} done" in job.log(rank) for rank in range(shape.world))
        assert [place.doing for place in job.places()] == ["done"] * shape.world
        assert not any(job.stuck(rank) for rank in range(shape.world))


@pytest.mark.parametrize("static", STATIC)
def test_a_framework_with_the_collectives_linked_in_works_too(static: str, tmp_path: Path) -> None:
    needed = [
        row[-1] for row in listed("readelf", "-d", str(built() / static / "libtestbed_framework.so")) if "(NEEDED)" in row
    ]
    assert "[libnccl.so.2]" not in needed
    with start(built(), tmp_path / "job", Shape(pp=2, steps=1), static=static) as job:
        assert job.finish() == [0, 0]


@pytest.mark.parametrize("how", ["global", "deepbind"])
def test_the_framework_can_be_loaded_in_other_ways(how: str, tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", Shape(pp=2, steps=1, more={"load": how})) as job:
        assert job.finish() == [0, 0]


@pytest.mark.parametrize("per_host", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 1000, 8001])
def test_every_collective_is_right_through_ctypes(per_host: int, count: int, tmp_path: Path) -> None:
    env = {"TESTBED_DIR": str(tmp_path), "LD_LIBRARY_PATH": str(built()), "WORLD_SIZE": "4", "PATH": os.environ["PATH"]}
    env |= {"LOCAL_WORLD_SIZE": str(per_host), "JOB_ID": os.urandom(128).hex(), "TESTBED_CHANNELS": "3"}
    command = [sys.executable, str(SCRIPT), str(built() / "libnccl.so.2"), str(built() / "libtestbed_gpu.so"), str(count)]
    ranks = [
        subprocess.Popen(command, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank % per_host)}, stderr=subprocess.PIPE)
        for rank in range(4)
    ]
    with Job(tmp_path, ranks):
        assert [rank.communicate(timeout=90)[1] for rank in ranks] == [b""] * 4
        assert [rank.returncode for rank in ranks] == [0] * 4


def test_communicators_through_their_lives(tmp_path: Path) -> None:
    env = {"TESTBED_DIR": str(tmp_path), "LD_LIBRARY_PATH": str(built()), "PATH": os.environ["PATH"]}
    libraries = [str(built() / "libnccl.so.2"), str(built() / "libtestbed_gpu.so")]
    command = [sys.executable, str(SCRIPT.with_name("communicators.py")), *libraries]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=90)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", ["all", "split", "nonblocking", "abort"])


def test_every_public_name_is_weak_and_has_a_strong_twin() -> None:
    names = symbols("libnccl.so.2")
    public = {name for name in names if name.startswith("nccl")}
    assert set(names) == public | {f"p{name}" for name in public}
    assert {names[name] for name in public} == {"W"}
    assert {names[f"p{name}"] for name in public} == {"T"}
    collectives = ["AllReduce", "Broadcast", "Reduce", "AllGather", "ReduceScatter", "AlltoAll", "Gather", "Scatter"]
    calls = [*collectives, *(f"{name}Config" for name in collectives), "Bcast", "Send", "Recv", "GroupStart", "GroupEnd"]
    lives = [
        "InitRank",
        "InitRankConfig",
        "InitRankScalable",
        "InitAll",
        "Split",
        "Shrink",
        "Finalize",
        "Destroy",
        "Abort",
        "Revoke",
    ]
    assert {f"nccl{name}" for name in calls} | {f"ncclComm{name}" for name in lives} <= public
    assert {"ncclCommGetAsyncError", "ncclGetUniqueId", "ncclGetVersion", "ncclGetErrorString"} <= public


def test_the_libraries_are_named_and_versioned_as_the_real_ones() -> None:
    for library in ("libnccl.so.2", "libibverbs.so.1"):
        dynamic = listed("readelf", "-d", str(built() / library))
        assert [row[-1] for row in dynamic if "(SONAME)" in row] == [f"[{library}]"]
    versions = dict(name.split("@@") for name in symbols("libibverbs.so.1") if "@@" in name)
    assert versions["ibv_open_device"] == versions["ibv_create_qp"] == "IBVERBS_1.1"
    assert versions["ibv_reg_mr_iova2"] == "IBVERBS_1.8"
    assert versions["ibv_reg_dmabuf_mr"] == "IBVERBS_1.12"
    assert not {"ibv_post_send", "ibv_poll_cq"} & set(versions), "inline in the real header: only the operation table has them"


@pytest.mark.parametrize(("release", "nested"), [("2.30.7", False), ("2.17.1", True)])
def test_a_preload_is_called_and_old_releases_call_it_from_inside(release: str, nested: bool, tmp_path: Path) -> None:
    preload = tmp_path / "libcounting.so"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-ldl"]
    subprocess.run(["cc", str(SCRIPT.with_name("counting_preload.c")), *flags, "-o", str(preload)], check=True)
    env = {"LD_PRELOAD": str(preload), "TESTBED_NCCL_VERSION": release}
    with start(built(), tmp_path / "job", Shape(pp=2, steps=1, microbatches=2), env=env) as job:
        assert job.finish() == [0, 0]
        counted = next(line for line in job.log(0).splitlines() if line.startswith("starts="))
        starts, sends = (int(part.split("=")[1]) for part in counted.split())
        calls = [call.func for call in job.calls(0)]
        assert sends == calls.count("Send") == 2
        groups = len({work.number for work in job.works(0) if work.func in ("Send", "Recv", "SendRecv")})
        assert starts == groups + (calls.count("Send") + calls.count("Recv") if nested else 0)


@pytest.mark.parametrize(("channels", "queues"), [(1, 1), (4, 1), (2, 3)])
def test_what_the_proxy_did_and_what_the_queues_carried_agree(channels: int, queues: int, tmp_path: Path) -> None:
    shape = Shape(pp=2, dp=2, per_host=1, steps=4, more={"elements": 30000})
    env = {"TESTBED_CHANNELS": str(channels), "NCCL_IB_QPS_PER_CONNECTION": str(queues)}
    with start(built(), tmp_path / "job", shape, env=env) as job:
        assert job.finish() == [0] * 4
        for rank in range(4):
            steps, pairs = job.steps(rank), job.pairs(rank)
            assert all(step.done == step.total == step.posted for step in steps)
            received = sum(step.received for step in steps)
            assert sum(pair.recvs for pair in pairs) == sum(pair.recv_cqes for pair in pairs) == received * queues > 0
            loopback = [pair for pair in pairs if pair.other == rank]
            assert sum(pair.send_cqes for pair in loopback) == received, "one flush per step"
            assert all(pair.sends == pair.executed and pair.signaled == pair.send_cqes for pair in pairs)
            assert any(pair.signaled < pair.sends for pair in pairs), "credits and data without completions of their own"
            sent = sum(step.transmitted for step in steps if step.is_send)
            assert sum(pair.signaled for pair in pairs if not pair.recvs and pair not in loopback) == sent * queues
            assert {step.channel for step in steps} == set(range(channels))


def test_both_ends_of_a_flow_count_the_same(tmp_path: Path) -> None:
    with start(built(), tmp_path / "job", Shape(pp=2, dp=2, per_host=2)) as job:
        assert job.finish() == [0] * 4
        pairs = {(pair.device, pair.number): pair for rank in range(4) for pair in job.pairs(rank)}
        numbers = [number for _, number in pairs]
        assert len({device for device, _ in pairs}) == 4, "each rank has a device of its own, of two providers"
        assert len(set(numbers)) < len(numbers), "two devices use the same numbers"
        data = [pair for rank in range(4) for pair in job.pairs(rank) if pair.recv_cqes]
        sends = [pair for rank in range(4) for pair in job.pairs(rank) if pair.sends and not pair.recvs and pair.other != rank]
        assert sorted(pair.recv_cqes for pair in data) == sorted(pair.signaled for pair in sends)


def test_calls_return_before_the_work_is_done(tmp_path: Path) -> None:
    shape = Shape(dp=2, per_host=2, steps=1, more={"compute-us": 1})
    with start(built(), tmp_path / "job", shape, "never_calls:rank=1") as job:
        job.until(lambda: len(job.calls(0)) == 2, seconds=60)
        assert [call.func for call in job.calls(0)] == ["AllReduce", "AllReduce"], "the second call was made behind the first"
        job.until_hung()
        assert len(job.stuck(0)) == 1


def test_a_short_run_is_clean_under_sanitizers(tmp_path: Path) -> None:
    shape = Shape(pp=2, dp=2, per_host=2, steps=2, more={"elements": 3000})
    env = {"ASAN_OPTIONS": "detect_leaks=0:exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1"}
    with start(built(sanitize=True), tmp_path / "job", shape, env=env) as job:
        assert job.finish(180) == [0] * 4, job.log(0)
        assert not any("runtime error" in job.log(rank) for rank in range(4))


def test_the_collector_knows_nothing_of_the_test_bed() -> None:
    sources = [path for path in SOURCES.parent.rglob("*.[ch]") if SOURCES not in path.parents]
    assert sources
    assert not [path.name for path in sources if "testbed" in path.read_text().lower()]


def test_the_test_bed_is_never_installed() -> None:
    assert "install(" not in (SOURCES / "CMakeLists.txt").read_text()
    listing = (SOURCES.parent / "CMakeLists.txt").read_text()
    assert "option(FORENSICS_TESTBED" in listing
    assert "OFF)" in listing.split("option(FORENSICS_TESTBED")[1].splitlines()[0]
