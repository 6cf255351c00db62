"""Links as iblinkinfo, ethtool and lspci print them."""

from __future__ import annotations

import pytest

from tests.unit.ingest.reading import read

SWITCH = "Switch: 0xb83fd20300a1c200 MF0;leaf-3:MQM9700/U1:\n"
ROW = '          20   {0:2}[  ] ==( {1}X      {2} Gbps Active/  LinkUp)==>     10{0}    1[  ] "{3}" ( {4})\n'
DOWN = '          20    9[  ] ==(                Down/ Polling)==>             [  ] "" ( )\n'


def test_links_of_a_fabric_are_of_the_hosts_at_their_ends() -> None:
    rows = ROW.format(1, 4, "106.25", "gpu-1 mlx5_0", "") + ROW.format(
        2, 1, "53.125", "gpu-2 mlx5_0", "Could be 4X 106.25 Gbps"
    )
    spine = ROW.format(3, 2, "106.25", "MF0;spine-1:MQM9700/U1", "Could be 4X ")
    ca = "CA: gpu-3 HCA-1:\n" + ROW.format(1, 4, "25.78125", "MF0;leaf-3:MQM9700/U1", "")
    result = read((SWITCH + rows + spine + DOWN + ca).encode())
    ports = {(row["host"], row["device"]): row["rate_bytes_per_s"] for row in result.rows("devices") if row["kind"] == "port"}
    assert ports == {
        ("gpu-1", "mlx5_0/1"): 53_125_000_000,
        ("gpu-2", "mlx5_0/1"): 6_640_625_000,
        ("gpu-3", "HCA-1/1"): 12_890_625_000,
    }
    most = {(row["host"], row["value"]) for row in result.rows("counters") if row["counter"] == "rate_mbits_most"}
    assert most == {("gpu-2", 425_000)}


WHOLE = (
    "Settings for ens1f0:\n\tSupported ports: [ FIBRE ]\n\tSupported link modes:   100000baseCR4/Full\n"
    "\t                        25000baseCR/Full\n\tSpeed: {0}\n\tDuplex: Full\n\tLink detected: {1}\n"
)


@pytest.mark.parametrize(
    ("text", "device", "rate", "state"),
    [
        (WHOLE.format("25000Mb/s", "yes"), "ens1f0/1", 3_125_000_000, "Active"),
        (WHOLE.format("Unknown!", "no") + "Settings for ens2:\n\tSpeed: 1000Mb/s\n", "ens1f0/1", None, "Down"),
        ("\tSpeed: 100000Mb/s\n", "interface/1", 12_500_000_000, None),
    ],
    ids=["whole", "without a link", "filtered"],
)
def test_settings_of_an_interface(text: str, device: str, rate: int | None, state: str | None) -> None:
    port = read(text.encode()).row("devices", device=device)
    assert (port["rate_bytes_per_s"], port["state"]) == (rate, state)


def test_a_log_that_speaks_of_a_speed_is_a_log() -> None:
    text = "2026-03-02 03:13:00 INFO step 4/90 loss 2.1\n\tSpeed: 1000Mb/s\n" * 4
    assert not read(text.encode()).rows("devices")


NIC = "9a:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
GPU = "0000:01:00.0 3D controller [0302]: NVIDIA Corporation GA100 [A100 PCIe 40GB] [10de:20f1] (rev a1)\n"
BRIDGE = "00:01.1 PCI bridge: Advanced Micro Devices, Inc. [AMD] Starship/Matisse GPP Bridge\n"
BOARD = "02:00.0 VGA compatible controller: ASPEED Technology, Inc. ASPEED Graphics Family (rev 41)\n"
LINK = "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n\t\t\tClockPM- Surprise-\n"
STATE = "\t\tLnkSta:\tSpeed 16GT/s (downgraded), Width x8 (downgraded)\n"


def test_links_of_nics_and_gpus_by_their_addresses() -> None:
    result = read("".join(device + LINK + STATE for device in (BRIDGE, NIC, BOARD, GPU)).encode())
    kinds = {row["device"]: row["kind"] for row in result.rows("devices")}
    assert kinds == {"0000:9a:00.0": "nic", "GPU-0000:01:00.0": "gpu"}
    link = {row["counter"]: row["value"] for row in result.rows("counters") if row["device"] == "0000:9a:00.0"}
    assert link == {"pcie_gen": 4, "pcie_gen_max": 5, "pcie_width": 8, "pcie_width_max": 16}
