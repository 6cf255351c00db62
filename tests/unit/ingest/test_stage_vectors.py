"""Files of the recorder: whole, torn, cut and hostile."""

from __future__ import annotations

import random

import pytest

from forensics.recorder import layout
from tests.unit.ingest.reading import SAMPLES, Result, read, sample

PATH = "stage_vectors/rank_0.stages"


def content(rank: int = 0) -> bytes:
    return (SAMPLES / "stage_vectors" / f"rank_{rank}.stages").read_bytes()


def test_steps_and_stages_of_the_sample() -> None:
    found = sample(PATH)
    assert found.problems == []
    assert [row["step"] for row in found.rows("steps")] == [100, 101, 102, 103, 104, 105]
    first = [row for row in found.rows("stage_spans") if row["step"] == 100]
    stages = [(row["stage"], row["substage"], row["side_channel"]) for row in sorted(first, key=lambda row: row["order_index"])]
    assert stages == [
        ("data", None, False),
        ("forward", None, False),
        ("backward", "reduce", True),
        ("backward", None, False),
        ("callbacks", None, False),
        ("optimizer", "optim.zero_grad", False),
        ("optimizer", None, False),
    ]
    assert found.config() == {"world_size": "2"}
    assert {row["group_role"] for row in first} == {"dp"}


def test_a_stage_that_a_step_leaves_out_keeps_the_schema() -> None:
    found = sample(PATH)
    assert len({row["schema_hash"] for row in found.rows("stage_spans")}) == 1


def test_times_are_on_the_realtime_clock_and_within_the_step() -> None:
    found = sample(PATH)
    steps = {row["step"]: row for row in found.rows("steps")}
    for row in found.rows("stage_spans"):
        step = steps[row["step"]]
        assert step["begin_ns"] <= row["begin_ns"] and row["begin_ns"] + row["duration_ns"] <= step["end_ns"]
    assert 1.7e18 < steps[100]["begin_ns"] < 2.5e18


@pytest.mark.parametrize("size", [8, 100, layout.SLOTS_OFFSET - 1, layout.SLOTS_OFFSET, layout.SLOTS_OFFSET + 1000, 19_000])
def test_a_cut_file_gives_the_slots_that_are_whole(size: int) -> None:
    found = read(content()[:size], PATH)
    whole = max(0, size - layout.SLOTS_OFFSET) // layout.slot_bytes(8)
    assert len(found.rows("steps")) == whole
    assert found.problems or whole


def test_a_torn_slot_is_left_out_and_counted() -> None:
    damaged = bytearray(content())
    tail = layout.SLOTS_OFFSET + layout.slot_bytes(8) - layout.TAIL.size
    damaged[tail] ^= 0xFF
    found = read(bytes(damaged), PATH)
    assert len(found.rows("steps")) == 5
    assert "half written" in found.problems[0].message


def test_noise_gives_problems_and_no_error() -> None:
    chance = random.Random(4)
    for _ in range(60):
        damaged = bytearray(content())
        for _ in range(chance.randrange(1, 400)):
            damaged[chance.randrange(8, len(damaged))] = chance.randrange(256)
        found: Result = read(bytes(damaged), PATH)
        assert len(found.rows("steps")) <= 6
