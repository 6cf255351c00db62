"""Dimensions along which ranks form groups, and how a name shows which one a group runs along.

Names: `group_desc` of Megatron-LM's parallel_state (core 0.9 and later), `mesh_<dimension>` of torch's DeviceMesh
(2.4 and later), torchtitan's dimensions (parallel_dims.py, 2025).
"""

from __future__ import annotations

import re
from enum import StrEnum


class Axis(StrEnum):
    """What a communicator is for; `NONE` only gathers what programs tell each other (Pulse 5.2, figure 5)."""

    TENSOR = "tp"
    PIPELINE = "pp"
    DATA = "dp"
    CONTEXT = "cp"
    EXPERT = "ep"
    WORLD = "world"
    EMBEDDING = "embedding"
    NONE = "none"
    UNKNOWN = "unknown"


_MEGATRON = (
    (re.compile(r"(?:POSITION_)?EMBEDDING_GROUP"), Axis.EMBEDDING),
    (re.compile(r"TENSOR_MODEL_PARALLEL_GROUP"), Axis.TENSOR),
    (re.compile(r"PIPELINE_MODEL_PARALLEL_GROUP"), Axis.PIPELINE),
    (re.compile(r"(?:INTRA_PARTIAL_|INTER_PARTIAL_)?(?:EXPERT_)?DATA_PARALLEL_GROUP(?:_WITH_CP)?(?:_GLOO)?"), Axis.DATA),
    (re.compile(r"(?:HIERARCHICAL_)?CONTEXT_PARALLEL_GROUP"), Axis.CONTEXT),
    (re.compile(r"EXPERT_MODEL_PARALLEL_GROUP"), Axis.EXPERT),
)
_MESH = {
    "tp": Axis.TENSOR,
    "pp": Axis.PIPELINE,
    "cp": Axis.CONTEXT,
    "ep": Axis.EXPERT,
    **dict.fromkeys(("dp", "fsdp", "ddp", "dp_shard", "dp_replicate", "dp_shard_cp", "dp_cp"), Axis.DATA),
}
_WORLD = "default_pg"


def axis_of_name(name: str | None) -> Axis | None:
    """The axis that a name or description of a group tells; None for one that tells none, or several."""
    if not name:
        return None
    if name == _WORLD:
        return Axis.WORLD
    if known := next((axis for form, axis in _MEGATRON if form.fullmatch(name)), None):
        return known
    return _MESH.get(name.removeprefix("mesh_").lower())
