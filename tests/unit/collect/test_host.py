from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect.collectors import command, gpu_smi, kernel_log
from forensics.collect.collectors.clock import SYNC_FILE, collect_sync
from forensics.collect.collectors.gpu_smi import collect_smi
from forensics.collect.collectors.ib_counters import collect_counters
from forensics.collect.collectors.kernel_log import collect_kernel_log, read_kmsg
from forensics.collect.collectors.versions import collect_versions
from forensics.collect.identity import split_environment
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.fake_proc import FakeProc


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only place where host programs are looked for."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(command, "_SYSTEM_FOLDERS", (str(folder),))
    return folder


def install(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


def content(context: Context, run: Run) -> bytes:
    assert run.path is not None
    return (context.staging.root / run.path).read_bytes()


def test_kernel_records_are_written_as_dmesg_prints_them(tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    device.write_bytes(b"6,1,5140900,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n")
    assert list(read_kmsg(device)) == [b"[    5.140900] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"]


def test_the_kernel_log_is_stored_without_secrets(context: Context, tmp_path: Path) -> None:
    device = tmp_path / "kmsg"
    device.write_bytes(b"6,1,5140900,-;Command line: root=/dev/sda api_key=canary123\n")
    (run,) = collect_kernel_log(context, 0, device)
    assert (run.status, run.path) == (Status.OK, "nodes/host-1/kernel/dmesg.txt")
    assert content(context, run) == b"[    5.140900] Command line: root=/dev/sda api_key=<redacted>\n"


def test_other_ways_to_the_kernel_log_are_tried(context: Context, programs: Path, tmp_path: Path) -> None:
    install(programs, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    install(programs, "journalctl", "echo '[  7.1] host kernel: from the journal'")
    (run,) = collect_kernel_log(context, 0, tmp_path / "no-such-device")
    assert (run.status, run.argv[0]) == (Status.OK, "journalctl")
    assert b"from the journal" in content(context, run)


def test_a_kernel_log_that_cannot_be_read_is_not_called_clean(context: Context, programs: Path, tmp_path: Path) -> None:
    install(programs, "dmesg", "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    (run,) = collect_kernel_log(context, 0, tmp_path / "no-such-device")
    assert run.status is Status.PERMISSION
    assert str(run.reason).startswith("Xid and other kernel messages were NOT checked")
    assert Path("/dev/kmsg") == kernel_log.KMSG


def test_nvidia_smi_that_hangs_is_evidence(context: Context, programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "nvidia-smi", "exec /bin/sleep 60")
    monkeypatch.setattr(gpu_smi, "TIMEOUT_S", 0.2)
    (run,) = collect_smi(context, 0)
    assert run.status is Status.TIMEOUT
    assert "a GPU or its driver hangs" in str(run.reason)


@pytest.mark.parametrize(
    ("script", "status", "words"),
    [
        ("echo '<?xml version=\"1.0\" ?><nvidia_smi_log/>'", Status.OK, None),
        ("echo '<?xml version=\"1.0\" ?><cut/>'; echo 'GPU is lost' >&2; exit 15", Status.PARTIAL, "code 15: GPU is lost"),
        ("echo 'NVIDIA-SMI has failed'; exit 9", Status.UNSUPPORTED, "code 9: NVIDIA-SMI has failed"),
    ],
)
def test_what_nvidia_smi_says(context: Context, programs: Path, script: str, status: Status, words: str | None) -> None:
    install(programs, "nvidia-smi", script)
    (run,) = collect_smi(context, 0)
    assert run.status is status
    assert (run.reason is None) if words is None else (words in str(run.reason))


def test_a_host_without_nvidia_smi(context: Context, programs: Path) -> None:
    (run,) = collect_smi(context, 0)
    assert run.status is Status.NOT_FOUND


def test_the_first_clock_program_that_answers_is_kept(context: Context, programs: Path) -> None:
    install(programs, "chronyc", "echo '506 Cannot talk to daemon' >&2; exit 1")
    install(programs, "timedatectl", "echo NTPSynchronized=yes")
    (run,) = collect_sync(context, 0)
    assert (run.status, run.argv[0]) == (Status.OK, "timedatectl")
    assert (context.staging.root / SYNC_FILE).read_text() == "NTPSynchronized=yes\n"


def test_infiniband_counters(context: Context) -> None:
    port = context.sysfs / "class/infiniband/mlx5_0/ports/1"
    (port / "counters").mkdir(parents=True)
    (port / "hw_counters").mkdir()
    (port / "state").write_text("4: ACTIVE\n")
    (port / "rate").write_text("400 Gb/sec (4X NDR)\n")
    (port / "counters/symbol_error").write_text("12\n")
    (port / "counters/odd").write_text("N/A (no PMA)\n")
    (port / "hw_counters/out_of_sequence").write_text("7\n")
    (port.parents[1] / "device").mkdir()
    (port.parents[1] / "device/current_link_width").write_text("8\n")
    (run,) = collect_counters(context, 1)
    assert (run.status, run.path) == (Status.OK, "nodes/host-1/ib/counters-1.json")
    device = json.loads(content(context, run))["devices"]["mlx5_0"]
    assert (device["pcie"]["current_link_width"], device["pcie"]["max_link_width"]) == ("8", None)
    found = device["ports"]["1"]
    assert (found["state"], found["rate"]) == ("4: ACTIVE", "400 Gb/sec (4X NDR)")
    assert (found["counters"], found["hw_counters"]) == ({"symbol_error": 12}, {"out_of_sequence": 7})


def test_a_host_without_infiniband(context: Context) -> None:
    (run,) = collect_counters(context, 0)
    assert (run.status, run.path) == (Status.NOT_FOUND, None)


def test_versions_come_from_the_map_and_the_folders_beside_torch(context: Context, proc: FakeProc, tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    for name in ("torch-2.13.0+cpu", "nvidia_nccl_cu12-2.28.9", "requests-2.0"):
        (site / f"{name}.dist-info").mkdir(parents=True)
    proc.add(100)
    nccl = f"{site}/nvidia/nccl/lib/libnccl.so.2"
    libraries = [f"{site}/torch/lib/libtorch_cpu.so", nccl, "/usr/lib/libcuda.so.550.54", "/usr/lib/libc.so.6"]
    (proc.root / "100/maps").write_text("".join(f"7f00-7f01 r-xp 0 08:01 5    {path}\n" for path in libraries))
    (run,) = collect_versions(context, [Target(3, "alive", 100), Target(4, "absent")])
    assert run.status is Status.OK
    found = json.loads(content(context, run))["ranks"]
    assert list(found) == ["3"]
    assert found["3"]["libraries"] == sorted(libraries[:3])
    assert found["3"]["packages"] == {"nvidia_nccl_cu12": "2.28.9", "torch": "2.13.0+cpu"}


def test_only_listed_variables_keep_their_value_and_that_without_secrets() -> None:
    counts: Counter[str] = Counter()
    environ = {"RANK": "3", "NCCL_DEBUG": "INFO", "HF_TOKEN": "x", "PATH": "/bin", "GLOO_X": "hf_canarycanarycanarycanary"}
    kept, withheld = split_environment(environ, counts)
    assert kept == {"GLOO_X": "<redacted>", "NCCL_DEBUG": "INFO", "RANK": "3"}
    assert withheld == ["HF_TOKEN", "PATH"]
    assert counts == {"hugging_face": 1}


def test_a_program_without_output_limit_is_cut(tmp_path: Path) -> None:
    result = command.run_program(["/bin/sh", "-c", "echo 0123456789"], 5.0, tmp_path, 4)
    assert (result.code, result.output, result.truncated) == (0, b"0123", True)
    assert os.listdir(tmp_path) == []  # noqa: PTH208
