"""Bundles of single hosts become one bundle of the job, one after the other, as they come.

Nothing that a bundle says is trusted: of its members only those are taken that have a place in the layout (docs/bundle.md),
below the hosts that it names, under names that the layout allows. A rank belongs to the bundle that saw its process.
"""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from forensics.bundle.archive import read_archive
from forensics.bundle.directory import read_directory, read_file
from forensics.bundle.layout import BUNDLE, CHECKSUMS, REDACTIONS, SCHEMA, member_name
from forensics.bundle.manifest import member_content, parsed, read_manifest
from forensics.bundle.members import Member
from forensics.bundle.streams import chunks
from forensics.collect.claimed_ranks import Claims
from forensics.collect.staging import Staging
from forensics.errors import ForensicsError

_DEEPEST = 8
_RUNS = re.compile(r"nodes/[^/]+/collectors\.jsonl(?:\.gz|\.zst)?")
_IN_THE_WAY = (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class HostBundle:
    """A bundle to merge: `label` names it to people, `members` lie below its root, `warnings` say what was wrong with it.

    `digests` are those that it states, `of_ranks` the paths below each rank.
    """

    label: str
    document: Mapping[str, Any]
    members: Mapping[str, Member]
    warnings: tuple[str, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    of_ranks: Mapping[int, list[str]] = field(default_factory=dict)


def open_host_bundle(path: Path, label: str) -> HostBundle:
    """The bundle in a tar or a directory; ForensicsError when it is none, or several."""
    contents = read_directory(path) if path.is_dir() else read_archive(read_file(path, label))
    said = tuple(f"{warning.path}: {warning.message}" for warning in contents.warnings)
    members = {member.path: member for member in contents.members}
    roots = [name.removesuffix(BUNDLE) for name in members if name.rpartition("/")[2] == BUNDLE]
    if len(roots) != 1:
        raise ForensicsError(f"{label}: {f'holds {len(roots)} bundles' if roots else f'no bundle: it has no {BUNDLE}'}")
    below = {name.removeprefix(roots[0]): member for name, member in members.items() if name.startswith(roots[0])}
    document = parsed(member_content(below[BUNDLE]))
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise ForensicsError(f"{label}: {BUNDLE} is not of schema {SCHEMA}")
    digests = read_manifest({CHECKSUMS: below[CHECKSUMS]}).digests if CHECKSUMS in below else {}
    of_ranks: dict[int, list[str]] = {}
    for name in sorted(below):
        if name.startswith("ranks/") and _has_a_place(name, ()):
            of_ranks.setdefault(int(name.split("/")[1]), []).append(name)
    return HostBundle(label, document, below, said, digests, of_ranks)


@dataclass(slots=True)
class Merger:
    """Takes bundles into a staging directory, which has the layout of one bundle after each of them."""

    staging: Staging
    claims: Claims = field(default_factory=Claims)
    warnings: list[str] = field(default_factory=list)
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    _bundles: dict[str, HostBundle] = field(default_factory=dict)
    _sources: dict[str, str] = field(default_factory=dict)
    _runs_of: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    _redactions: list[Any] = field(default_factory=list)

    def add(self, bundle: HostBundle) -> tuple[str, ...]:
        """Take one bundle and give the names of its hosts; raises OSError when the disk is full."""
        self._bundles[bundle.label] = bundle
        self._warn(bundle.label, *bundle.warnings)
        changed = self.claims.add(bundle.label, bundle.document)
        nodes = _nodes(bundle.document)
        left_out = [path for path in bundle.members if not _has_a_place(path, nodes)]
        if left_out:
            self._warn(bundle.label, f"{len(left_out)} members left out, which have no place in a bundle: {left_out[0]!a}")
        for path in self._of_hosts(bundle, nodes):
            self._copy(bundle, path)
        self._read_runs(bundle, nodes)
        for rank in sorted(changed):
            self._give(rank)
        found = parsed(member_content(bundle.members[REDACTIONS])) if REDACTIONS in bundle.members else None
        self._redactions += [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
        return nodes

    def documents(self) -> dict[str, Mapping[str, Any]]:
        """What each bundle says of itself, by label."""
        return {label: self._bundles[label].document for label in sorted(self._bundles)}

    def close(self) -> None:
        """Write the runs of all hosts and the list of redactions."""
        for node, rows in sorted(self._chosen_runs().items()):
            path = f"nodes/{node}/collectors.jsonl"
            lines = [orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows]
            self.staging.write(path, b"".join(lines))
        self.staging.write_json(REDACTIONS, self._redactions)

    def _chosen_runs(self) -> dict[str, list[dict[str, Any]]]:
        """Runs of a host and of the ranks that its bundle saw; what else it says of ranks, others say better."""
        found: dict[str, list[dict[str, Any]]] = {}
        for (label, node), rows in sorted(self._runs_of.items()):
            is_first = node not in found
            own = [row for row in rows if (is_first if row.get("rank") is None else self.claims.owner(row["rank"]) == label)]
            found.setdefault(node, []).extend(own)
        for node, rows in self.runs.items():
            found.setdefault(node, []).extend(rows)
        return found

    def _of_hosts(self, bundle: HostBundle, nodes: tuple[str, ...]) -> Iterator[str]:
        """Members of hosts and of the job, that no earlier bundle brought."""
        for path in sorted(bundle.members):
            if not path.startswith(("nodes/", "job/")) or not _has_a_place(path, nodes) or _RUNS.fullmatch(path):
                continue
            first = self._sources.setdefault(path, bundle.label)
            if first == bundle.label:
                yield path
            else:
                self._warn(bundle.label, f"{path} left out: {first} brought one already")

    def _read_runs(self, bundle: HostBundle, nodes: tuple[str, ...]) -> None:
        for path, member in sorted(bundle.members.items()):
            if _RUNS.fullmatch(path) and path.split("/")[1] in nodes:
                rows = (parsed(line) for line in member_content(member).splitlines())
                kept = [row for row in rows if isinstance(row, dict)]
                self._runs_of.setdefault((bundle.label, path.split("/")[1]), []).extend(kept)

    def _give(self, rank: int) -> None:
        """Put the members of a rank in place that its present owner has."""
        shutil.rmtree(self.staging.root / "ranks" / str(rank), ignore_errors=True)
        owner = self._bundles.get(self.claims.owner(rank) or "")
        if owner is None:
            return
        for path in owner.of_ranks.get(rank, ()):
            self._copy(owner, path)

    def _copy(self, bundle: HostBundle, path: str) -> None:
        """One member as it is stored; damage is a warning."""
        try:
            with bundle.members[path].open_raw() as stream:
                written = self.staging.write_stream(path, chunks(stream))
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
            self._warn(bundle.label, f"{path} left out: {error.strerror}")
            return
        expected = bundle.digests.get(path)
        if expected is not None and expected != written.sha256:
            self._warn(bundle.label, f"{path}: another content than its {CHECKSUMS} says")

    def _warn(self, label: str, *words: str) -> None:
        self.warnings += [f"{label}: {each}" for each in words]


def _nodes(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Hosts that a bundle names, as folders of the layout have them."""
    listed = document.get("nodes")
    names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return tuple(dict.fromkeys(member_name(name) for name in names))


def _has_a_place(path: str, nodes: tuple[str, ...]) -> bool:
    parts = path.split("/")
    if path in (BUNDLE, CHECKSUMS, REDACTIONS):
        return True
    if len(parts) > _DEEPEST or any(not part or member_name(part) != part for part in parts):
        return False
    if parts[0] == "nodes":
        return len(parts) > 2 and parts[1] in nodes
    if parts[0] == "ranks":
        return len(parts) > 2 and re.fullmatch(r"0|[1-9]\d{0,6}", parts[1]) is not None
    return parts[0] == "job" and len(parts) > 1
