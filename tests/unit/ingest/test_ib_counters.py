from __future__ import annotations

import json

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


def test_a_document_without_devices_is_told() -> None:
    (problem,) = read(b'{"schema": "forensics.ib/1", "devices": 5}').problems
    assert problem.locator == "devices"
