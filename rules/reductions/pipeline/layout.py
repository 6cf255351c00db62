"""The parallel layout of the job: what each communicator is for, and where each rank stands.

Who calls what with whom decides; names decide only among what the calls allow, and the configuration where neither tells.
Where calls allow several axes and nothing else tells, the axis stays unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis, axis_of_name
from forensics.rules.reductions.pipeline.by_calls import Judged, RankCalls
from forensics.rules.reductions.pipeline.chains import Chain, chains, directed_by_steps, is_mesh, is_ring, oriented_alike
from forensics.rules.reductions.pipeline.configuration import Configuration
from forensics.rules.reductions.pipeline.configured import configured_axes, configured_stages, microbatches, size_disputes
from forensics.rules.reductions.pipeline.places import Place, places
from forensics.rules.reductions.pipeline.sequences import Messages, read_messages, read_sequences, read_small, witnesses
from forensics.rules.reductions.ranks.roster import Roster

_SAMPLED_CHAINS, _SAMPLED_GROUPS = 8, 64
_RING = Judged(Axis.CONTEXT, frozenset({Axis.CONTEXT}), "a ring of messages in one direction")
_MESH = Judged(Axis.EXPERT, frozenset({Axis.EXPERT, Axis.CONTEXT}), "messages of every rank to all others in one group call")
_SMALL = Judged(Axis.NONE, frozenset(), "only small calls: control messages of programs", is_assumed=True)
_SEVERAL = 8
"""Small calls of a group: of fewer nothing shows what else it is for."""
_MESSAGES = Judged(Axis.PIPELINE, frozenset({Axis.PIPELINE}), "messages between stages only")
_TIED = Judged(Axis.EMBEDDING, frozenset({Axis.EMBEDDING}), "reductions of the first stage with the last one")
_ACROSS = Judged(Axis.UNKNOWN, frozenset(), "its members are of several stages")


@dataclass(frozen=True, slots=True)
class AxisOf:
    """What a communicator is for.

    `method` is calls, reported (its name), configured, or nothing; `confidence` is read, inferred, assumed or unknown.
    """

    axis: Axis = Axis.UNKNOWN
    method: str = "nothing"
    confidence: str = "unknown"
    why: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """Axes by communicator, places by rank, pipelines by stage; `stage_method` as in `AxisOf`, None without stages.

    `microbatches` of a step are configured. `contradictions` are configured sizes and names of groups that calls belie.
    """

    axes: Mapping[str, AxisOf] = field(default_factory=dict)
    members: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    places: Mapping[int, Place] = field(default_factory=dict)
    pipelines: tuple[tuple[int, ...], ...] = ()
    stage_method: str | None = None
    microbatches: int | None = None
    contradictions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return any(known.axis not in (Axis.UNKNOWN, Axis.NONE) for known in self.axes.values())

    def along(self, axis: Axis) -> tuple[str, ...]:
        """Communicators of an axis, by label."""
        return tuple(sorted(label for label, known in self.axes.items() if known.axis is axis))


class Group(NamedTuple):
    """A communicator as the case has it."""

    label: str
    name: str | None
    description: str | None
    backend: str | None
    members: tuple[int, ...]


_GROUPS = """
SELECT communicator, any_value(pg_name), any_value(description), any_value(backend), list(rank ORDER BY position)
FROM communicators JOIN members USING (communicator) GROUP BY communicator ORDER BY communicator
"""


@reduction
def layout(calls: Calls, roster: Roster, configuration: Configuration) -> Layout:
    """Find the axis of each communicator, and the place of each rank."""
    connection = calls.connection
    groups = [
        Group(label, name, description, backend, tuple(members))
        for label, name, description, backend, members in rows_of(connection, "members", _GROUPS)
    ]
    labels = [group.label for group in groups]
    ranks = {rank for group in groups for rank in group.members}
    world = frozenset(range(roster.world_size)) if roster.world_size else frozenset(ranks)
    messages = read_messages(connection, labels)
    formed = {number: form for number, own in messages.by_communicator() if (form := _form_of(own)) is not None}
    found = _pipelines(connection, labels, messages.where(~np.isin(messages.communicator, [*formed])))
    shown_by = witnesses(connection)
    judged = _judged(connection, groups, shown_by, world)
    judged |= {labels[number]: form for number, form in formed.items()}
    carriers = {labels[number] for number in np.unique(messages.communicator).tolist()}
    # All ranks call many things in the group of all; one without collectives is a pipeline of all ranks.
    apart = [group for group in groups if frozenset(group.members) != world or group.label not in shown_by]
    judged |= dict(_by_chains(apart, found, carriers, judged))
    _as_alike(groups, judged)
    judged |= {label: _SMALL for label, calls in read_small(connection).items() if calls >= _SEVERAL and label not in judged}
    return _assembled(groups, judged, found, configuration, world)


def _form_of(messages: Messages) -> Judged | None:
    return _RING if is_ring(messages) else _MESH if is_mesh(messages) else None


def _assembled(
    groups: Sequence[Group],
    judged: Mapping[str, Judged],
    found: Sequence[Chain],
    configuration: Configuration,
    world: frozenset[int],
) -> Layout:
    """Decide each axis; configured sizes count where nothing that is known contradicts them."""
    axes = {group.label: _decided(group, judged.get(group.label), None, world) for group in groups}
    members = {group.label: group.members for group in groups}
    pipelines = tuple(chain.stages for chain in found if chain.stages is not None)
    disputes = tuple(size_disputes(configuration, _sizes(axes, members, pipelines), len(world)))
    if not disputes:
        expected = configured_axes(configuration, members.values(), world)
        axes = {one.label: _decided(one, judged.get(one.label), expected.get(one.members), world) for one in groups}
    stated = {label: known.axis for label, known in axes.items()}
    where = places(stated, members, pipelines)
    method = _stage_method(axes, pipelines)
    if method is None and not disputes:
        stages = configured_stages(configuration, world)
        where = {rank: replace(where.get(rank, Place()), stage=stages.get(rank)) for rank in sorted({*where, *stages})}
        method = "configured" if stages else None
    count = None if disputes else microbatches(configuration, len(world))
    return Layout(axes, members, where, pipelines, method, count, (*disputes, *_belied(groups, axes, judged)))


def _stage_method(axes: Mapping[str, AxisOf], pipelines: Sequence[tuple[int, ...]]) -> str | None:
    if pipelines:
        return "calls"
    return next((known.method for known in axes.values() if known.axis is Axis.PIPELINE and known.method != "calls"), None)


def _sizes(
    axes: Mapping[str, AxisOf], members: Mapping[str, tuple[int, ...]], pipelines: Sequence[tuple[int, ...]]
) -> Mapping[Axis, frozenset[int]]:
    """Sizes of the groups of each axis, of those that are more than assumed."""
    found: dict[Axis, set[int]] = defaultdict(set)
    for label, known in axes.items():
        if known.confidence in ("read", "inferred"):
            found[known.axis].add(len(members[label]))
    if pipelines:
        found[Axis.PIPELINE] = {len(pipelines[0])}
    return {axis: frozenset(sizes) for axis, sizes in found.items()}


def _pipelines(connection: DuckDBPyConnection, labels: Sequence[str], messages: Messages) -> tuple[Chain, ...]:
    """Chains with their first stages; where the ends do not show it, the ends of steps of a few chains may."""
    found = chains(messages)
    open_ends = [chain for chain in found if chain.first is None][:_SAMPLED_CHAINS]
    if open_ends and all(chain.first is None for chain in found):
        read = read_sequences(connection, labels, (end for chain in open_ends for end in chain.ends))
        known = {rank: RankCalls(sequence) for rank, sequence in read.items()}
        directed = {chain: directed_by_steps(chain, known) for chain in open_ends}
        found = tuple(directed.get(chain, chain) for chain in found)
    return oriented_alike(found)


def _judged(
    connection: DuckDBPyConnection, groups: Sequence[Group], witness: Mapping[str, int], world: frozenset[int]
) -> dict[str, Judged]:
    """What the collectives of each communicator show; gloo notes no messages, and does not show what else there is."""
    labels = [group.label for group in groups]
    kept = _some_of_each_form(groups)
    shown_by = {label: rank for label, rank in witness.items() if label in kept}
    read = {rank: RankCalls(calls) for rank, calls in read_sequences(connection, labels, shown_by.values()).items()}
    found: dict[str, Judged] = {}
    for number, group in enumerate(groups):
        rank = shown_by.get(group.label)
        if rank in read and len(group.members) > 1:
            judged = read[rank].judged(number, of_all=frozenset(group.members) == world)
            if judged is not None and not (judged.is_assumed and group.backend == "gloo"):
                found[group.label] = judged
    return found


def _some_of_each_form(groups: Iterable[Group]) -> frozenset[str]:
    """Groups to look at: a job has hundreds of one form, which all call the same."""
    count: Counter[tuple[int, ...]] = Counter()
    kept = set()
    for group in groups:
        form = _form(group)
        count[form] += 1
        if count[form] <= _SAMPLED_GROUPS:
            kept.add(group.label)
    return frozenset(kept)


def _form(group: Group) -> tuple[int, ...]:
    """How the members of a group lie to each other."""
    return tuple(rank - group.members[0] for rank in group.members)


def _by_chains(
    groups: Sequence[Group], found: Sequence[Chain], carriers: Collection[str], judged: Mapping[str, Judged]
) -> Iterator[tuple[str, Judged]]:
    """What pipelines say of groups: one carries their messages, ties the first stage to the last, or must be of one stage."""
    stage = {rank: number for chain in found for number, rank in enumerate(chain.ranks)}
    line = {rank: number for number, chain in enumerate(found) for rank in chain.ranks}
    inside: set[tuple[int, ...]] = set()
    across: dict[tuple[int, ...], Judged] = {}
    unplaced: list[Group] = []
    for group in groups:
        known = judged.get(group.label)
        lines, stages = ({of.get(rank) for rank in group.members} for of in (line, stage))
        if known is None and group.label in carriers and len(lines) == 1 and None not in lines:
            yield group.label, _MESSAGES
        elif known is not None and len(stages - {None}) > 1:
            ties = known.axis is Axis.DATA and len(group.members) == 2 and len(lines) == 1
            across[_form(group)] = _TIED if ties and stages == {0, len(found[0].ranks) - 1} else _ACROSS
            yield group.label, across[_form(group)]
        elif known is not None:
            unplaced += [group] if None in stages else []
            inside |= set() if None in stages else {_form(group)}
    # Of ranks in no known pipeline counts what groups that lie alike are.
    for group in unplaced:
        if _form(group) in across.keys() - inside:
            yield group.label, replace(across[_form(group)], is_assumed=True)


def _as_alike(groups: Sequence[Group], judged: dict[str, Judged]) -> None:
    """Give groups of which nothing shows the axis of all others whose members lie alike, where these agree.

    A second group of the same members is for something else.
    """
    families: dict[tuple[int, ...], list[Group]] = defaultdict(list)
    taken = {group.members for group in groups if group.label in judged}
    for group in groups:
        families[_form(group)].append(group)
    for family in families.values():
        known = {judged[group.label] for group in family if group.label in judged}
        if len({each.axis for each in known}) == 1:
            like = min(known, key=lambda each: each.why)
            alike = replace(like, why=f"groups like it: {like.why}", is_assumed=True)
            judged.update({group.label: alike for group in family if group.members not in taken})


def _decided(group: Group, judged: Judged | None, expected: Axis | None, world: frozenset[int]) -> AxisOf:
    named = axis_of_name(group.description) or axis_of_name(group.name)
    named = named if named is not Axis.WORLD or frozenset(group.members) == world else None
    if judged is None or not judged.possible:
        is_open = judged is None or judged is _SMALL
        if named is not None and is_open:
            return AxisOf(named, "reported", "read", f"its name: {group.description or group.name}")
        if frozenset(group.members) == world and len(world) > 1:
            return AxisOf(Axis.WORLD, "calls", "read", "all ranks")
        if expected is not None and is_open:
            return AxisOf(expected, "configured", "assumed", "members as the configured sizes have them")
        if judged is _SMALL:
            return AxisOf(judged.axis, "calls", "assumed", judged.why)
        return AxisOf(why=judged.why if judged else "")
    if named in judged.possible:
        return AxisOf(named, "reported", "read", f"its name, and {judged.why}")
    if expected in judged.possible and expected is not judged.axis and judged.is_assumed:
        return AxisOf(expected, "configured", "inferred", f"configured, and {judged.why}")
    return AxisOf(judged.axis, "calls", "assumed" if judged.is_assumed else "inferred", judged.why)


def _belied(groups: Iterable[Group], axes: Mapping[str, AxisOf], judged: Mapping[str, Judged]) -> Iterable[str]:
    """Names that say something else than the calls."""
    for group in groups:
        named = axis_of_name(group.description) or axis_of_name(group.name)
        known = judged.get(group.label)
        if named not in (None, Axis.WORLD) and known and not known.is_assumed and named not in known.possible:
            yield f"{group.label} is called {named}, and its calls show {axes[group.label].axis}: {known.why}"
