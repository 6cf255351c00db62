"""A GPU that may draw less than all others is pointed at where it draws all of that, and only where the others are alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.recordings.verdicts import unnamed

HEAD = "index, utilization.gpu [%], power.draw [W], enforced.power.limit [W]\n"
USUAL = (402.11, 700.00)


def table(odd: Sequence[tuple[float, float]], count: int = 8) -> dict[str, str]:
    """The GPUs of a host, of which the third and the next ones are odd, by what they draw and may draw."""
    watts = [USUAL] * count
    watts[2 : 2 + len(odd)] = odd
    rows = (f"{gpu}, 100 %, {draw:.2f} W, {most:.2f} W\n" for gpu, (draw, most) in enumerate(watts))
    return {"gpus.csv": HEAD + "".join(rows)}


@pytest.mark.parametrize(
    ("odd", "is_lead"),
    [
        ([(291.30, 300.00)], True),
        ([(120.40, 300.00)], False),
        ([(402.00, 650.00)], False),
        ([(291.30, 300.00), (288.00, 300.00)], False),
        ([(291.30, 300.00), (388.00, 500.00)], False),
    ],
    ids=["held down", "draws less", "nearly as much", "two", "others differ"],
)
def test_the_one_gpu_that_may_draw_less_than_all_others(
    odd: Sequence[tuple[float, float]], is_lead: bool, tmp_path: Path
) -> None:
    leads = unnamed(tmp_path, table(odd)).leads
    assert any(lead.startswith("GPU-2") and "draws 291 W of the 300 W it may" in lead for lead in leads) == is_lead
    assert is_lead or not leads


def test_of_few_gpus_none_is_unusual(tmp_path: Path) -> None:
    assert not unnamed(tmp_path, table([(291.30, 300.00)], 3)).leads
