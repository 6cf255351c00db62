"""A slow rank whose process is held back from its cores: said beside it where few of the others are, and of no other."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from forensics.case.database import insert_rows, new_case
from forensics.rules.core_evidence import core_evidence
from forensics.rules.engine import supply_of
from forensics.rules.reductions.hardware.allowed_cores import AllowedCores
from forensics.rules.reductions.hardware.held_back import CoreTimes

Facts = Mapping[int, Mapping[str, object]]
NO_QUOTA = {"group": "/", "cores": None, "periods": 0, "throttled_periods": 0, "throttled_us": 0}
FREE = {"nice": 0, "cpu_limit": NO_QUOTA}
ALL: Facts = dict.fromkeys(range(8), FREE)


def limited(share: float, group: str = "/pod", cores: float = 2.0) -> dict[str, object]:
    """Facts of a process whose group was held back in this share of a thousand periods."""
    cut = round(1000 * share)
    limit = {"group": group, "cores": cores, "periods": 1000, "throttled_periods": cut, "throttled_us": 50_000 * cut}
    return {"nice": 0, "cpu_limit": limit}


def stated(ranks: tuple[int, ...], facts: Facts, hosts: int = 1) -> list[str]:
    """What is said beside slow ranks of a job of which these facts are known; its ranks lie on hosts one by one."""
    connection = new_case()
    sources: list[tuple[object, ...]] = [(rank, f"ranks/{rank}/rank.json", f"n{rank % hosts}", "ok", 1) for rank in facts]
    insert_rows(connection, "sources", "source_id path host status rows", sources)
    rows: list[tuple[object, ...]] = [
        (rank, rank, f"process.{key}", json.dumps(value)) for rank, each in facts.items() for key, value in each.items()
    ]
    insert_rows(connection, "job_config", "source_id rank key value", rows)
    return [each.statement for each in core_evidence(ranks, AllowedCores({}), supply_of(connection).get(CoreTimes))]


def test_a_quota_that_cuts_periods_short_is_stated_with_its_numbers() -> None:
    said = stated((3,), {**ALL, 3: limited(0.43)})
    assert said == [
        "the limit of 2 cores of the control group of rank 3 cut short 43 % of its periods, 21.5 s in all (cpu.stat); "
        "0 % usual for the others"
    ]


@pytest.mark.parametrize(
    ("ranks", "facts", "is_said"),
    [
        ((3,), {**ALL, 3: limited(0.05)}, False),
        ((3,), {rank: limited(0.2, f"/{rank}") for rank in range(8)}, False),
        ((3,), {rank: limited(0.02 if rank != 3 else 0.5, f"/{rank}") for rank in range(8)}, True),
        ((3,), {**ALL, 0: limited(0.4), 1: limited(0.4), 3: limited(0.4)}, False),
        ((2, 3), {**ALL, 3: limited(0.4)}, False),
        ((2, 3), {**ALL, 2: limited(0.4), 3: limited(0.4)}, True),
        ((3,), {3: limited(0.4), 2: FREE, 1: FREE}, False),
        ((3,), {**ALL, 3: {"nice": 0}}, False),
        ((3,), {rank: {"nice": 0} for rank in range(8) if rank != 3} | {3: limited(0.4)}, False),
        ((4,), {**ALL, 3: limited(0.43)}, False),
        ((), ALL, False),
    ],
    ids=[
        "a start", "all ranks alike", "far more than the others", "others as well", "one of two", "both", "too few others",
        "its own not known", "others not known", "a rank that is not slow", "nobody named",
    ],
)  # fmt: skip
def test_only_where_the_others_are_not_held_back_as_often(ranks: tuple[int, ...], facts: Facts, is_said: bool) -> None:
    assert bool(stated(ranks, facts)) is is_said


def test_a_group_that_ranks_in_time_share_is_stated_as_such() -> None:
    facts = {**dict.fromkeys(range(12), FREE), 4: limited(0.4), 8: limited(0.4)}
    assert stated((4,), facts, 4)[0].endswith("0 % usual for the others; 1 rank beside share that group")
    assert "beside" not in stated((4,), {**facts, 8: FREE, 9: limited(0.4)}, 4)[0]


@pytest.mark.parametrize(
    ("nice", "others", "is_said"),
    [(10, 0, True), (19, 10, True), (4, 0, False), (10, 10, False), (0, 10, False)],
    ids=["niced", "more than the others", "a little", "all of them", "less than the others"],
)
def test_a_nice_value_is_said_where_it_is_higher(nice: int, others: int, is_said: bool) -> None:
    said = stated((3,), {rank: {"nice": nice if rank == 3 else others} for rank in range(8)})
    expected = f"the nice value of rank 3 is {nice}, of the others {others}: on a busy core it gets less of the time"
    assert said == ([expected] if is_said else [])
