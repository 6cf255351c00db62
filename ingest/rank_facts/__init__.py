"""rank.json: identity of one rank, its process and how that ended (docs/formats/collection.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.config import config_batches
from forensics.ingest._shared.content import read_object
from forensics.ingest._shared.training_settings import options, setting_batches, settings
from forensics.ingest._shared.values import integer, rank_number, strings, text
from forensics.ingest.interface import Batch, Identity, Ingester, Item, Problem

_MARKS = (b'"rank_method"', b'"state_method"', b'"env_withheld"', b'"local_rank"', b'"start_ns"', b'"exit_signal"')
_FACTS = (
    "ns_pid", "ppid", "start_ns", "state_method", "cgroup", "cpus_allowed", "nice", "cpu_limit", "oom_kill", "children",
    "devices",
)  # fmt: skip


def sniff(head: bytes, path: str) -> int:
    """A JSON object with the keys of a rank."""
    return 90 if head.lstrip()[:1] == b"{" and b'"rank"' in head and sum(mark in head for mark in _MARKS) >= 3 else 0


def rows(artefact: Artefact) -> Iterator[Item]:
    """The rank, its environment, and what else is known of its process."""
    document = yield from read_object(artefact)
    if document is None:
        return
    rank = rank_number(document.get("rank"))
    if rank is None:
        yield Problem("no rank", fatal=True)
        return
    node = text(document.get("node"))
    yield Identity(rank=rank, host=node)
    yield Batch("ranks", {name: [value] for name, value in _identity(document, rank, node).items()})
    env = document.get("env")
    names = env.items() if isinstance(env, dict) else ()
    facts = {f"process.{key}": document.get(key) for key in _FACTS}
    yield from config_batches({f"env.{name}": value for name, value in names} | facts)
    yield from setting_batches(settings(options(strings(document.get("cmdline")))))


def _identity(document: dict[str, Any], rank: int, node: str | None) -> dict[str, Any]:
    env = document.get("env")
    devices = env.get("CUDA_VISIBLE_DEVICES") if isinstance(env, dict) else None
    local_rank = integer(document.get("local_rank"))
    return {
        "rank": rank,
        "host": node,
        "local_rank": local_rank,
        "gpu": _gpu(text(devices), local_rank),
        "pid": integer(document.get("pid")),
        "state": text(document.get("state")),
        "rank_method": text(document.get("rank_method")),
        "exit_signal": integer(document.get("exit_signal")),
        "exit_code": integer(document.get("exit_code")),
    }


def _gpu(devices: str | None, local_rank: int | None) -> str | None:
    """The CUDA device when the environment leaves one choice: one visible device, or one for each local rank."""
    names = [name.strip() for name in (devices or "").split(",") if name.strip()]
    if len(names) == 1:
        return names[0]
    return names[local_rank] if local_rank is not None and 0 <= local_rank < len(names) else None


INGESTER = Ingester("rank_facts", "collection", sniff, rows, most=90)
