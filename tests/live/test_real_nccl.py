"""The real NCCL under the collector: every function that is forwarded exists, and the library answers as it does alone.

Needs NVIDIA's package beside the tests, about 350 MB, and no GPU: `pip install --no-deps nvidia-nccl-cu12` (or -cu13).
"""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import LINKING, sources_of
from tests.native.shim_jobs import HERE, ROOT, compile_c, linked, only_log, run
from tests.unit.ingest.reading import Result

pytestmark = pytest.mark.live

PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12")
# Version code of the first NCCL with a function, by src/nccl.h.in of its tags; what is not here is older than 2.18. The twins
# with a configuration are by the release notes of 2.31.
FIRST = {
    22203: ("GroupSimulateEnd",),
    22304: ("CommInitRankScalable",),
    22703: ("CommShrink", "CommWindowRegister", "CommWindowDeregister"),
    22803: ("AlltoAll", "Gather", "Scatter", "DevCommCreate", "DevCommDestroy"),
    22807: ("CommRevoke",),
    22902: ("CommGrow", "PutSignal", "Signal", "WaitSignal"),
    22907: ("CommSuspend", "CommResume"),
    23102: tuple(
        f"{name}Config"
        for name in ("AllReduce", "AllGather", "ReduceScatter", "Reduce", "Broadcast", "AlltoAll", "Gather", "Scatter")
    ),
}


ALONE = "works on this rank alone: it waits for no other"
DEVICE = "arithmetic for kernels and their buffers: no communication"
SETTING = "reads or sets a parameter of the process"
LEFT_OUT = {
    "CommDeregister": ALONE,
    "CommGetUniqueId": ALONE,
    "CommMemStats": ALONE,
    "CommQueryProperties": ALONE,
    "CommRegister": ALONE,
    "GetErrorString": SETTING,
    "GetLastError": SETTING,
    "MemAlloc": ALONE,
    "MemFree": ALONE,
    "RedOpCreatePreMulSum": ALONE,
    "RedOpDestroy": ALONE,
    "ResetDebugInit": SETTING,
    "ResetDebugInitInternal": SETTING,
    "SetEncryption": SETTING,
    "WinGetUserPtr": ALONE,
    **dict.fromkeys(
        ("GetCftDeviceLeInfo", "GetLsaDevicePointer", "GetLsaMultimemDevicePointer", "GetMultimemDeviceLeInfo"), DEVICE
    ),
    **dict.fromkeys(("GetMultimemDevicePointer", "GetPeerDeviceLeInfo", "GetPeerDevicePointer", "LLA2ACalcSlots"), DEVICE),
    **dict.fromkeys(
        (f"{name}CreateRequirement" for name in ("GinBarrier", "GinInboxA2A", "GinOutbox", "LLA2A", "LsaBarrier")), DEVICE
    ),
    **dict.fromkeys(
        (f"Team{name}" for name in ("Cft", "CftMultimem", "Lsa", "Rail", "RankToLsa", "RankToWorld", "World")), DEVICE
    ),
    **dict.fromkeys(
        (f"Param{name}" for name in ("Bind", "DumpAll", "Get", "GetAllParameterKeys", "GetParameter", "GetStr")), SETTING
    ),
    **dict.fromkeys((f"ParamGet{sign}{bits}" for sign in "IU" for bits in (8, 16, 32, 64)), SETTING),
}
"""Functions that are not hooked, and why (src/ of NCCL 2.30.7, headers of 2.32.3)."""


def library() -> Path | None:
    """The library of the package that is installed, if one is."""
    for package in PACKAGES:
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        found = [Path(str(file.locate())) for file in files if file.name == "libnccl.so.2"]
        if found and found[0].exists():
            return found[0]
    return None


@pytest.fixture(scope="module")
def nccl() -> Path:
    found = library()
    if found is None:
        pytest.skip(f"none of {', '.join(PACKAGES)} is installed")
    return found


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sources = [Path(name) for name in sources_of("shim")]
    output = tmp_path_factory.mktemp("shim") / "libforensics_shim.so"
    return compile_c(output, sources, "-shared", "-fPIC", "-fvisibility=hidden", *LINKING["shim"])


@pytest.fixture(scope="module")
def job(nccl: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library needs nothing but libc to load; CUDA's driver is opened when it is there."""
    return compile_c(tmp_path_factory.mktemp("job") / "job", [HERE / "real_nccl.c"], *linked(nccl))


def exported(nccl: Path) -> frozenset[str]:
    done = subprocess.run(["nm", "-D", "--defined-only", str(nccl)], check=True, capture_output=True, text=True)
    return frozenset(line.split()[-1].split("@")[0] for line in done.stdout.splitlines())


def forwarded() -> frozenset[str]:
    """The functions that the shim stands in for, and those it asks, by their list in its source."""
    listed = (ROOT / "native/shim/nccl.h").read_text().split("#define NCCL_HOOKED(each)")[1].split("enum nccl_function")[0]
    return frozenset(re.findall(r"each\((\w+), \w+\)", listed))


def version_of(said: str) -> int:
    return int(said.split("\n")[0].split()[2])


def coverage(log: Result) -> dict[str, str]:
    return {row["kind"]: row["status"] for row in log.rows("coverage")}


def test_every_forwarded_function_exists(nccl: Path, job: Path, tmp_path: Path) -> None:
    version = version_of(run([job], tmp_path).stdout)
    later = frozenset(name for first, names in FIRST.items() if first > version for name in names)
    assert {name for names in FIRST.values() for name in names} <= forwarded()
    there = exported(nccl)
    assert {name for name in forwarded() - later if not {f"nccl{name}", f"pnccl{name}"} <= there} == set()


def test_every_other_function_is_left_out_for_a_reason(nccl: Path, job: Path, tmp_path: Path) -> None:
    """A function of a newer NCCL that nobody has thought about fails here."""
    there = {name.removeprefix("nccl") for name in exported(nccl) if name.startswith("nccl")}
    assert sorted(there - forwarded() - set(LEFT_OUT)) == []
    assert forwarded().isdisjoint(LEFT_OUT)
    if version_of(run([job], tmp_path).stdout) >= 23203:
        assert sorted(set(LEFT_OUT) - there) == []


def test_it_answers_as_it_does_alone(job: Path, shim: Path, tmp_path: Path) -> None:
    alone, watched = run([job], tmp_path / "alone"), run([job], tmp_path / "watched", shim)
    assert watched.stdout == alone.stdout
    assert (watched.returncode, watched.stderr) == (alone.returncode, alone.stderr)
    assert alone.stdout.startswith("version 0 2")
    assert "unique_id 0 1\ngroup 0 0\n" in alone.stdout


def test_the_log_says_which_hooks_were_reached(job: Path, shim: Path, tmp_path: Path) -> None:
    done = run([job], tmp_path, shim)
    log = only_log(tmp_path)
    assert coverage(log) | {"verbs": ""} == {"nccl_api": "ok", "nccl_profiler": "not_configured", "shim_log": "ok", "verbs": ""}
    code = version_of(done.stdout)
    assert log.config()["nccl_version"] == f"{code // 10000}.{code // 100 % 100}.{code % 100}"
    assert log.config()["shim.state"] == "ended"
    kinds = [row["kind"] for row in log.rows("communicator_events")]
    assert kinds[0] == "get_unique_id"
    assert not log.problems


def test_a_communicator_that_cannot_be_made_is_stated(job: Path, shim: Path, tmp_path: Path) -> None:
    done = run([job], tmp_path, shim)
    if "init 1 " not in done.stdout:
        pytest.skip("there is a GPU here")
    log = only_log(tmp_path)
    assert log.row("communicator_events", kind="init_rank")["result"] != 0
    assert {row["state"] for row in log.rows("communicator_states")} == {"failed"}
