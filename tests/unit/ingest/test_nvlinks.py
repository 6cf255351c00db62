"""Which links of GPUs are up, as nvidia-smi and DCGM print it, and what is made of it."""

from __future__ import annotations

import pytest

from forensics.ingest import choose
from forensics.rules.reductions.hardware.causes import Oddity
from tests.unit.ingest.reading import read
from tests.unit.rules.test_hardware_state import WORK, gpu, kinds, of

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
