"""Opens whatever the user has: a bundle (tar or directory), a folder of dumps, loose files, or several of these."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from forensics.bundle import limits
from forensics.bundle.artefact import Artefact
from forensics.bundle.digests import Digest, digests_of
from forensics.bundle.gathering import Gathered, gather, root_folders, without_only_root
from forensics.bundle.layout import CHECKSUMS
from forensics.bundle.manifest import Manifest, Run, read_manifest
from forensics.bundle.members import BundleWarning, Member
from forensics.bundle.numbered_looks import with_numbered_looks
from forensics.bundle.origin import bundle_origin, origin
from forensics.bundle.proven_ranks import with_proven_ranks
from forensics.bundle.shards import is_part, sharded
from forensics.bundle.streams import content_opener
from forensics.bundle.summaries import MAGIC as SUMMARY_MAGIC
from forensics.bundle.summaries import Described, summarised
from forensics.errors import ExitCode, ForensicsError


@dataclass(frozen=True, slots=True)
class Bundle:
    """Everything readable of the input.

    `kind` is `bundle` when a bundle.json was found, else `files`. `sha256` is the digest over the sorted (path, digest)
    pairs of the members, equal for a tar and for the directory it was made from; None when a member could not be read.
    `damaged` says of a path why its bytes are not those that were written: cut, or not matching SHA256SUMS.
    """

    artefacts: Sequence[Artefact]
    warnings: Sequence[BundleWarning]
    kind: str
    sha256: str | None
    damaged: Mapping[str, str]


def open_bundle(paths: Sequence[Path], names: Mapping[Path, str] = MappingProxyType({})) -> Bundle:
    """Open the given bundles, directories and files as one body of evidence, in path order.

    `names` are those of files that have none of their own.

    Raises ForensicsError(UNREADABLE) when a path does not exist or cannot be read, or when there is nothing in them.
    """
    labelled = _labelled(paths, names)
    gathered = Gathered()
    for path, label in labelled:
        try:
            gather(path, label, "" if len(labelled) == 1 else f"{label}/", gathered)
        except OSError as error:
            raise ForensicsError(f"{path}: cannot be read: {error.strerror or error}", ExitCode.UNREADABLE) from error
    if not any(member.stored_bytes for member in gathered.members.values()):
        raise ForensicsError(f"{', '.join(map(str, paths))}: empty, there is nothing to read", ExitCode.UNREADABLE)
    if sum(member.stored_bytes for member in gathered.members.values()) > limits.budget().bytes:
        raise ForensicsError(f"{', '.join(map(str, paths))}: {limits.exceeded('bytes')}")
    return _assemble(without_only_root(gathered))


def _labelled(paths: Sequence[Path], names: Mapping[Path, str]) -> list[tuple[Path, str]]:
    """Each distinct input with its name below the folder common to all of them, in the order of these names."""
    real = {os.path.realpath(path): path for path in paths if path not in names}
    if not paths:
        raise ForensicsError("no input was given", ExitCode.USAGE)
    for path in paths:
        if not path.is_file() and not path.is_dir():
            special = "neither a file nor a directory; a log is piped in with `... | forensics diagnose -`"
            problem = special if path.exists() else "no such file or directory"
            raise ForensicsError(f"{path}: {problem}", ExitCode.UNREADABLE)
    common = os.path.commonpath([os.path.dirname(name) for name in real]) if real else ""  # noqa: PTH120
    labels = {path: Path(os.path.relpath(name, common)).as_posix() for name, path in real.items()}
    return sorted({**labels, **names}.items(), key=lambda item: item[1])


def _assemble(gathered: Gathered) -> Bundle:
    """Digests, manifests and origins of everything that was gathered."""
    members = gathered.members
    read = _digests(gathered)
    digests = {path: digest.sha256 for path, digest in read.items()}
    for path, member in members.items():
        if member.cut_at is not None:
            gathered.damaged[path] = f"the archive was cut at byte {member.cut_at}, inside this member"
    folders = root_folders(members)
    manifests = {folder: read_manifest(_below(folder, folders, members)) for folder in folders}
    for folder in folders:
        _verify(folder, manifests[folder], digests, gathered)
    shards = {one.member.path: one for one in sharded(members, gathered.warnings)} if folders else {}
    if shards:
        members = {path: member for path, member in members.items() if not is_part(path)}
        members |= {path: one.member for path, one in shards.items()}
        digests = {path: digest for path, digest in digests.items() if not is_part(path)}
        digests |= {path: one.sha256 for path, one in shards.items()}
    begun = {path for path, digest in read.items() if digest.head.startswith(SUMMARY_MAGIC)}
    summaries = summarised(members, digests, begun, folders, gathered.warnings)
    kept = {path: member for path, member in members.items() if path not in summaries}
    parts = {one.member.path: (one, path) for path, found in summaries.items() for one in found}
    artefacts = []
    for path in sorted({*kept, *parts}):
        home = next((folder for folder in folders if path.startswith(folder)), None)
        manifest = None if home is None else manifests[home]
        if path in parts:
            one, file = parts[path]
            artefacts.append(_stood_for(_artefact(one.member, None, home or "", manifest), one.described, file))
            continue
        artefact = _artefact(kept[path], digests[path], home or "", manifest)
        artefacts.append(replace(artefact, shard=shards[path].shard) if path in shards else artefact)
    warnings = sorted(gathered.warnings, key=lambda item: (item.path or "", item.locator or "", item.message))
    sums = {folder + CHECKSUMS for folder in folders}  # what they say of the others is no evidence of its own
    top = {path: digest for path, digest in digests.items() if path not in gathered.nested and path not in sums}
    kind = "bundle" if folders else "files"
    return Bundle(with_numbered_looks(with_proven_ranks(artefacts)), warnings, kind, _whole_digest(top), gathered.damaged)


def _below(folder: str, folders: Sequence[str], members: Mapping[str, Member]) -> dict[str, Member]:
    """Members of one bundle, by their path below its folder; those of a bundle inside it are its own business."""
    inner = tuple(other for other in folders if other != folder and other.startswith(folder))
    return {
        path.removeprefix(folder): member
        for path, member in members.items()
        if path.startswith(folder) and not (inner and path.startswith(inner))
    }


def _digests(gathered: Gathered) -> dict[str, Digest]:
    """SHA-256 of the stored bytes by path, with a warning when they cannot be read."""
    found = digests_of({**gathered.archives, **gathered.members})
    for path, digest in found.items():
        if digest.problem is not None:
            gathered.warnings.append(BundleWarning(path, None, digest.problem))
            gathered.damaged[path] = digest.problem
    return found


def _shared_folder(paths: Sequence[str]) -> str:
    """The folder all paths lie in, with a closing slash: a tar of a folder often has it, the folder itself has not."""
    common = os.path.commonpath([path.rpartition("/")[0] for path in paths]) if paths else ""
    return f"{common}/" if common else ""


def _whole_digest(digests: Mapping[str, str | None]) -> str | None:
    if any(digest is None for digest in digests.values()):
        return None
    shared = _shared_folder(list(digests))
    lines = (f"{digests[path]}  {path[len(shared) :]}\n" for path in sorted(digests))
    return hashlib.sha256("".join(lines).encode("utf-8", "replace")).hexdigest()


def _verify(folder: str, manifest: Manifest, digests: Mapping[str, str | None], gathered: Gathered) -> None:
    """Compare the members with SHA256SUMS; a member that does not match is marked and still read."""
    for path, expected in manifest.digests.items():
        name = folder + path
        actual = digests.get(name)
        message = None
        if name not in digests:
            message = "named in SHA256SUMS but not there"
        elif actual is not None and actual != expected:
            message = "content does not match SHA256SUMS: changed or damaged after it was collected"
            gathered.damaged.setdefault(name, message)
        if message is not None:
            gathered.warnings.append(BundleWarning(name, None, message))


def _stood_for(section: Artefact, described: Described, file: str) -> Artefact:
    """The artefact that a section stands for, with what the section says of it where no manifest does."""
    stated = section.rank_method == "manifest" or described.rank is None or described.rank_from == "content"
    return replace(
        section,
        host=section.host or described.host,
        rank=section.rank if stated else described.rank,
        rank_method=section.rank_method if stated else described.rank_from,
        pid=section.pid if section.pid is not None else described.pid,
        sample=section.sample if section.sample is not None else described.sample,
        captured_ns=section.captured_ns if section.captured_ns is not None else described.captured_ns,
        numbered=section.numbered or described.sample is not None,
        modified_ns=None,
        summary=file,
    )


def _artefact(member: Member, sha256: str | None, folder: str, manifest: Manifest | None) -> Artefact:
    """The member with what the manifest says of it, completed by what its path says."""
    inner = member.path.removeprefix(folder)
    run = Run() if manifest is None else manifest.runs.get(inner, Run())
    from_path = origin(inner) if manifest is None else bundle_origin(inner)
    rank = from_path.rank if run.rank is None else run.rank
    node = manifest.nodes.get(rank) if manifest is not None and rank is not None else None
    return Artefact(
        path=member.path,
        stored_bytes=member.stored_bytes,
        open=content_opener(member.open_raw, member.stored_bytes),
        sha256=sha256,
        host=run.node or node or from_path.host,
        rank=rank,
        rank_method=from_path.rank_method if run.rank is None else "manifest",
        pid=from_path.pid if run.pid is None else run.pid,
        is_child=from_path.is_child,
        sample=from_path.sample if run.sample is None else run.sample,
        collector=run.collector,
        captured_ns=run.content_ns,
        numbered=run.sample is not None or (manifest is not None and from_path.sample is not None),
        modified_ns=member.modified_ns if manifest is None else None,
    )
