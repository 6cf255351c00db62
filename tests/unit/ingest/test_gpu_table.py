"""Tables of GPUs by nvidia-smi: numbers and addresses, and the rank of an address where the job is of one host."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.ingest import choose
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import SAMPLES, read, sample

NAME = "gpu_table/handmade_index_bus.csv"
TABLE = (SAMPLES / NAME).read_text()
XID = "Nov 24 10:00:01 gpu-4 kernel: NVRM: Xid (PCI:0000:44:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
BARE = "Nov 24 10:00:01 gpu-4 kernel: NVRM: GPU 0000:44:00.0: GPU has fallen off the bus.\n"
GAVE_UP = (
    "[rank{0}]:[E1124 10:10:01.123 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=10, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600010 milliseconds\n"
)


def test_devices_are_numbered() -> None:
    found = sample(NAME)
    assert found.problems == [] and found.ingester == "gpu_table"
    assert [(row["device"], row["pci"]) for row in found.rows("devices")][2] == ("GPU-2", "0000:44:00.0")


@pytest.mark.parametrize("text", ["0, 00000000:07:00.0\n1, 00000000:0A:00.0\n", "00000000:07:00.0, 0\n00000000:0A:00.0, 1\n"])
def test_a_table_without_names(text: str) -> None:
    assert [row["device"] for row in read(text.encode(), "gpus.txt").rows("devices")] == ["GPU-0", "GPU-1"]


@pytest.mark.parametrize("text", ["", "index, pci.bus_id\n", "a, b\n1, 2\n", TABLE + "a line of a log\n" * 9])
def test_other_text_is_left_alone(text: str) -> None:
    found = choose(text.encode(), "gpus.csv")
    assert found is None or found.name != "gpu_table"


def test_a_cut_table_keeps_its_rows() -> None:
    assert len(read(TABLE[:-6].encode(), "gpus.csv").rows("devices")) == 3


@pytest.mark.parametrize("kernel", [XID, BARE], ids=["Xid", "without an Xid"])
@pytest.mark.parametrize(
    ("world", "more", "expected"),
    [("world_size=4", "", {2}), ("world_size=8", "", set()), ("world_size=4", "CUDA_VISIBLE_DEVICES=3,2,1,0\n", set())],
    ids=["one host", "two hosts", "renumbered"],
)
def test_the_rank_of_an_address(tmp_path: Path, kernel: str, world: str, more: str, expected: set[int]) -> None:
    (tmp_path / "gpus.csv").write_text(TABLE)
    (tmp_path / "messages.txt").write_text(kernel)
    (tmp_path / "train.log").write_text(f"{world}\n{more}{GAVE_UP.format(0)}{GAVE_UP.format(1)}")
    assert named(verdict_of(tmp_path)) == expected


LOOP = "timestamp, index, name, clocks.current.sm [MHz], temperature.gpu, power.draw [W], clocks_event_reasons.active\n"
LOOK = "2026/11/26 03:1{0}:00.101, {1}, NVIDIA H100 80GB HBM3, {2} MHz, 61, [N/A], 0x0000000000000040\n"


def test_readings_of_a_table_that_is_printed_again_and_again() -> None:
    text = LOOP + "".join(LOOK.format(look, gpu, 1980 - look) for look in range(3) for gpu in range(2))
    found = read(text.encode(), "gpus.csv")
    assert [row["device"] for row in found.rows("devices")] == ["GPU-0", "GPU-1"] and found.problems == []
    clock = [(row["device"], row["sample"], row["value"]) for row in found.rows("counters") if row["counter"] == "clock_sm_mhz"]
    assert clock == [(f"GPU-{gpu}", look, 1980 - look) for gpu in range(2) for look in range(3)]
    assert [row["text"] for row in found.rows("device_events")] == ["hw_thermal_slowdown"] * 2
    assert not [row for row in found.rows("counters") if row["counter"] == "power_mw"]


def test_of_many_looks_the_newest_are_kept_and_a_cut_row_is_left_out() -> None:
    text = LOOP + "".join(LOOK.format(0, 0, number) for number in range(1000)) + "2026/11/26 03:19:00.101, 0, NVI"
    rows = [row for row in read(text.encode(), "gpus.csv").rows("counters") if row["counter"] == "clock_sm_mhz"]
    assert (len(rows), rows[0]["value"], rows[-1]["value"]) == (256, 744, 999)


@pytest.mark.parametrize(
    ("column", "cell", "counter", "value"),
    [
        ("power.draw [W]", "612.10 W", "power_mw", 612_100),
        ("memory.used [MiB]", "71002 MiB", "memory_used_bytes", 71002 << 20),
        ("utilization.gpu [%]", "100 %", "utilization_percent", 100),
        ("pcie.link.width.current", "8", "pcie_width", 8),
    ],
)
def test_units(column: str, cell: str, counter: str, value: int) -> None:
    text = f"index, temperature.gpu, {column}\n0, 40, {cell}\n"
    assert (counter, value) in [(row["counter"], row["value"]) for row in read(text.encode(), "g.csv").rows("counters")]


MONITOR = "# gpu   pwr gtemp mtemp    sm   mem   enc   dec   jpg   ofa  mclk  pclk \n"
UNITS = "# Idx     W     C     C     %     %     %     %     %     %   MHz   MHz \n"


def monitor(clocks: tuple[int, ...] = (1980, 1980, 345, 1965), looks: int = 2, front: str = "", busy: int = 100) -> str:
    """What `nvidia-smi dmon` prints, the names and units again at each look."""
    row = "{front}    {gpu}   640    61     -  {busy:4d}    41     0     0     0     0  2619  {clock:4d} \n"
    head = MONITOR.replace("# gpu", f"#{'Date       Time        ' if front else ' '}gpu")
    units = UNITS.replace("# Idx", f"#{'YYYYMMDD   HH:MM:SS    ' if front else ' '}Idx")
    one = "".join(row.format(front=front, gpu=gpu, clock=clock, busy=busy) for gpu, clock in enumerate(clocks))
    return looks * (head + units + one)


@pytest.mark.parametrize("front", ["", "20260301   10:00:01"])
def test_readings_of_the_device_monitor(front: str) -> None:
    found = read(monitor(front=front).encode(), "dmon.txt")
    assert found.problems == [] and found.ingester == "gpu_table"
    values = {(row["device"], row["counter"], row["sample"]): row["value"] for row in found.rows("counters")}
    assert len({sample for _, _, sample in values}) == 2
    stated = {counter: value for (device, counter, sample), value in values.items() if (device, sample) == ("GPU-2", 1)}
    assert stated == {
        "power_mw": 640_000,
        "temperature_c": 61,
        "utilization_percent": 100,
        "memory_utilization_percent": 41,
        "clock_memory_mhz": 2619,
        "clock_sm_mhz": 345,
    }


def test_the_device_monitor_points_to_a_low_clock_and_accuses_nobody(tmp_path: Path) -> None:
    (tmp_path / "dmon.txt").write_text(monitor())
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects and verdict.would_change[0].startswith("GPU-2 and the rank on it: it computes at 345 MHz")
    (tmp_path / "dmon.txt").write_text(monitor(busy=0))
    assert not verdict_of(tmp_path).leads


@pytest.mark.parametrize("text", [MONITOR + UNITS, "0 1 2 3\n1 2 3 4\n", MONITOR + "a line of a log\n" * 9, UNITS * 3])
def test_what_is_no_table_of_the_device_monitor(text: str) -> None:
    found = choose(text.encode(), "dmon.txt")
    assert found is None or found.name != "gpu_table"


def test_a_cut_table_of_the_device_monitor_keeps_its_rows() -> None:
    for cut in (30, 60, 340):
        assert len(read(monitor()[:-cut].encode(), "dmon.txt").rows("devices")) == 4
