"""Settings of a training as launchers and trainers name them, under one name each (docs/formats/training-config.md).

Upstream: Megatron-LM megatron/training/arguments.py (options, and the dump `name .... value`), torchtitan's config
(parallelism.*), DeepSpeed's JSON (runtime/constants.py), Accelerate's YAML (commands/config), NeMo's YAML, as of 2025.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from forensics.ingest._shared.config import config_rows
from forensics.ingest.interface import Batch

_SIZES = {
    "tensor_model_parallel_size": "parallel.tensor",
    "tensor_parallel_degree": "parallel.tensor",
    "megatron_lm_tp_degree": "parallel.tensor",
    "parallelism_config_tp_size": "parallel.tensor",
    "pipeline_model_parallel_size": "parallel.pipeline",
    "pipeline_parallel_degree": "parallel.pipeline",
    "megatron_lm_pp_degree": "parallel.pipeline",
    "context_parallel_size": "parallel.context",
    "context_parallel_degree": "parallel.context",
    "parallelism_config_cp_size": "parallel.context",
    "expert_model_parallel_size": "parallel.expert",
    "expert_parallel_degree": "parallel.expert",
    "data_parallel_size": "parallel.data",
    "data_parallel_replicate_degree": "parallel.data_replicate",
    "parallelism_config_dp_replicate_size": "parallel.data_replicate",
    "data_parallel_shard_degree": "parallel.data_shard",
    "parallelism_config_dp_shard_size": "parallel.data_shard",
    "virtual_pipeline_model_parallel_size": "pipeline.chunks",
    "num_virtual_stages_per_pipeline_rank": "pipeline.chunks",
    "num_layers_per_virtual_pipeline_stage": "pipeline.layers_per_chunk",
    "megatron_lm_num_micro_batches": "pipeline.microbatches",
    "train_micro_batch_size_per_gpu": "batch.micro",
    "pipeline_parallel_microbatch_size": "batch.micro",
}
"""Names that only a configuration of a training has; whole numbers above zero."""
_COMMON_NUMBERS = {
    "micro_batch_size": "batch.micro",
    "global_batch_size": "batch.global",
    "train_batch_size": "batch.global",
    "gradient_accumulation_steps": "batch.accumulation",
    "local_batch_size": "batch.local",
    "num_layers": "model.layers",
}
_FLAGS = {"sequence_parallel": "tensor.sequence_parallel", "megatron_lm_sequence_parallelism": "tensor.sequence_parallel"}
_SHARDED_OPTIMIZER = frozenset({"use_distributed_optimizer", "megatron_lm_use_distributed_optimizer"})
_SHARDING = {
    **dict.fromkeys(("full_shard", "1"), "fsdp"),
    **dict.fromkeys(("shard_grad_op", "2"), "zero2"),
    **dict.fromkeys(("no_shard", "3"), "all_reduce"),
    **dict.fromkeys(("hybrid_shard", "4"), "hsdp"),
}
_ZERO = {"0": "all_reduce", "1": "zero1", "2": "zero2", "3": "fsdp"}
_STAGES = frozenset({"zero_optimization.stage", "zero_stage", "deepspeed_config.zero_stage"})
_SCHEDULE = re.compile(r"[A-Za-z0-9_]{2,40}")
_NUMBER = re.compile(r"0{0,3}[1-9]\d{0,6}")
TELLING = frozenset({*_SIZES, "pipeline_parallel_schedule", "fsdp_sharding_strategy", "zero_optimization"}) - {
    "data_parallel_size"
}
"""One of these stands in every configuration that is read."""
_NAMES = frozenset({*_SIZES, *_COMMON_NUMBERS, *_FLAGS, *_SHARDED_OPTIMIZER, *TELLING, "zero_stage"})
_TRUE, _FALSE = frozenset({"true", "1", "yes"}), frozenset({"false", "0", "no"})
_SWITCHES = frozenset({*_FLAGS, *_SHARDED_OPTIMIZER})
"""Options that need no value: what follows one may be the script."""
_MOST_VALUES = 8
Settings = Mapping[str, tuple[str, ...]]
"""Values by the keys of `job_config`: several where a source contradicts itself."""


def setting(name: str, value: Any) -> tuple[str, str] | None:
    """The key and value of one setting by its name, dotted where it stands in a section; None for one that is not known."""
    whole = name.lstrip("-").replace("-", "_").lower()
    last, text = whole.rpartition(".")[2], str(value).strip().strip("\"'").lower()
    if (key := _SIZES.get(last) or _COMMON_NUMBERS.get(last)) is not None:
        return (key, str(int(text))) if _NUMBER.fullmatch(text) else None
    if last in _FLAGS:
        return _FLAGS[last], "true" if text in _TRUE else "false"
    if last in _SHARDED_OPTIMIZER:
        return ("data.mode", "zero1") if text in _TRUE else None
    if last == "pipeline_parallel_schedule":
        return ("pipeline.schedule", text) if _SCHEDULE.fullmatch(text) else None
    modes = _SHARDING if last == "fsdp_sharding_strategy" else _ZERO if whole in _STAGES else {}
    return ("data.mode", modes[text]) if text in modes else None


def settings(pairs: Iterable[tuple[str, Any]]) -> Settings:
    """All that some names and values tell, with what follows from it; several values of one key are all kept."""
    found: dict[str, dict[str, None]] = {}
    for name, value in pairs:
        if (said := setting(name, value)) is not None and len(found.setdefault(said[0], {})) < _MOST_VALUES:
            found[said[0]][said[1]] = None
    known = {key: next(iter(values)) for key, values in found.items() if len(values) == 1}
    return {key: tuple(values) for key, values in found.items()} | {
        key: (value,) for key, value in _completed(known).items() if key not in found
    }


def _completed(known: Mapping[str, str]) -> Mapping[str, str]:
    """What follows: chunks from layers, microbatches of a step from batch sizes, replicas from two degrees."""
    number = {key: int(value) for key, value in known.items() if value.isdecimal()}
    more: dict[str, str] = {}
    stages, layers = number.get("parallel.pipeline", 0), number.get("model.layers", 0)
    each = number.get("pipeline.layers_per_chunk", 0)
    if each and stages and layers and layers % (stages * each) == 0:
        more["pipeline.chunks"] = str(layers // (stages * each))
    if {"parallel.data_replicate", "parallel.data_shard"} <= number.keys():
        more["parallel.data"] = str(number["parallel.data_replicate"] * number["parallel.data_shard"])
    if (count := _microbatches(number, int(more.get("parallel.data", 0)))) is not None:
        more["pipeline.microbatches"] = str(count)
    return more


def _microbatches(number: Mapping[str, int], replicas: int) -> int | None:
    """Microbatches of a step: of the batch of one replica, or as many as gradients are accumulated of."""
    micro, data = number.get("batch.micro", 0), number.get("parallel.data", replicas)
    whole = number.get("batch.local") or (number["batch.global"] // data if data and "batch.global" in number else 0)
    if micro and whole:
        return whole // micro if whole % micro == 0 else None
    return number.get("batch.accumulation")


# Options of a command, whose last one may be cut; `--name=value`, `--name value`, and flags.
_OPTION = re.compile(r"(?<![\w-])--([A-Za-z][\w.-]{2,80})(?:(?:=|[ \t]+)((?!--)[\"']?[\w.-]{1,64}[\"']?)(?=\s|\\|$)|(?=\s|$))")
_DUMPED = re.compile(r"(?<![\w-])([a-z][a-z_]{4,60}) \.{3,60} ([\w.-]{1,40})\s*$")
_PRINTED = re.compile(
    r"(?<![\w-])(data-parallel|context-parallel|tensor-model-parallel|pipeline-model-parallel)[- ]size: ?(\d{1,6})\b"
)
_ASSIGNED = re.compile(r"(?<![\w-])[\"']?([a-z]+(?:_[a-z]+){1,5}_(?:size|degree))[\"']?(?:=|: ?)(\d{1,6})\b")
_SECTIONS = ("parallelism.", "training.")
_OTHERS = sorted(_NAMES - _SIZES.keys())
LOG_WORDS = (
    *sorted(_SIZES),
    *(f"{lead}{name}{end}" for name in _OTHERS for lead, end in (("--", ""), ("", " ."))),
    *(f"--{name.replace('_', '-')}" for name in sorted(_NAMES)),
    *(f"--{section}" for section in _SECTIONS),
    *("-parallel-size:", "-parallel size:"),
)
"""One of these stands in every line that `of_line` reads something in."""


def options(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Options of a command given as its words."""
    return of_command(" ".join(word.replace(" ", "_") for word in words), is_whole=True)


def of_command(command: str, *, is_whole: bool) -> Iterator[tuple[str, str]]:
    """Options of a command; the value at the end of one that may be cut is left out."""
    for said in _OPTION.finditer(command):
        name = said[1].replace("-", "_")
        section, _, last = name.rpartition(".")
        if last in _NAMES and (not section or f"{section}." in _SECTIONS) and (is_whole or said.end() < len(command)):
            follows = said[2] or "true"
            is_word = last in _SWITCHES and follows.lower() not in _TRUE | _FALSE
            yield name, "true" if is_word else follows


def of_line(line: str) -> Iterator[tuple[str, str]]:
    """Settings in one line of a log: of a command, of a dump of arguments, or as Megatron prints sizes at its start."""
    if "--" in line:
        yield from of_command(line, is_whole=True)
    if "ize:" in line:
        yield from ((f"{said[1]}-size", said[2]) for said in _PRINTED.finditer(line))
    if (dumped := _DUMPED.search(line)) and dumped[1] in _NAMES:
        yield dumped[1], dumped[2]
    yield from ((said[1], said[2]) for said in _ASSIGNED.finditer(line) if said[1] in _SIZES)


def setting_batches(found: Settings, **constants: Any) -> Iterator[Batch]:
    """One row of `job_config` for each value."""
    yield from config_rows(((key, value) for key, values in sorted(found.items()) for value in values), **constants)
