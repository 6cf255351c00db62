"""Whether the guests of a host compute, by what its GPUs draw and those of other hosts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from forensics.rules.reductions.hardware.guests import drawn_apart
from forensics.rules.reductions.hardware.state import Gpu


def gpus(*watts: int, model: str = "H100") -> list[Gpu]:
    return [Gpu("a", f"GPU-{n}", f"smi#{n}", model, readings={"power_mw": 1000 * drawn}) for n, drawn in enumerate(watts)]


WAITING = gpus(260, 260, 76, 260)


@pytest.mark.parametrize(
    ("own", "others", "is_shown"),
    [
        (gpus(870, 943), WAITING, True),
        (gpus(655, 741), gpus(489, 436, 450, 480), True),
        (gpus(870, 260), WAITING, False),
        (gpus(870, 943), gpus(690, 700, 700, 700), False),
        (gpus(870, 943), WAITING[:3], False),
        (gpus(870, 943), gpus(260, 260, 260, 260, model="A100"), False),
        ([*gpus(870), replace(gpus(0)[0], readings={})], WAITING, False),
    ],
    ids=[
        "all wait",
        "all compute",
        "one has an idle guest",
        "near the limit of all",
        "few others",
        "other boards",
        "one not read",
    ],
)
def test_each_gpu_of_the_host_draws_more_than_any_other(own: list[Gpu], others: list[Gpu], *, is_shown: bool) -> None:
    assert (drawn_apart(own, others) is not None) is is_shown
