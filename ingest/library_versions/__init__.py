"""versions.json: the libraries that each rank of a node has mapped (docs/formats/collection.md)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_object
from forensics.ingest._shared.values import rank_number, text
from forensics.ingest.interface import Identity, Ingester, Item

SCHEMA = "forensics.versions/1"


def sniff(head: bytes, path: str) -> int:
    """Names its schema."""
    return 95 if b'"forensics.versions/' in head else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """One setting for each rank and package, and for each rank and library."""
    document = yield from read_object(artefact, SCHEMA)
    if document is None:
        return
    yield Identity(host=text(document.get("node")))
    ranks = document.get("ranks")
    for key, facts in ranks.items() if isinstance(ranks, dict) else ():
        rank = rank_number(key)
        if rank is not None and isinstance(facts, dict):
            yield from config_batches(_settings(facts), rank=rank)


def _settings(facts: dict[str, Any]) -> dict[str, Any]:
    """`exe`, `package.<name>` with its version, and `library.<file>` with its path."""
    packages = facts.get("packages")
    libraries = facts.get("libraries")
    found: dict[str, Any] = {"exe": facts.get("exe")}
    for name, version in packages.items() if isinstance(packages, dict) else ():
        found[f"package.{name}"] = text(version)
    for path in libraries if isinstance(libraries, list) else ():
        if isinstance(path, str):
            found[f"library.{PurePosixPath(path).name}"] = path
    return found


INGESTER = Ingester("library_versions", "collection", sniff, rows, most=95)
