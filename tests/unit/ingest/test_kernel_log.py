from __future__ import annotations

from tests.unit.ingest.reading import read, sample


def test_events_of_gpus_links_and_memory() -> None:
    result = sample("kernel_log/handmade_dmesg.txt")
    assert [(row["kind"], row["device"], row["code"]) for row in result.rows("device_events")] == [
        ("xid", "0000:cb:00", 109),
        ("xid_cascade", "0000:dc:00", 45),
        ("link_down", "ens1f0np0", None),
        ("pcie_error", "0000:00:01.0", None),
    ]
    assert [(row["kind"], row["subject"]) for row in result.rows("log_events")] == [
        ("oom_kill", "4242"),
        ("hung_task", "999"),
        ("server_not_responding", "store-1"),
        ("server_not_responding", "scratch-OST003a"),
        ("server_not_responding", "scratch-OST003a"),
        ("client_evicted", "scratch-OST003a"),
        ("server_ok", "scratch-OST003a"),
    ]
    assert {row["time_ns"] for row in result.rows("device_events")} == {None}


def test_forms_of_the_prefix() -> None:
    message = "NVRM: Xid (PCI:0000:cb:00): 79, pid=1, GPU has fallen off the bus."
    for line in (
        f"[    5.000001] {message}",
        f"4,1234,5000001,-;{message}",
        f"May 18 07:56:59 gpu-001 kernel: {message}",
        f"[Fri Aug 30 11:43:09 2024] {message}",
        f"<4>[    5.000001] {message}",
    ):
        (row,) = read(line.encode() + b"\n").rows("device_events")
        assert (row["kind"], row["code"]) == ("xid", 79), line


def test_iso_times_are_read() -> None:
    line = "2026-05-18T07:56:59,250000+02:00 kernel: INFO: task kworker/u8:1:77 blocked for more than 120 seconds.\n"
    (row,) = read(line.encode(), "dmesg.txt").rows("log_events")
    assert (row["subject"], row["time_ns"]) == ("77", 1779083819250000000)


def test_one_kill_is_reported_once_and_two_kills_twice() -> None:
    kill = "[{t}.000001] Out of memory: Killed process {pid} (python) total-vm:1kB\n"
    text = "".join(kill.format(t=t, pid=pid) for t, pid in ((1, 5), (2, 5), (3, 6)))
    assert [row["subject"] for row in read(text.encode()).rows("log_events")] == ["5", "6"]


def test_a_corrected_error_is_no_event() -> None:
    line = "[ 5.000001] pcieport 0000:00:01.0: AER: PCIe Bus Error: severity=Corrected, type=Physical Layer\n"
    assert read(line.encode()).rows("device_events") == []


LOST = (
    "[  843.308145] NVRM: The NVIDIA GPU 0000:{0}:00.0\n               NVRM: (PCI ID: 10de:2330) installed in this system has\n"
    "               NVRM: {1} and is not responding to commands.\n"
)


AMD = "[76914.19012{0}] amdgpu 0000:9d:00.0: amdgpu: {{1}}socket: 6, die: 1, {1} hardware errors detected in {2}\n"


def test_what_amdgpu_could_not_correct_counts_once() -> None:
    said = [
        ("2 new uncorrectable", "gfx block"),
        ("2 uncorrectable", "total in gfx block"),
        ("0 new uncorrectable", "gfx block"),
    ]
    said.append(("1533 new correctable", "xgmi_wafl block"))
    text = "".join(AMD.format(n, *each) for n, each in enumerate(said))
    (row,) = read(text.encode()).rows("device_events")
    assert (row["kind"], row["device"], row["locator"]) == ("gpu_uncorrectable", "0000:9d:00.0", 1)


def test_a_message_of_the_driver_over_several_lines() -> None:
    (row,) = read(LOST.format("b3", "fallen off the bus").encode()).rows("device_events")
    assert (row["kind"], row["device"], row["locator"]) == ("gpu_fallen_off", "0000:b3:00.0", 3)
    assert not read(LOST.format("b3", "been seen").encode()).rows("device_events")
    xid = "[    5.000001] NVRM: Xid (PCI:0000:cb:00): 79, pid=1, GPU has fallen off the bus.\n"
    assert len(read((xid + "               NVRM: run nvidia-bug-report.sh\n").encode()).rows("device_events")) == 1
