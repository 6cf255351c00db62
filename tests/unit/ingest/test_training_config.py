"""Configuration of a training: files, commands and logs, and files that only look like one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.ingest import choose
from tests.unit.ingest.reading import read, sample

MEGATRON = (
    "torchrun --nproc-per-node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --pipeline-model-parallel-size=4 "
    "--num-layers 32 --num-layers-per-virtual-pipeline-stage 4 --sequence-parallel --use-distributed-optimizer "
    "--micro-batch-size 1 --global-batch-size 1024"
)
OF_MEGATRON = {
    "batch.global": "1024",
    "batch.micro": "1",
    "data.mode": "zero1",
    "model.layers": "32",
    "parallel.pipeline": "4",
    "parallel.tensor": "8",
    "pipeline.chunks": "2",
    "pipeline.layers_per_chunk": "4",
    "tensor.sequence_parallel": "true",
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "handmade_deepspeed.json",
            {"batch.accumulation": "8", "batch.micro": "2", "data.mode": "zero1", "pipeline.microbatches": "8"},
        ),
        (
            "handmade_torchtitan.toml",
            {
                "batch.local": "8",
                "batch.micro": "1",
                "parallel.context": "1",
                "parallel.data_replicate": "1",
                "parallel.pipeline": "4",
                "parallel.tensor": "8",
                "pipeline.microbatches": "8",
                "pipeline.schedule": "interleaved1f1b",
            },
        ),
        (
            "handmade_accelerate.yaml",
            {
                "data.mode": "fsdp",
                "parallel.context": "1",
                "parallel.data": "8",
                "parallel.data_replicate": "1",
                "parallel.data_shard": "8",
                "parallel.tensor": "2",
            },
        ),
        (
            "handmade_megatron.yaml",
            {
                "batch.global": "256",
                "batch.micro": "1",
                "model.layers": "48",
                "parallel.context": "1",
                "parallel.pipeline": "4",
                "parallel.tensor": "4",
                "pipeline.chunks": "3",
                "tensor.sequence_parallel": "true",
            },
        ),
    ],
)
def test_samples(name: str, expected: dict[str, str]) -> None:
    found = sample(f"training_config/{name}")
    assert found.config() == expected and not found.problems


@pytest.mark.parametrize(
    "log",
    [
        f"+ {MEGATRON}\n",
        "[default0]: " + MEGATRON.replace(" --", " \\\n[default0]:   --") + "\n",
        "\n".join(f"  {name} ........................ {value}" for name, value in (
            ("tensor_model_parallel_size", 8), ("pipeline_model_parallel_size", 4), ("num_layers", 32),
            ("num_layers_per_virtual_pipeline_stage", 4), ("sequence_parallel", True), ("use_distributed_optimizer", True),
            ("micro_batch_size", 1), ("global_batch_size", 1024), ("encoder_tensor_model_parallel_size", 3),
            ("virtual_pipeline_model_parallel_size", None), ("seq_length", 4096),
        )),
    ],
    ids=["command", "lines", "dump"],
)  # fmt: skip
def test_a_log_tells_what_it_was_started_with(log: str) -> None:
    found = read(log.encode(), "rank0.log").config()
    sizes = {name: found.pop(name) for name in ("log.world_size", "log.per_node") if name in found}
    assert found == OF_MEGATRON
    assert sizes.get("log.per_node", "8") == "8"


def test_sizes_as_megatron_prints_them_at_its_start() -> None:
    line = b"using world size: 16, data-parallel size: 2, context-parallel size: 1, tensor-model-parallel size: 8, x\n"
    found = read(line, "job.log").config()
    assert {key: value for key, value in found.items() if not key.startswith("log.")} == {
        "parallel.context": "1",
        "parallel.data": "2",
        "parallel.tensor": "8",
    }


def test_a_log_of_two_starts_tells_both_sizes() -> None:
    rows = read(b"--tensor-model-parallel-size 2\n--tensor-model-parallel-size 4\n", "job.log").rows("job_config")
    assert [(row["key"], row["value"]) for row in rows] == [("parallel.tensor", "2"), ("parallel.tensor", "4")]


def test_the_command_of_a_rank() -> None:
    document = {"rank": 3, "local_rank": 3, "rank_method": "RANK", "start_ns": 1, "cmdline": MEGATRON.split()}
    assert OF_MEGATRON.items() <= read(json.dumps(document).encode(), "rank.json").config().items()


def test_what_follows_a_switch_is_no_value_of_it() -> None:
    log = b"+ torchrun --sequence-parallel train.py --tensor-model-parallel-size $TP --use-distributed-optimizer=false\n"
    assert read(log, "job.log").config() == {"tensor.sequence_parallel": "true"}


def test_a_table_of_processes_without_the_value_at_its_edge() -> None:
    table = f"USER PID STAT COMMAND\nme 41 Sl {MEGATRON}\nme 42 Sl {MEGATRON}\n"
    expected = {key: value for key, value in OF_MEGATRON.items() if key != "batch.global"}
    assert read(table.encode(), "ps.txt").config() == expected


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"num_hidden_layers": 32, "num_layers": 32, "model_type": "llama"}', "config.json"),
        (b'{"tensor_parallel_size": 8, "data_parallel_size": 2, "port": 8000}', "serve.json"),
        (b"name: run\ntensor_model_parallel_size\nthe sizes: see below\nnothing: else\n", "notes.yaml"),
        (b"parallel sizes were: tensor_model_parallel_size: 2, and more\nit hung at step 400\n", "notes.txt"),
        (b'[build-system]\nrequires = ["setuptools"]\n', "pyproject.toml"),
        (b"services:\n  web:\n    image: nginx\n", "compose.yaml"),
    ],
)
def test_other_files_are_none(content: bytes, name: str) -> None:
    ingester = choose(content, name)
    assert ingester is None or ingester.name != "training_config"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"zero_optimization": {"stage": 2}, "train_micro', "not valid JSON"),
        (b"zero_optimization:\n  stage: [[[\nother: 1\n", "no setting of a training"),
        (
            b"tensor_model_parallel_size: 2\nmodel:\n  tensor_model_parallel_size: 4\n",
            "parallel.tensor has several values: 2, 4",
        ),
        (b"tensor_model_parallel_size: 99999999999999999999\npipeline_model_parallel_size: -1\n", "no setting"),
    ],
)
def test_a_cut_hostile_or_contradictory_file_is_a_warning(content: bytes, said: str) -> None:
    (problem,) = read(content, "train.yaml").problems
    assert said in problem.message


def test_deep_nesting_ends() -> None:
    deep = b'{"zero_optimization": ' + b'{"a": ' * 200 + b"1" + b"}" * 200 + b', "train_micro_batch_size_per_gpu": 2}'
    assert read(deep, "ds.json").config() == {"batch.micro": "2"}


def test_settings_are_of_the_job_whichever_rank_printed_them(tmp_path: Path) -> None:
    (tmp_path / "rank3.log").write_text(f"{MEGATRON}\nstep 1 loss 2.0\n")
    rows = open_case([tmp_path]).execute("SELECT DISTINCT rank FROM job_config WHERE key LIKE 'parallel.%'").fetchall()
    assert rows == [(None,)]
