"""What users met in the field (StageFrontier Table 8, section 6.6), from files of the recorder to the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from forensics.case.build import open_case
from forensics.report.frontier import lines
from forensics.report.json import document
from forensics.rules.diagnosis import diagnose
from tests.unit.frontier.recorded import MS, Floats, Recording, synchronous, write

ORDER = ("data", "forward", "backward", "callbacks", "optimizer")
SPLIT = ("data.fetch", "data.decode", "data.post", "forward", "backward", "optimizer")
NODES = ("node-1", "node-2", "node-3", "node-4")
STRONG = {"direct_exposure", "sync_wait_dependent", "likely_sync_wait", "forward_device_supported"}


def usual(steps: int, ranks: int, *stages_ms: float) -> Floats:
    return np.tile(np.array(stages_ms, dtype=np.float64)[None, :, None], (steps, 1, ranks))


def work(steps: int = 130) -> Floats:
    """Eight ranks with 190 ms of work a step."""
    return usual(steps, 8, 5, 60, 100, 4, 20)


def verdict(folder: Path, run: Recording, **options: Any) -> dict[str, Any]:
    connection = open_case([write(folder / "stages", run, **options)], None)
    try:
        return dict(orjson.loads(orjson.dumps(document(diagnose(connection, {})))))
    finally:
        connection.close()


def named(found: dict[str, Any]) -> list[tuple[str, list[int]]]:
    return [(str(suspect["stage"]["name"]), suspect["ranks"]) for suspect in found["suspects"]]


def shares(found: dict[str, Any]) -> dict[str, float]:
    window = found["frontier"]["windows"][0]
    return dict(zip(window["stages"], window["shares"], strict=True))


def labels(found: dict[str, Any]) -> set[str]:
    return {label["label"] for label in found["labels"]}


@pytest.mark.parametrize("hosts", [NODES[:1], NODES])
def test_vision_a_a_data_tail_of_changing_ranks(tmp_path: Path, hosts: tuple[str, ...]) -> None:
    """Most steps lose nothing; those that do lose it to another rank each time."""
    chance = np.random.default_rng(7)
    does = usual(120, 16, 8, 120, 220, 3, 20)
    for step in np.flatnonzero(chance.random(120) < 0.45):
        does[step, 0, chance.integers(16)] += chance.uniform(200, 900)
    run = synchronous(ORDER, does)
    assert np.median(run.durations[:, 0]) < 10 * MS < 200 * MS < np.quantile(run.durations[:, 0].max(axis=1), 0.6)
    found = verdict(tmp_path, run, hosts=hosts)
    assert named(found) == [("data", [])]
    (suspect,) = found["suspects"]
    assert suspect["cause"] == "dataloader_stall" and suspect["confidence"] == "suspect"
    assert "changing ranks" in suspect["evidence"][0]["statement"]
    assert shares(found)["data"] > 0.35 and found["frontier"]["windows"][0]["routing_set"][0] == "data"


def test_vision_b_a_callback_of_one_rank_every_tenth_step(tmp_path: Path) -> None:
    """Its median is 2 ms; forward and data are larger and nobody's fault."""
    chance = np.random.default_rng(7)
    does = usual(90, 8, 600, 1200, 150, 2, 20)
    does[:, 0] *= chance.uniform(0.7, 1.3, (90, 8))
    does[::10, 3, 5] = 7170
    run = synchronous(ORDER, does)
    assert np.median(run.durations[:, 3]) < 3 * MS
    found = verdict(tmp_path, run)
    assert named(found) == [("callbacks", [5])]
    assert "every 10 steps" in found["suspects"][0]["evidence"][0]["statement"]
    assert any("every 10 steps" in step for step in found["suspects"][0]["next_steps"])
    assert 0.15 < shares(found)["callbacks"] < 0.3 and "callbacks" in found["frontier"]["windows"][0]["routing_set"]


def test_mixed_a_data_is_a_part_of_data(tmp_path: Path) -> None:
    """The workers are idle; what is slow is what is done with the batch afterwards, on one rank more than on the others."""
    does = usual(40, 8, 5, 40, 5000, 250, 250, 20)
    does[:, 2, 3] += 4000
    found = verdict(tmp_path, synchronous(SPLIT, does))
    assert named(found) == [("data", [3])] and found["suspects"][0]["stage"]["substage"] == "data.post"
    window = found["frontier"]["windows"][0]
    assert shares(found)["data"] > 0.9 and window["routing_set"] == ["data"]
    assert window["leader"]["ranks"] == [3] and window["leader"]["delta_lag_ns"] > 3.5e9
    assert {"sync_wait_dependent", "likely_sync_wait"} <= labels(found)


def test_mixed_a_on_all_ranks_the_account_tells_the_part(tmp_path: Path) -> None:
    folder = write(tmp_path / "stages", synchronous(SPLIT, usual(40, 8, 5, 40, 5000, 250, 250, 20)))
    connection = open_case([folder], None)
    found = diagnose(connection, {})
    connection.close()
    assert found.suspects == ()
    (window,) = found.frontier
    parts = {part: advance / window.exposed_ns for _, part, advance in window.parts}
    assert list(parts) == ["data.fetch", "data.decode", "data.post"] and parts["data.post"] > 0.88 > 0.02 > parts["data.fetch"]
    whole = dict(zip(window.stages, window.advances_ns, strict=True))["data"]
    assert sum(advance for *_, advance in window.parts) == pytest.approx(whole, abs=3)
    text = [line for _, line in lines(window)]
    assert any(line.endswith("data.post") and "%" in line for line in text)


@pytest.mark.parametrize(
    ("stages_ms", "forward"),
    [((50, 760, 150, 40), 0.76), ((100, 670, 220, 10), 0.67)],
    ids=["qat_a", "qat_b"],
)
def test_qat_forward_of_all_ranks_is_reported_and_accuses_nobody(
    tmp_path: Path, stages_ms: tuple[float, ...], forward: float
) -> None:
    found = verdict(tmp_path, synchronous(ORDER[:4], usual(100, 8, *stages_ms)))
    assert found["suspects"] == [] and not labels(found) & STRONG
    assert shares(found)["forward"] == pytest.approx(forward, abs=0.03)
    assert found["frontier"]["windows"][0]["routing_set"][0] == "forward"


@pytest.mark.parametrize("begins", [0, 60])
def test_device_work_of_forward_that_shows_in_backward(tmp_path: Path, begins: int) -> None:
    """With device times the stage and rank that launched it are named; without, backward at most, and never a rank."""
    does, device = work(), np.full((130, 8), 55.0 * MS)
    does[begins:, 2, 3] += 120
    device[begins:, 3] += 120 * MS
    run = synchronous(ORDER, does)
    stated = verdict(tmp_path, run, device=("forward", device), every=10)
    assert named(stated) == [("forward", [3])] and stated["suspects"][0]["cause"] == "compute_slow"
    assert "device time" in " ".join(each["statement"] for each in stated["suspects"][0]["evidence"])
    assert (stated["since"] or {}).get("step", 0) == begins

    (tmp_path / "plain").mkdir()
    blind = verdict(tmp_path / "plain", run)
    assert named(blind) == ([("backward", [])] if begins else [])
    assert blind["frontier"]["windows"][0]["routing_set"][0] == "backward"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("hosts", [NODES[:1], NODES])
def test_a_slowdown_of_everything_is_in_no_stage(tmp_path: Path, seed: int, hosts: tuple[str, ...]) -> None:
    chance, does = np.random.default_rng(seed), work()
    does[60:] *= chance.uniform(1.3, 1.9, (70, 1, 8))
    found = verdict(tmp_path, synchronous(ORDER, does, seed=seed), hosts=hosts)
    assert found["outcome"] == "slowdown" and abs(found["suspects"][0]["stage"]["step"] - 60) <= 1
    assert named(found) == [("unknown", [])]
    (suspect,) = found["suspects"]
    assert (suspect["cause"], suspect["confidence"], suspect["granularity"]) == ("unknown", "suspect", "job")
    assert "every stage" in suspect["evidence"][0]["statement"] and suspect["hosts"] == []


def test_a_slowdown_of_one_stage_of_all_ranks_is_in_that_stage(tmp_path: Path) -> None:
    does = work()
    does[60:, 1] *= 2.5
    assert named(verdict(tmp_path, synchronous(ORDER, does))) == [("forward", [])]


def test_a_recurrent_rank_is_not_a_node(tmp_path: Path) -> None:
    does = work()
    does[:, 0, 3] += 100
    found = verdict(tmp_path, synchronous(ORDER, does), hosts=NODES[:2])
    assert named(found) == [("data", [3])]
    (suspect,) = found["suspects"]
    assert (suspect["granularity"], suspect["cause"], suspect["resource"]) == ("rank", "dataloader_stall", None)
    assert not any(word in step for step in suspect["next_steps"] for word in ("node", "drain", "host"))


def test_delays_side_by_side_are_co_critical_and_both_named(tmp_path: Path) -> None:
    """Taking one away wins nothing, because the other rank is as late; that is no sound job."""
    does = work()
    does[:, 0, 1] += 100
    does[:, 1, 2] += 102
    found = verdict(tmp_path, synchronous(ORDER, does))
    assert sorted(named(found)) == [("data", [1]), ("forward", [2])]
    assert {suspect["confidence"] for suspect in found["suspects"]} == {"suspect"}
    against = [[each["statement"] for each in suspect["evidence"] if not each["for"]] for suspect in found["suspects"]]
    assert all(any("alone it would win next to nothing" in line for line in each) for each in against)
    assert "co_critical" in labels(found)


def test_a_shorter_delay_beside_a_longer_one_is_not_named(tmp_path: Path) -> None:
    does = work()
    does[:, 0, 1] += 150
    does[:, 1, 2] += 60
    assert named(verdict(tmp_path, synchronous(ORDER, does))) == [("data", [1])]


def test_stages_of_nearly_equal_share_are_tied(tmp_path: Path) -> None:
    found = verdict(tmp_path, synchronous(ORDER, usual(100, 8, 100, 102, 98, 4, 10)))
    assert found["suspects"] == [] and "co_critical" in labels(found) and not labels(found) & STRONG
    assert {"data", "forward", "backward"} <= set(found["frontier"]["windows"][0]["ambiguity_set"])
