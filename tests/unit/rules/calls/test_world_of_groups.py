"""How many ranks a job has where only its groups are recorded."""

from __future__ import annotations

import pytest

from forensics.case.database import new_case
from forensics.rules.reductions.ranks.roster import read_roster


@pytest.mark.parametrize(
    ("sizes", "highest", "world"),
    [((8, 2), 7, 8), ((8, 2), 3, 8), ((4, 2), 7, None), ((), 7, None)],
    ids=["one holds all", "one holds more than are seen", "groups of a larger job", "none is reported"],
)
def test_a_group_is_the_job_only_if_all_ranks_fit_in(sizes: tuple[int, ...], highest: int, world: int | None) -> None:
    with new_case() as case:
        for size in sizes:
            case.execute("INSERT INTO communicators VALUES (?, 0, 'g', '', 'nccl', ?, 'reported', 'read')", [f"g{size}", size])
        case.execute("INSERT INTO ranks (rank, host) SELECT range, 'n' FROM range(?)", [highest + 1])
        assert read_roster(case).world_size == world
