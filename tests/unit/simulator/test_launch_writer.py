"""Settings of a job as its launcher leaves them: right, absent or of another run, whatever the fault."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle, losses
from forensics.fixtures.simulator.code import draw_code
from forensics.fixtures.simulator.code_bases import BASES
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.writers.interface import Options
from forensics.fixtures.simulator.writers.launch import stated
from tests.unit.simulator.small_jobs import DENSE


@pytest.fixture(scope="module")
def made() -> Simulation:
    return simulate(DENSE, [parse("none")], 5, iterations=4)


def with_settings(made: Simulation, style: str, wanted: str) -> dict[str, bytes]:
    """Members of the first seed whose settings are of this sort."""
    usual = bundle.options_of(made, style=style)
    options = next(one for seed in range(99) if stated(one := replace(usual, seed=seed)) == wanted)
    kept = losses.drawn(DENSE.parallel.world, np.random.default_rng(1), only=("processes", "logs"))
    return dict(bundle.members(made, options, kept))


def command(found: dict[str, bytes], rank: int = 3) -> list[str]:
    words: list[str] = json.loads(found[f"ranks/{rank}/rank.json"])["cmdline"]
    return words


def test_two_thirds_are_right_and_the_others_absent_or_wrong() -> None:
    code = draw_code(np.random.default_rng(1))
    counts = Counter(stated(Options(seed, code)) for seed in range(600))
    assert 360 < counts["right"] < 440 and 70 < counts["absent"] < 130 and 70 < counts["wrong"] < 130


@pytest.mark.parametrize("seed", range(3))
def test_no_fault_changes_what_is_left_of_the_settings(seed: int) -> None:
    left = []
    for fault in ("none", "host-hang"):
        made = simulate(DENSE, [parse(fault)], seed, iterations=4)
        kept = losses.drawn(DENSE.parallel.world, np.random.default_rng(1), only=("processes",))
        found = dict(bundle.members(made, bundle.options_of(made), kept))
        left.append((command(found), {path: text for path, text in found.items() if path.startswith("job/")}))
    assert left[0] == left[1]


def test_arguments_are_those_of_megatron(made: Simulation) -> None:
    found = with_settings(made, "megatron", "right")
    words = command(found)
    values = dict(pairwise(words))
    assert values["--tensor-model-parallel-size"] == "2" and values["--pipeline-model-parallel-size"] == "2"
    assert values["--global-batch-size"] == str(DENSE.microbatches * DENSE.parallel.data)
    log = found["ranks/0/logs/rank0.log"].decode()
    assert "  pipeline_model_parallel_size ...................." in log and "  bf16 " in log
    assert "arguments" not in found["ranks/1/logs/rank1.log"].decode()


def test_settings_of_another_run_have_other_sizes(made: Simulation) -> None:
    words = command(with_settings(made, "megatron", "wrong"))
    assert int(words[words.index("--pipeline-model-parallel-size") + 1]) > DENSE.parallel.pipeline


def test_files_of_settings_are_read_as_what_they_are(made: Simulation) -> None:
    parallelism = tomllib.loads(with_settings(made, "mesh", "right")["job/train_config.toml"].decode())["parallelism"]
    assert (parallelism["pipeline_parallel_degree"], parallelism["pipeline_parallel_schedule"]) == (2, "1F1B")
    assert parallelism["data_parallel_replicate_degree"] * parallelism["data_parallel_shard_degree"] == DENSE.parallel.data
    settings = json.loads(with_settings(made, "deepspeed", "right")["job/ds_config.json"])
    assert settings["gradient_accumulation_steps"] == DENSE.microbatches


@pytest.mark.parametrize("style", sorted(BASES))
def test_nothing_is_left_of_absent_settings(made: Simulation, style: str) -> None:
    found = with_settings(made, style, "absent")
    assert not [path for path in found if path.startswith("job/")]
    assert command(found)[3:] == ["--config", bundle.options_of(made, style=style).code.root + "config.yaml"]


@pytest.mark.parametrize("style", ["mesh", "deepspeed"])
def test_our_reader_has_no_complaint_about_files_of_settings(made: Simulation, style: str, tmp_path: Path) -> None:
    for path, content in with_settings(made, style, "right").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    with open_case([tmp_path]) as opened:
        assert opened.execute("SELECT path, message FROM ingest_warnings WHERE path LIKE '%job/%'").fetchall() == []
