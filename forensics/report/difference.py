"""What changed from one case to another: versions, environment, configuration, hosts, layout, speed, counters, verdict.

Nothing here accuses: a change is a lead. What only one of the two cases has read is not compared, and never called a change.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from forensics.case.comparable import Comparable, Scope, Times
from forensics.model import Verdict
from forensics.rank_ranges import format_ranks
from forensics.report.plain import brief
from forensics.rules.reductions.text.evidence_text import counted
from forensics.sharing.statements import without_secrets

SCHEMA = "forensics.difference/1"
SECTIONS = ("verdict", "versions", "environment", "configuration", "hosts", "layout", "speed", "counters", "events")
_LEAST_CHANGE = 1.05
"""Step times of the same job on the same hosts differ by some percent from run to run."""
_LEAST_RATE = 2.0
"""Rates of counters are read over seconds: only what doubled, halved, appeared or vanished is stated."""
_LONGEST = 60
_COMPLETE = ("env.", "package.", "library.")
"""Settings of which a source has all there are: one that it does not state is not set. Of others nothing was read."""
_VERSIONS = re.compile(r"package\..*|library\..*|.*version.*|exe|node\.(?:kernel|machine)|driver.*")


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that differs; `before` and `after` in words, `ratio` of after to before where they are numbers."""

    section: str
    name: str
    before: str
    after: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """All changes, by section, and for each section that could not be compared why."""

    changes: tuple[Change, ...]
    not_compared: Mapping[str, str]


def difference(before: Comparable, after: Comparable, verdicts: tuple[Verdict, Verdict]) -> Difference:
    """Compare two cases and their verdicts."""
    found = [
        *_verdict(*verdicts),
        *_settings(before, after),
        *_hosts(before, after),
        *_counts("hosts", before.devices, after.devices),
        *_layout(*verdicts),
        *_speed(before, after),
        *_counters(before.counters, after.counters),
        *_counts("events", before.events, after.events),
    ]
    order = sorted(found, key=lambda change: SECTIONS.index(change.section))
    return Difference(without_secrets(tuple(order)), _not_compared(before, after, verdicts))


def _not_compared(before: Comparable, after: Comparable, verdicts: tuple[Verdict, Verdict]) -> dict[str, str]:
    """Sections of which one case, or both, have read nothing."""
    has: dict[str, tuple[bool, bool]] = {
        section: (_has(before, section), _has(after, section)) for section in ("versions", "environment", "configuration")
    }
    has["hosts"] = bool(before.hosts), bool(after.hosts)
    has["layout"] = verdicts[0].layout is not None, verdicts[1].layout is not None
    has["speed"] = bool(before.steps or before.stages), bool(after.steps or after.stages)
    has["counters"] = bool(before.counters), bool(after.counters)
    words = {(True, False): "nothing was read in B", (False, True): "nothing was read in A", (False, False): "nothing was read"}
    found = {section: words[both] for section, both in has.items() if both in words}
    alone = [key for key in sorted(before.settings.keys() ^ after.settings.keys()) if not key.startswith(_COMPLETE)]
    if alone:
        found["settings that only one of them states"] = ", ".join(alone)
    return found


def _has(case: Comparable, section: str) -> bool:
    return any(section_of(key) == section for key in case.settings)


def section_of(key: str) -> str:
    """The section of a setting."""
    if _VERSIONS.fullmatch(key):
        return "versions"
    return "environment" if key.startswith("env.") else "configuration"


def _settings(before: Comparable, after: Comparable) -> Iterator[Change]:
    for key in sorted(before.settings.keys() | after.settings.keys()):
        section = section_of(key)
        if not (_has(before, section) and _has(after, section)):
            continue
        old, new = before.settings.get(key, {}), after.settings.get(key, {})
        if bool(old) != bool(new) and not key.startswith(_COMPLETE):
            continue
        if _differ(old, new):
            yield Change(section, key, _values(old), _values(new))


def _differ(old: Mapping[Scope, str | None], new: Mapping[Scope, str | None]) -> bool:
    """Other values, or the same ones on other ranks; hosts may have other names."""
    if set(old.values()) != set(new.values()):
        return True
    common = {scope for scope in old.keys() & new.keys() if scope[0] is not None}
    return any(old[scope] != new[scope] for scope in common)


def _values(found: Mapping[Scope, str | None]) -> str:
    """The value, or each value with the ranks that have it, the most frequent first."""
    if not found:
        return "not set"
    scopes: dict[str, list[Scope]] = defaultdict(list)
    for scope, value in found.items():
        scopes["null" if value is None else value].append(scope)
    if len(scopes) == 1:
        return next(iter(scopes))
    ordered = sorted(scopes.items(), key=lambda item: (-len(item[1]), item[0]))
    return ", ".join(f"{brief(value, _LONGEST)} ({_whose(of)})" for value, of in ordered[:3]) + (
        f" and {counted(len(ordered) - 3, 'more value')}" if len(ordered) > 3 else ""
    )


def _whose(scopes: list[Scope]) -> str:
    ranks = [rank for rank, _ in scopes if rank is not None]
    if not ranks:
        return "1 host" if len(scopes) == 1 else f"{len(scopes)} hosts"
    return f"rank{'' if len(ranks) == 1 else 's'} {format_ranks(ranks)}"


def _hosts(before: Comparable, after: Comparable) -> Iterator[Change]:
    old, new = before.hosts, after.hosts
    if not old or not new:
        return
    if len(old) != len(new):
        yield Change("hosts", "number of hosts", str(len(old)), str(len(new)))
    gone, come = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if gone or come:
        yield Change("hosts", "hosts only in one", _listed(gone), _listed(come))
    was = {rank: host for host, ranks in old.items() for rank in ranks}
    now = {rank: host for host, ranks in new.items() for rank in ranks}
    moved = sorted(rank for rank in was.keys() & now.keys() if was[rank] != now[rank] and now[rank] in old and was[rank] in new)
    if moved:
        name = f"ranks {format_ranks(moved)} run on other hosts"
        yield Change("hosts", name, _listed([was[rank] for rank in moved]), _listed([now[rank] for rank in moved]))
    if len(was) != len(now):
        yield Change("hosts", "ranks with a host", str(len(was)), str(len(now)))


def _listed(names: list[str]) -> str:
    shown = list(dict.fromkeys(names))
    return (", ".join(shown[:8]) + (f" and {len(shown) - 8} more" if len(shown) > 8 else "")) or "none"


def _layout(before: Verdict, after: Verdict) -> Iterator[Change]:
    if before.world_size is not None and after.world_size is not None and before.world_size != after.world_size:
        yield Change("layout", "world size", str(before.world_size), str(after.world_size))
    if before.layout is None or after.layout is None:
        return
    old = {axis.axis: f"{axis.size}" for axis in before.layout.axes}
    new = {axis.axis: f"{axis.size}" for axis in after.layout.axes}
    for axis in sorted(old.keys() | new.keys()):
        if old.get(axis) != new.get(axis):
            yield Change("layout", f"size of {axis}", old.get(axis, "none found"), new.get(axis, "none found"))
    if len(before.layout.stages) != len(after.layout.stages):
        yield Change("layout", "pipeline stages", str(len(before.layout.stages)), str(len(after.layout.stages)))


def _speed(before: Comparable, after: Comparable) -> Iterator[Change]:
    if before.steps and after.steps:
        yield from _times("step", before.steps, after.steps)
    for stage in sorted(before.stages.keys() & after.stages.keys()):
        yield from _times(f"stage {stage}", before.stages[stage], after.stages[stage])


def _times(name: str, old: Times, new: Times) -> Iterator[Change]:
    for what, first, second in (("median", old.median_ns, new.median_ns), ("90th percentile", old.high_ns, new.high_ns)):
        if first > 0 and not 1 / _LEAST_CHANGE < second / first < _LEAST_CHANGE:
            ratio = round(second / first, 3)
            yield Change("speed", f"{name}, {what}", _duration(first, old), _duration(second, new), ratio)


def _duration(value_ns: float, of: Times) -> str:
    return f"{value_ns / 1e6:.1f} ms ({of.count} of {of.ranks} ranks)"


def _counters(old: Mapping[str, float], new: Mapping[str, float]) -> Iterator[Change]:
    for name in sorted(old.keys() & new.keys()):
        first, second = old[name], new[name]
        if first == second or (first and second and 1 / _LEAST_RATE < second / first < _LEAST_RATE):
            continue
        yield Change("counters", name, f"{first:.4g}/s", f"{second:.4g}/s", round(second / first, 3) if first else None)


def _counts(section: str, old: Mapping[str, int], new: Mapping[str, int]) -> Iterator[Change]:
    if section == "hosts" and not (old and new):
        return
    for name in sorted(old.keys() | new.keys()):
        if old.get(name, 0) != new.get(name, 0):
            yield Change(section, name, str(old.get(name, 0)), str(new.get(name, 0)))


def _verdict(before: Verdict, after: Verdict) -> Iterator[Change]:
    facts: tuple[tuple[str, Callable[[Verdict], str]], ...] = (
        ("outcome", lambda verdict: verdict.outcome.value),
        ("suspects", _suspects),
        ("caveats", lambda verdict: ", ".join(sorted({label.label for label in verdict.labels})) or "none"),
        ("known defects", lambda verdict: ", ".join(sorted(defect.id for defect in verdict.known_defects)) or "none"),
    )
    for name, say in facts:
        if say(before) != say(after):
            yield Change("verdict", name, say(before), say(after))


def _suspects(verdict: Verdict) -> str:
    said = (
        f"{'rank' if len(one.ranks) == 1 else 'ranks'} {format_ranks(one.ranks)} {one.stage.name.value} {one.cause.value} "
        f"({one.confidence.value}, {'+'.join(one.rules)})"
        for one in verdict.suspects[:3]
    )
    return "; ".join(said) or "nobody"


def document(found: Difference) -> dict[str, Any]:
    """The difference as JSON, schema `forensics.difference/1`."""
    return {
        "schema": SCHEMA,
        "changes": [asdict(change) for change in found.changes],
        "not_compared": [{"section": section, "reason": reason} for section, reason in found.not_compared.items()],
    }


def render(found: Difference) -> str:
    """The difference as text: a block a section, a line a change."""
    lines: list[str] = []
    for section in SECTIONS:
        rows = [change for change in found.changes if change.section == section]
        lines += [section.upper(), *map(_line, rows), ""] if rows else []
    if not found.changes:
        lines += ["no difference in what both cases have", ""]
    if found.not_compared:
        lines += ["NOT COMPARED", *(f"  {section}: {brief(reason, 300)}" for section, reason in found.not_compared.items())]
    return "\n".join(lines).rstrip()


def _line(change: Change) -> str:
    ratio = f"  ({change.ratio:.2f}x)" if change.ratio is not None else ""
    return f"  {brief(change.name, _LONGEST)}: {brief(change.before, 200)} -> {brief(change.after, 200)}{ratio}"
