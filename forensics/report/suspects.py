"""A suspect in words: what it is, in which stage, why, and the details a heading has no room for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.model import Component, Granularity, Impact, RankProcess, Resource, StageName, StageRef, Suspect
from forensics.report import ranks, times
from forensics.report.plain import brief

_NAME = 40
_HOSTS = 2
_PROCESSES = 4
_RULES = 3


def title(suspect: Suspect) -> str:
    """`rank 2 (host gpu-017) - stage: DATA - cause: dataloader stall`, every part kept short."""
    return f"{subject(suspect)} - stage: {_stage(suspect.stage)} - cause: {words(suspect.cause)}"


def verdict_line(suspect: Suspect) -> str:
    """The title with its confidence and the rules that say so."""
    return f"{title(suspect)}   confidence: {suspect.confidence}   [{_rules(suspect.rules)}]"


def subject(suspect: Suspect) -> str:
    """The thing that is accused, as small as the evidence can name it."""
    who = ranks.phrase(suspect.ranks, suspect.members, most=4) + _processes(suspect.processes)
    hosts = _hosts(suspect.hosts)
    where = f" ({hosts})" if hosts else ""
    match suspect.granularity:
        case Granularity.JOB:
            return "the whole job"
        case Granularity.HOST:
            return f"{hosts or 'unknown host'} ({who})"
        case Granularity.GROUP:
            return f"group {brief(suspect.stage.communicator or 'unknown', _NAME)}: {who}{where}"
        case Granularity.RANK:
            return f"{who}{where}"
    return f"{_thing(suspect.granularity, suspect.resource)} of {who}{where}"


def details(suspect: Suspect, most: int | None) -> Iterator[tuple[str, str]]:
    """What is known of the suspect beyond its title, as (name, text) in a fixed order; unknown things are left out."""
    rows = (
        ("ranks", ranks.phrase(suspect.ranks, suspect.members, most) if len(suspect.ranks) > 1 else ""),
        ("hosts", ", ".join(suspect.hosts) if len(suspect.hosts) > _HOSTS else ""),
        ("stage", ", ".join(_stage_parts(suspect.stage))),
        ("resource", ", ".join(_resource_parts(suspect.resource, most))),
        ("mechanism", _mechanism(suspect)),
        ("impact", cost(suspect.impact)),
        ("since", times.moment(suspect.since) if suspect.since else ""),
    )
    return (row for row in rows if row[1])


def cost(impact: Impact | None) -> str:
    """What the fault costs, as far as it was measured; empty when it was not."""
    if impact is None:
        return ""
    # Only the critical path counts the steps that were long; the others take their share of all that was recorded.
    of = "the step" if impact.method == "critical_path" else "the time"
    parts = [
        "" if impact.recoverable_ns is None else f"{times.duration(impact.recoverable_ns)} recoverable",
        "" if impact.share is None else f"{impact.share:.1%} of {of}",
        "" if impact.steps is None else f"over {impact.steps} step{'' if impact.steps == 1 else 's'}",
        f"by {words(impact.method)}",
    ]
    return ", ".join(part for part in parts if part)


def words(value: str) -> str:
    """A schema word as people write it: `dataloader_stall` is `dataloader stall`."""
    return value.replace("_", " ")


def _stage(stage: StageRef) -> str:
    """The stage, its microbatch, and the operation where it is what the suspect was doing and not only what others wait in."""
    doing = brief(stage.operation, _NAME) if stage.component is Component.COMMUNICATION and stage.operation else ""
    which = "" if stage.microbatch is None else f"microbatch {stage.microbatch}"
    parts = ", ".join(part for part in (doing, which) if part)
    return stage.name.upper() + (f" ({parts})" if parts else "")


def _processes(processes: Sequence[RankProcess]) -> str:
    """The processes that are meant where the numbers of the ranks are a guess."""
    if not processes or len(processes) > _PROCESSES:
        return ""
    return f" (process{'' if len(processes) == 1 else 'es'} {', '.join(str(one.pid) for one in processes)})"


def _hosts(hosts: tuple[str, ...]) -> str:
    if not hosts or len(hosts) > _HOSTS:
        return f"{len(hosts)} hosts" if hosts else ""
    return ("host " if len(hosts) == 1 else "hosts ") + ", ".join(brief(host, _NAME) for host in hosts)


def _rules(codes: tuple[str, ...]) -> str:
    more = f" +{len(codes) - _RULES}" if len(codes) > _RULES else ""
    return ", ".join(codes[:_RULES]) + more


def _thing(granularity: Granularity, resource: Resource | None) -> str:
    name = getattr(resource, granularity.value, None)
    kind = granularity.value.upper() if granularity in (Granularity.GPU, Granularity.NIC) else granularity.value
    return f"{kind} {brief(name, _NAME)}" if name else f"the {kind}"


def _stage_parts(stage: StageRef) -> Iterator[str]:
    if stage.name is not StageName.UNKNOWN:
        yield f"{stage.name} ({stage.component})"
    named = ("direction", "operation", "sequence", "communicator", "step", "microbatch", "model_chunk")
    for name in (*named, "pipeline_stage", "layer", "kernel", "substage"):
        value = getattr(stage, name)
        if value is not None:
            yield f"{words(name)} {value}"


def _resource_parts(resource: Resource | None, most: int | None) -> Iterator[str]:
    if resource is None:
        return
    for name in ("gpu", "nic", "port", "channel", "queue_pair", "path"):
        value = getattr(resource, name)
        if value is not None:
            yield f"{words(name)} {value}"
    if resource.peer_ranks:
        yield f"peer {ranks.phrase(resource.peer_ranks, most=most)}"


def _mechanism(suspect: Suspect) -> str:
    if suspect.mechanism is None:
        return ""
    return f"{words(suspect.mechanism.state)} ({suspect.mechanism.side} side)"
