"""How a program may reach NCCL, and what preloading then sees of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, compile_c, double, files, linked, only_log, run
from tests.unit.ingest.reading import Result

CALLS = {"all_reduce": 7, "broadcast": 1, "send": 2, "recv": 1}


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """One command for each way of linking."""
    folder = tmp_path_factory.mktemp("jobs")
    library, job, static = double(folder), HERE / "linking.c", HERE / "nccl_double.c"
    opening = compile_c(folder / "opening", [HERE / "opening.c"])
    shared = ("-shared", "-fPIC")
    python_like = compile_c(folder / "libjob.so", [job], *shared, *linked(library))
    exported = compile_c(folder / "libstatic.so", [job, static], *shared)
    hidden = compile_c(folder / "libhidden.so", [job, static], *shared, "-DDOUBLE_HIDDEN")
    symbolic = compile_c(folder / "libsymbolic.so", [job, static], *shared, "-Wl,-Bsymbolic")
    program = compile_c(folder / "program", [job], "-DPROGRAM", *linked(library))
    return {
        "program": [str(program)],
        "local": [str(opening), str(python_like), "local"],
        "deepbind": [str(opening), str(python_like), "deepbind"],
        "handle": [str(opening), str(library), "handle"],
        "static": [str(opening), str(exported), "local"],
        "hidden": [str(opening), str(hidden), "local"],
        "symbolic": [str(opening), str(symbolic), "local"],
    }


@pytest.mark.parametrize("way", ["program", "local", "static"])
def test_these_ways_are_seen(way: str, jobs: dict[str, list[str]], shim: Path, tmp_path: Path) -> None:
    done = run(jobs[way], tmp_path, shim, DOUBLE_TELLS="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "double 23203 calls 11\n"  # every call reached the real function once
    log = only_log(tmp_path)
    assert Counter(row["kind"] for row in log.rows("operations")) == CALLS
    assert coverage(log)["nccl_api"] == ("ok", None)
    assert log.config()["nccl_version"] == "2.32.3"
    assert not log.problems


@pytest.mark.parametrize("way", ["deepbind", "handle", "hidden", "symbolic"])
def test_these_ways_pass_by(way: str, jobs: dict[str, list[str]], shim: Path, tmp_path: Path) -> None:
    done = run(jobs[way], tmp_path, shim)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert files(tmp_path) == []


def test_two_copies_are_each_called_by_their_own_callers(shim: Path, tmp_path: Path) -> None:
    one, two = double(tmp_path / "one"), double(tmp_path / "two", "libnccl_other.so.2", "-DDOUBLE_VERSION=21805")
    first = compile_c(tmp_path / "libfirst.so", [HERE / "linking.c"], "-shared", "-fPIC", "-Drun=first", *linked(one))
    second = compile_c(tmp_path / "libsecond.so", [HERE / "linking.c"], "-shared", "-fPIC", "-Drun=second", *linked(two))
    main = tmp_path / "both.c"
    main.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\nint main(int n, char **v) { (void)n;"
        ' int (*f)(int) = (int (*)(int))dlsym(dlopen(v[1], RTLD_NOW), "first");'
        ' int (*g)(int) = (int (*)(int))dlsym(dlopen(v[2], RTLD_NOW), "second"); return f(1) | g(2); }\n'
    )
    program = compile_c(tmp_path / "both", [main])
    done = run([program, first, second], tmp_path / "logs", shim, DOUBLE_TELLS="1")
    assert sorted(done.stdout.splitlines()) == ["double 21805 calls 8", "double 23203 calls 7"]
    assert coverage(only_log(tmp_path / "logs"))["nccl_api"] == ("ok", "two copies of NCCL are in use")


def test_a_function_that_nccl_lacks_is_stated(shim: Path, tmp_path: Path) -> None:
    library = double(tmp_path / "nccl")
    source = tmp_path / "newer.c"
    source.write_text(
        '#include "nccl_double.h"\nint ncclAlltoAll(const void *, void *, size_t, int, ncclComm_t, void *);\nint run(int n);\n'
        "int run(int n) { ncclUniqueId id; ncclGetUniqueId(&id); return ncclAlltoAll(0, 0, n, 7, 0, 0) == 5 ? 0 : 1; }\n"
    )
    job = compile_c(tmp_path / "libnewer.so", [source], "-shared", "-fPIC", *linked(library))
    opening = compile_c(tmp_path / "opening", [HERE / "opening.c"])
    assert run([opening, job, "local"], tmp_path / "logs", shim).returncode == 0
    log = only_log(tmp_path / "logs")
    assert coverage(log)["nccl_api"] == ("partial", "not in the NCCL of the caller: all_to_all")
    assert "does not have" in log.problems[0].message


def test_what_one_job_leaves(jobs: dict[str, list[str]], shim: Path, tmp_path: Path) -> None:
    run(jobs["local"], tmp_path, shim, RANK="1", WORLD_SIZE="4", LOCAL_RANK="0")
    log = only_log(tmp_path)
    calls = log.rows("operations")
    world = calls[0]["communicator"]
    assert [(row["kind"], row["op_id"], row["count"], row["dtype"]) for row in calls if row["communicator"] == world] == [
        *[("all_reduce", number, 10, "float32") for number in range(1, 6)],
        ("all_reduce", 6, 11, "bfloat16"),
        ("broadcast", 7, 12, "float32"),
        ("send", 8, 13, "float32"),
        ("recv", 9, 13, "float32"),
        ("send", 10, 14, "float32"),
    ]
    sends = [(row["peer"], row["pair_number"], row["group_call"] is not None) for row in calls if row["kind"] == "send"]
    assert sends == [(2, 1, True), (2, 2, False)]
    assert [row["root"] for row in calls if row["kind"] == "broadcast"] == [3]
    assert not any(row["inside"] for row in calls)
    assert all(row["returned_ns"] is None or row["returned_ns"] >= row["entered_ns"] for row in calls)
    assert {row["state"] for row in calls} == {"pending"}  # that a call returned does not say that it is done
    assert log.identities[0].rank == 1
    states = {row["communicator"]: row for row in log.rows("communicator_states")}
    child = next(row for row in states.values() if row["parent"])
    assert (states[world]["state"], states[world]["group_rank"], states[world]["size"]) == ("destroyed", 1, 4)
    assert (child["parent"], child["color"], child["size"], child["operations"]) == (world, 1, 2, 1)
    events = [row["kind"] for row in log.rows("communicator_events")]
    assert events == ["get_unique_id", "init_rank", "split", "destroy", "destroy"]


def test_all_members_give_a_communicator_one_name(jobs: dict[str, list[str]], shim: Path, tmp_path: Path) -> None:
    names = []
    for rank in ("0", "1"):
        run(jobs["local"], tmp_path / rank, shim, RANK=rank)
        names.append([row["communicator"] for row in only_log(tmp_path / rank).rows("communicator_states")])
    assert names[0] == names[1]


def coverage(log: Result) -> dict[str, tuple[str, str | None]]:
    return {row["kind"]: (row["status"], row["reason"]) for row in log.rows("coverage")}
