"""Which links of GPUs are up, as nvidia-smi and DCGM print it, and what is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest import choose
from forensics.rules.reductions.hardware.causes import Oddity
from forensics.rules.reductions.hardware.state import machines
from tests.unit.ingest.reading import SAMPLES, read
from tests.unit.rules.hardware.test_hardware_state import WORK, gpu, kinds, of

SMI = "GPU {}: NVIDIA H100 80GB HBM3 (UUID: GPU-11d2{}-aa)\n{}"
DCGM = (
    "+----------------------+\n|  NvLink Link Status  |\n+----------------------+\nGPUs:\n    gpuId 0:\n        U U U D _ _\n"
    "    gpuId 1:\n        U U U U _ _\nNvSwitches:\n    physicalId 8:\n        D D D D\n\nKey: Up=U, Down=D, Disabled=X\n"
)


def status(*links: str) -> str:
    """One letter a link: up or down."""
    below = {"u": "26.562 GB/s", "d": "<inactive>"}
    rows = ("".join(f"\t Link {at}: {below[state]}\n" for at, state in enumerate(each)) for each in links)
    return "".join(SMI.format(at, at, text) for at, text in enumerate(rows))


def counted(text: str) -> dict[tuple[str, str], int]:
    return {(row["device"], row["counter"]): row["value"] for row in read(text.encode(), "nvlink.txt").rows("counters")}


def test_links_by_nvidia_smi() -> None:
    found = counted(status("uuuu", "udud"))
    assert found == {("GPU-0", "nvlinks_up"): 4, ("GPU-0", "nvlinks"): 4, ("GPU-1", "nvlinks_up"): 2, ("GPU-1", "nvlinks"): 4}


def test_links_by_dcgm_are_those_of_gpus() -> None:
    found = counted(DCGM)
    assert found == {("GPU-0", "nvlinks_up"): 3, ("GPU-0", "nvlinks"): 4, ("GPU-1", "nvlinks_up"): 4, ("GPU-1", "nvlinks"): 4}


def test_no_device_is_made_of_it_that_would_hide_what_else_is_known() -> None:
    assert read(status("uu").encode(), "nvlink.txt").rows("devices") == []


@pytest.mark.parametrize("text", [status(""), "see Link 3: <inactive> of GPU 0\n", "NvLink Link Status was fine\n"])
def test_texts_that_only_look_like_it(text: str) -> None:
    found = choose(text.encode(), "notes.txt")
    assert found is None or found.name != "nvidia_smi"


def test_a_gpu_with_fewer_links_than_its_peers() -> None:
    found = of(*(gpu(at, readings=WORK | {"nvlinks_up": 12 if at == 2 else 18}) for at in range(4)))
    assert kinds(found) == {2: [Oddity.ERRORS]}
    assert found.signs[2][0].statement == "GPU 2 of rank 2 has 12 NVLinks up, its peers 18"


@pytest.mark.parametrize("links", [[0, 0, 0, 0], [12, 12, 12, 12], [None, 12, None, None]])
def test_links_that_tell_no_difference(links: list[int | None]) -> None:
    readings = ({"nvlinks_up": each} if each is not None else {} for each in links)
    assert kinds(of(*(gpu(at, readings=WORK | each) for at, each in enumerate(readings)))) == {}


DIAGNOSTICS = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Deployment  --------+------------------------------------------------|
| NVML Library              | Pass                                           |
+-----  Integration  -------+------------------------------------------------+
| PCIe                      | Fail - All                                     |
| Warning                   | GPU 0 GPU 0's link is currently down           |
+-----  Hardware  ----------+------------------------------------------------+
| GPU Memory                | Pass - GPUs: 0, 1, 3                           |
|                           | Fail - GPU: 2                                  |
| Warning                   | GPU 2 Thermal violations totaling 13.3 second  |
|                           | Fail - GPU: 0                                  |
| Diagnostic                | Fail - GPUs: 1, 3                              |
"""


def test_tests_that_some_gpus_failed() -> None:
    rows = read(DIAGNOSTICS.encode(), "dcgm.txt").rows("device_events")
    assert [(row["locator"], row["device"], row["text"]) for row in rows] == [
        (12, "GPU-2", "DCGM's test GPU Memory failed"),
        (15, "GPU-1", "DCGM's test Diagnostic failed"),
        (15, "GPU-3", "DCGM's test Diagnostic failed"),
    ]


OF_EACH = """Successfully ran diagnostic for group.
+---------------------------+------------------------------------------------+
| Diagnostic                | Result                                         |
+===========================+================================================+
|-----  Metadata  ----------+------------------------------------------------|
| DCGM Version              | 4.4.1                                          |
|-----  Deployment  --------+------------------------------------------------|
| software                  | Fail                                           |
|                           | GPU0: Fail                                     |
|                           | GPU1: Fail                                     |
| Warning: GPU0             | Persistence mode for GPU 0 is disabled.        |
+-----  Hardware  ----------+------------------------------------------------+
| memory                    | Fail                                           |
|                           | GPU0: Pass                                     |
|                           | GPU1: Fail                                     |
| Error: GPU1               | GPU0: Fail is what it does not say             |
"""


def test_tests_that_list_each_gpu() -> None:
    rows = read(OF_EACH.encode(), "dcgm.txt").rows("device_events")
    assert [(row["locator"], row["device"], row["text"]) for row in rows] == [(15, "GPU-1", "DCGM's test memory failed")]


def test_failed_tests_and_links_join_what_another_text_says_of_the_gpu(tmp_path: Path) -> None:
    folder = tmp_path / "node-1"
    folder.mkdir()
    (folder / "nvidia-smi.txt").write_bytes((SAMPLES / "nvidia_smi" / "handmade_table.txt").read_bytes())
    (folder / "z-dcgm.txt").write_text(DIAGNOSTICS)
    (folder / "z-links.txt").write_text(status("uuuu", "uuuu", "uudd"))
    connection = open_case([tmp_path])
    rows = "".join(f"({rank}, 'node-1', {4240 + rank})," for rank in range(3)).rstrip(",")
    connection.execute(f"INSERT INTO ranks (rank, host, pid) VALUES {rows}")
    found = machines(connection).gpus[2]
    assert (found.readings["nvlinks_up"], "memory_used_bytes" in found.readings) == (2, True)
    assert "DCGM's test GPU Memory failed" in found.states.values()
