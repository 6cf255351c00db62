from __future__ import annotations

import json

import pytest

from forensics.ingest.interface import Identity
from tests.unit.ingest.reading import read, sample


def test_nics_ports_links_and_counters() -> None:
    result = sample("ib_counters/handmade_counters-1.json", sample=1)
    assert result.problems == [] and result.identities == [Identity(host="gpu-017")]
    nic = result.row("devices", device="mlx5_1")
    assert (nic["kind"], nic["pci"], nic["numa_node"], nic["model"]) == ("nic", "0000:40:00.0", 1, "MT4129")
    port = result.row("devices", device="mlx5_1/1")
    assert (port["kind"], port["parent"], port["state"]) == ("port", "mlx5_1", "4: ACTIVE, 5: LinkUp")
    kinds = {row["device_a"]: (row["kind"], row["rate_bytes_per_s"]) for row in result.rows("links")}
    assert kinds == {"mlx5_0/1": ("ethernet", 50_000_000_000), "mlx5_1/1": ("ib", 25_000_000_000)}
    link = {row["counter"]: row["value"] for row in result.rows("counters") if row["device"] == "mlx5_1"}
    assert link == {"pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 8, "pcie_width_max": 16}
    errors = result.row("counters", device="mlx5_1/1", counter="symbol_error")
    assert (errors["value"], errors["sample"], errors["time_ns"]) == (7, 1, 1_772_529_294_000_400_000)
    assert result.row("counters", device="mlx5_0/1", counter="rp_cnp_handled")["value"] == 11_405_000


def test_two_reads_differ_by_what_moved() -> None:
    first, second = (sample(f"ib_counters/handmade_counters-{number}.json", sample=number) for number in (0, 1))
    moved = [each.row("counters", device="mlx5_0/1", counter="port_xmit_data")["value"] for each in (first, second)]
    assert moved[1] - moved[0] == 7 * 24_000_000_000


def test_outside_of_a_bundle_the_name_tells_which_read_it_is() -> None:
    result = sample("ib_counters/handmade_counters-1.json")
    assert {row["sample"] for row in result.rows("counters")} == {1}


def test_no_rank_of_a_path_becomes_that_of_a_device() -> None:
    result = sample("ib_counters/handmade_counters-0.json", rank=0)
    assert {row["rank"] for row in result.rows("devices")} == {None}


def test_what_is_no_object_or_number_is_left_out() -> None:
    port = {
        "rate": "fast",
        "counters": {"symbol_error": "x", "link_downed": 2},
        "hw_counters": {"link_downed": 9, "lifespan": True},
    }
    devices: dict[str, object] = {"mlx5_0": {"ports": {"1": port, "2": 7}}, "mlx5_1": None, "mlx5_2": {"ports": []}}
    result = read(json.dumps({"schema": "forensics.ib/9", "devices": devices}).encode())
    assert result.row("counters", device="mlx5_0/1") | {"sample": 0} == {
        "device": "mlx5_0/1",
        "counter": "link_downed",
        "value": 2,
        "sample": 0,
        "time_ns": None,
    }
    assert result.row("devices", device="mlx5_0/1")["rate_bytes_per_s"] is None
    assert sorted(problem.locator or "" for problem in result.problems) == [
        "",
        "devices",
        "devices/mlx5_0/ports",
        "devices/mlx5_2/ports",
    ]


def test_a_document_without_devices_is_stated() -> None:
    (problem,) = read(b'{"schema": "forensics.ib/1", "devices": 5}').problems
    assert problem.locator == "devices"


def test_reads_of_an_interface_by_ethtool() -> None:
    """The same events have the names of sysfs; the line of `date` above shows when."""
    found = sample("ib_counters/handmade_ethtool.txt")
    assert found.row("devices", device="ens3f0np0/1")["parent"] == "ens3f0np0"
    rows = [row for row in found.rows("counters") if row["counter"] == "port_rcv_errors"]
    assert [(row["sample"], row["value"]) for row in rows] == [(0, 4), (1, 812)]
    assert rows[1]["time_ns"] - rows[0]["time_ns"] == 60 * 10**9
    assert not found.problems and len(found.rows("devices")) == 2


STATISTICS = "NIC statistics:\n     rx_packets: 12\n     [0] tx errors: 99999999999999999999\n     rx_packets: 13\n"


@pytest.mark.parametrize(
    ("name", "text", "devices"),
    [
        ("ethtool_enp5s0.txt", STATISTICS, {"enp5s0/1"}),
        ("n1/ethtool-S-eth1.txt", "\x1b[0m$ cat it\n" + STATISTICS, {"eth1/1"}),
        ("a.txt", "+ ethtool -S eth2\n" + STATISTICS + "$ ethtool --statistics eth3\n" + STATISTICS, {"eth2/1", "eth3/1"}),
    ],
)
def test_what_names_the_interface(name: str, text: str, devices: set[str]) -> None:
    found = read(text.encode(), name)
    assert {(row["device"], row["counter"], row["value"]) for row in found.rows("counters")} == {
        (device, "rx_packets", 12) for device in devices
    }
    assert {row["time_ns"] for row in found.rows("counters")} == {None}


def test_statistics_of_an_interface_that_nothing_names_are_said() -> None:
    found = read(STATISTICS.encode(), "nic.txt")
    assert not found.rows("counters") and "nothing names" in found.problems[0].message


def series(*lines: str) -> bytes:
    head = {"schema": "forensics.ib-series/1", "node": "n1", "time_ns": 1, "devices": {"mlx5_0": {"ports": {"1": {}}}}}
    return "\n".join([json.dumps(head), *lines, ""]).encode()


def counted(second: float, **values: int) -> str:
    return json.dumps({"time_ns": int(second * 1e9), "ports": {"mlx5_0/1": values}})


def test_of_a_series_the_last_two_seconds_are_compared() -> None:
    """A counter that is not stated again has not changed."""
    found = read(series(counted(1, a=1, b=5), counted(2, a=10), counted(3, a=100), counted(4.5, a=1000)))
    assert found.problems == [] and found.identities == [Identity(host="n1")]
    assert found.row("devices", device="mlx5_0/1")["parent"] == "mlx5_0"
    rows = {(row["counter"], row["sample"]): (row["value"], row["time_ns"] / 1e9) for row in found.rows("counters")}
    assert rows == {("a", 0): (10, 2.0), ("b", 0): (5, 2.0), ("a", 1): (1000, 4.5), ("b", 1): (5, 4.5)}


def test_lines_of_a_series_that_are_no_reads_are_named() -> None:
    found = read(series("{", "[]", counted(1, a=1), '{"ports": {}}', counted(2, a=2)[:-9]))
    assert [problem.locator for problem in found.problems] == ["line=2", "line=3", "line=5", "line=6"]
    assert [row["value"] for row in found.rows("counters")] == [1]


def test_files_of_sysfs_as_grep_prints_them() -> None:
    found = sample("ib_counters/handmade_sysfs.txt")
    assert (found.ingester, found.problems) == ("ib_counters", [])
    port = found.row("devices", device="mlx5_0/1", state="4: ACTIVE")
    assert port["rate_bytes_per_s"] == 50_000_000_000
    errors = [row for row in found.rows("counters") if row["counter"] == "local_ack_timeout_err"]
    assert [(row["value"], row["sample"]) for row in errors] == [(2705, 0), (2791, 1)]
    assert errors[1]["time_ns"] - errors[0]["time_ns"] == 10_000_000_000
    link = {row["counter"]: row["value"] for row in found.rows("counters") if row["device"] == "mlx5_0"}
    assert link == {"pcie_gen": 5, "pcie_gen_max": 5, "pcie_width": 8, "pcie_width_max": 16}


def test_a_file_that_comes_again_begins_the_next_read() -> None:
    line = "/sys/class/infiniband/mlx5_1/ports/1/counters/symbol_error:{}\n/sys/class/infiniband/mlx5_1/ports/1/rate:x\n"
    rows = read("".join(map(line.format, (1, 4, "N/A (no PMA)"))).encode()).rows("counters")
    assert [(row["sample"], row["value"], row["time_ns"]) for row in rows] == [(0, 1, None), (1, 4, None)]


def test_metrics_of_node_exporter() -> None:
    found = sample("ib_counters/handmade_node_exporter.txt")
    assert (found.ingester, found.problems) == ("ib_counters", [])
    ports = {row["device"]: (row["state"], row["rate_bytes_per_s"]) for row in found.rows("devices") if row["kind"] == "port"}
    assert ports == {"mlx5_0/1": ("4: ACTIVE, 5: LinkUp", 50_000_000_000), "mlx5_1/1": ("1: DOWN, 2: Polling", 5_000_000_000)}
    values = {(row["device"], row["counter"]): row["value"] for row in found.rows("counters")}
    assert values["mlx5_0/1", "port_xmit_data"] == 22_031_412_340 // 4
    assert (values["mlx5_0/1", "local_ack_timeout_err"], values["mlx5_1/1", "port_xmit_packets"]) == (2705, 0)


def test_a_log_that_quotes_a_metric_is_a_log() -> None:
    text = b'rank 0 step 3\nnode_infiniband_state_id{device="mlx5_0",port="1"} 4\nrank 0 step 4\n'
    assert read(text, "train.log").ingester != "ib_counters"
