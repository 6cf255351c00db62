"""Groups as configured sizes make them, and what of the configuration the calls contradict.

Ranks count tensor first, then context, data, and pipeline slowest: the default order of Megatron-LM (`tp-cp-ep-dp-pp`) and of
torchtitan's mesh (pp, dp, cp, tp).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from forensics.rules.reductions.pipeline.axes import Axis
from forensics.rules.reductions.pipeline.configuration import SIZES, Configuration

_ORDER = (Axis.PIPELINE, Axis.DATA, Axis.CONTEXT, Axis.TENSOR)


def configured_sizes(configuration: Configuration, world: int) -> dict[Axis, int] | None:
    """Sizes of all dimensions: 1 where nothing tells one, data-parallel what is left; None where they do not make the job."""
    sizes = {axis: configuration.size(axis) or 1 for axis in _ORDER}
    reported = any(configuration.size(axis) for axis in _ORDER if axis is not Axis.DATA)
    others = sizes[Axis.PIPELINE] * sizes[Axis.CONTEXT] * sizes[Axis.TENSOR]
    if not reported or not world or world % others or configuration.size(Axis.DATA) not in (None, world // others):
        return None
    return {**sizes, Axis.DATA: world // others}


def configured_axes(
    configuration: Configuration, groups: Iterable[Sequence[int]], world: frozenset[int]
) -> Mapping[tuple[int, ...], Axis]:
    """Axis by members of the groups that run along exactly one configured dimension."""
    sizes = configured_sizes(configuration, len(world))
    if sizes is None:
        return {}
    shape = tuple(sizes[axis] for axis in _ORDER)
    grid = np.arange(len(world)).reshape(shape)
    wanted = {tuple(members) for members in groups}
    found: dict[tuple[int, ...], Axis] = {}
    for place, axis in enumerate(_ORDER):
        if shape[place] > 1:
            lines = np.moveaxis(grid, place, -1).reshape(-1, shape[place]).tolist()
            found |= {line: axis for line in map(tuple, lines) if line in wanted}
    return found


def configured_stages(configuration: Configuration, world: frozenset[int]) -> Mapping[int, int]:
    """Pipeline stage of each rank by the configured sizes; empty where they tell none."""
    sizes = configured_sizes(configuration, len(world))
    if sizes is None or sizes[Axis.PIPELINE] == 1:
        return {}
    width = len(world) // sizes[Axis.PIPELINE]
    return {rank: rank // width for rank in range(len(world))}


def microbatches(configuration: Configuration, world: int) -> int | None:
    """Microbatches of a step of each rank, where they are stated or follow from the batch sizes and the number of replicas."""
    stated = configuration.number("pipeline.microbatches")
    whole, each = configuration.number("batch.global"), configuration.number("batch.micro")
    sizes = configured_sizes(configuration, world)
    if stated is not None or whole is None or each is None or sizes is None:
        return stated
    return whole // (each * sizes[Axis.DATA]) if whole % (each * sizes[Axis.DATA]) == 0 else None


def size_disputes(configuration: Configuration, known: Mapping[Axis, frozenset[int]], world: int | None) -> Iterator[str]:
    """What of the configured sizes cannot be; `known` are the sizes of groups of each axis that the calls or names show."""
    for axis in (Axis.TENSOR, Axis.PIPELINE, Axis.CONTEXT, Axis.EXPERT):
        size, found = configuration.size(axis), known.get(axis, frozenset())
        if size is not None and found and size not in found:
            yield f"{_setting(configuration, axis)}, but {axis} groups have {_either(found)} ranks"
    sizes = {axis: configuration.size(axis) or 1 for axis in _ORDER}
    product = int(np.prod([sizes[axis] for axis in _ORDER]))
    reported = ", ".join(f"{axis} {size}" for axis, size in sizes.items() if size > 1)
    if world and (world % product or (configuration.size(Axis.DATA) and product != world)):
        yield f"configured sizes ({reported}) do not make {world} ranks"
        return
    expected = configured_sizes(configuration, world or 0)
    found = known.get(Axis.DATA, frozenset())
    if expected and found and not _fits(found, expected, configuration.size(Axis.EXPERT) or 1):
        yield f"configured sizes ({reported}) leave {expected[Axis.DATA]} replicas, but dp groups have {_either(found)} ranks"


def _fits(found: frozenset[int], expected: Mapping[Axis, int], expert: int) -> bool:
    """Whether data-parallel groups may be of these sizes: with context-parallel ranks, of experts, or as a grid of two."""
    data, context = expected[Axis.DATA], expected[Axis.CONTEXT]
    whole = {data, data * context}
    parts = {size // expert for size in whole} if expert > 1 else set()
    return bool(found & (whole | parts)) or any(one * other in whole for one in found for other in found)


def _setting(configuration: Configuration, axis: Axis) -> str:
    key = SIZES[axis]
    source = configuration.settings[key].source
    return f"{key} is {configuration.text(key)}" + (f" ({source})" if source else "")


def _either(sizes: Iterable[int]) -> str:
    return " or ".join(map(str, sorted(sizes)))
