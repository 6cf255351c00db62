"""What may be seen of the host, from kernels and containers of every strictness."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from pathlib import Path

import pytest

from forensics.collect.processes import ProcFs
from forensics.shim import host_access
from forensics.shim.doctor import Check, Health
from forensics.shim.host_access import Place, access_checks, dump_place

DEPLOY = Path(__file__).parents[3] / "docs/deploy"
PTRACE, SYSLOG = 1 << 19, 1 << 34


def place(tmp_path: Path, scope: str | None = "1", caps: int = 0, seccomp: str = "0", euid: int = 1000) -> Place:
    proc = tmp_path / "proc"
    own = proc / str(os.getpid())
    own.mkdir(parents=True)
    (own / "status").write_text(f"Name:\tforensics\nCapEff:\t{caps:016x}\nSeccomp:\t{seccomp}\n")
    for name, value in (("yama/ptrace_scope", scope), ("dmesg_restrict", "1")):
        if value is not None:
            (proc / "sys/kernel" / name).parent.mkdir(parents=True, exist_ok=True)
            (proc / "sys/kernel" / name).write_text(f"{value}\n")
    (tmp_path / "dev").mkdir()
    return Place(ProcFs(proc), tmp_path / "dev/kmsg", tmp_path / "dev", tmp_path, euid)


def checks(found: Place) -> dict[str, Check]:
    return {check.name: check for check in access_checks({}, found)}


@pytest.mark.parametrize(
    ("scope", "caps", "health"),
    [
        ("0", 0, Health.OK),
        ("1", 0, Health.WARN),
        ("1", PTRACE, Health.OK),
        ("2", PTRACE, Health.OK),
        ("3", PTRACE, Health.WARN),
        (None, 0, Health.UNKNOWN),
        (None, PTRACE, Health.OK),
    ],
)
def test_yama_and_capabilities(tmp_path: Path, scope: str | None, caps: int, health: Health) -> None:
    check = checks(place(tmp_path, scope, caps))["ptrace scope"]
    assert check.health is health and (check.advice != "") is (health is Health.WARN)


def test_root_in_a_container_without_the_capability_may_not_read(tmp_path: Path) -> None:
    (tmp_path / ".dockerenv").touch()
    found = checks(place(tmp_path, "1", euid=0))
    assert found["ptrace scope"].health is Health.WARN and "SYS_PTRACE" in found["ptrace scope"].advice
    assert "in a container" in found["privileges"].reason and "CAP_SYS_PTRACE no" in found["privileges"].reason


def test_a_kernel_that_tells_nothing_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    found = checks(Place(ProcFs(tmp_path / "none"), tmp_path / "dev/kmsg", tmp_path / "no", tmp_path, 1000))
    assert found["privileges"].health is found["GPUs"].health is Health.UNKNOWN
    assert "CAP_SYSLOG unknown" in found["privileges"].reason


def test_reading_memory_is_tried() -> None:
    assert host_access.memory_error() in (0, errno.EPERM, errno.ENOSYS)


@pytest.mark.parametrize(("error", "health"), [(errno.EPERM, Health.WARN), (errno.EFAULT, Health.UNKNOWN), (0, Health.OK)])
def test_a_system_call_filter_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, health: Health) -> None:
    monkeypatch.setattr(host_access, "memory_error", lambda: error)
    check = checks(place(tmp_path, "0", seccomp="2"))["stacks"]
    assert check.health is health
    assert health is not Health.WARN or "system call filter" in check.reason


def test_the_kernel_log_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = place(tmp_path)
    assert "--device /dev/kmsg" in checks(found)["kernel log"].advice

    def refused(path: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    found.kmsg.touch()
    monkeypatch.setattr(host_access, "read_kmsg", refused)
    check = checks(found)["kernel log"]
    assert check.health is Health.WARN and "kernel.dmesg_restrict is 1" in check.reason
    monkeypatch.setattr(host_access, "read_kmsg", lambda path: iter([b"[1.0] NVRM: Xid"]))
    assert checks(found)["kernel log"].health is Health.OK


def test_gpus_without_their_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = place(tmp_path)
    assert checks(found)["GPUs"].health is Health.OK
    (tmp_path / "dev/nvidia0").touch()
    (tmp_path / "dev/nvidiactl").touch()
    monkeypatch.setenv("PATH", "")
    assert checks(found)["GPUs"].reason.startswith("1, without nvidia-smi")


def test_where_dumps_go(tmp_path: Path) -> None:
    assert dump_place({"HOME": str(tmp_path)}).health is Health.UNKNOWN
    missing = dump_place({"TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/dumps/rank_"})
    assert missing.health is Health.WARN and missing.advice == f"mkdir -p {tmp_path}/dumps"
    (tmp_path / "dumps").mkdir()
    assert dump_place({"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/dumps/rank_"}).health is Health.OK
    inside = dump_place({"TORCH_FR_DUMP_TEMP_FILE": "/dumps/rank_"}, lambda path: tmp_path / path.lstrip("/"))
    assert inside.health is Health.OK


@pytest.fixture
def stand_in(tmp_path: Path) -> dict[str, str]:
    """A `forensics` that finds something missing, and says with which arguments it was called."""
    tool = tmp_path / "bin/forensics"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "missing collector $1"\nexit 1\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{tool.parent}:/usr/bin:/bin"}


def test_the_preflight_never_keeps_a_job_from_starting(stand_in: dict[str, str]) -> None:
    command = ["sh", str(DEPLOY / "preflight.sh"), "sh", "-c", "echo trained; exit 7"]
    for environ in (stand_in, {"PATH": "/usr/bin:/bin"}):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (7, "trained\n")
        assert "missing collector doctor" in done.stderr or "not on PATH" in done.stderr


@pytest.mark.slow
def test_a_preflight_that_hangs_is_ended(stand_in: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "bin/forensics").write_text("#!/bin/sh\nexec sleep 600\n")
    environ = {**stand_in, "FORENSICS_PREFLIGHT_S": "1"}
    done = subprocess.run(["sh", str(DEPLOY / "preflight.sh"), "true"], env=environ, timeout=60, check=False)
    assert done.returncode == 0


def test_the_prolog_of_slurm_prints_for_the_first_task_and_never_fails(stand_in: dict[str, str]) -> None:
    for local, wanted in (("0", "print forensics doctor: missing collector doctor\n"), ("1", "")):
        environ = {**stand_in, "SLURM_LOCALID": local}
        done = subprocess.run(["sh", str(DEPLOY / "task-prolog.sh")], env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, wanted)
