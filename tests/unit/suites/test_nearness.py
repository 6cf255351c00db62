"""How near an answer comes to the faulty machines, with eight ranks on each."""

from __future__ import annotations

import pytest

from forensics.fixtures.suites.figures import by_machine
from forensics.fixtures.suites.nearness import Said, nearness
from tests.unit.suites.documents import fault, truth


def slow(component: str, *ranks: int) -> dict[str, object]:
    return truth("slowdown", fault(*ranks, anomaly="fail_slow")) | {
        "faults": [{"ranks": list(ranks), "stage": {"name": None, "component": component}}]
    }


GROUP = (1, 9, 17, 25)
CPU, NIC = slow("host", *range(8)), slow("communication", 1)


@pytest.mark.parametrize(
    ("true", "said", "level", "hit", "false"),
    [
        (CPU, [((3,), "compute")], "machine", True, False),
        (CPU, [((3,), "host")], "machine", True, False),
        (CPU, [(GROUP, "communication")], "misjudged", False, True),
        (CPU, [((9, 17), "compute")], "elsewhere", False, True),
        (CPU, [((3,), "compute"), ((9,), "communication")], "machine", True, True),
        (CPU, [], "nobody", False, False),
        (NIC, [(GROUP, "communication")], "group", True, True),
        (NIC, [((5,), None)], "machine", True, False),
        (NIC, [((1,), "compute")], "misjudged", False, True),
    ],
)
def test_levels(true: dict[str, object], said: list[Said], level: str, hit: bool, false: bool) -> None:
    found = nearness(said, true)
    assert (found.level, found.is_hit, found.is_false) == (level, hit, false)


def test_a_machine_has_as_many_ranks_as_the_truth_says() -> None:
    assert nearness([((0,), "communication")], NIC | {"gpus_per_host": 1}).level == "elsewhere"
    assert nearness([((0,), "communication")], NIC).level == "machine"


def test_a_case_counts_once_for_and_once_against() -> None:
    hit = nearness([((3,), "compute")], CPU)
    both = nearness([((3,), "compute"), ((9,), "communication")], CPU)
    wrong = nearness([(GROUP, "communication")], CPU)
    found = by_machine([(True, hit), (True, both), (True, wrong), (False, wrong)])
    assert (found.hits, found.missed, found.accused, found.flagged) == (2, 1, 3, 1)
    assert (found.precision, found.recall) == (2 / 5, 2 / 3)
