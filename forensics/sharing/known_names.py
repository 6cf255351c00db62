"""Names of hosts and users that a body of evidence states, found before anything is replaced.

Hosts: nodes of the manifest, `node.json`, hosts that artefacts are filed under, MASTER_ADDR. Users: home folders, USER,
LOGNAME and the like in any text. A host whose name is an ordinary word of training logs, such as `node` or `gpu`, is not
replaced, because words that the verdict rests on would change with it; it is given back so that a report can say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import BUNDLE
from forensics.bundle.redaction import pieces
from forensics.bundle.streams import chunks

_MOST_BYTES = 64 << 20
_ORDINARY = re.compile(
    r"localhost|localdomain|host|hosts|node|nodes|rank|ranks|gpu|gpus|cuda|nccl|torch|python|"
    r"worker|workers|master|main|train|trainer|training|data|model|step|epoch|job|log|logs|error|warning|info|debug|unknown|none|null|true|false|kernel"
)
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
_ADDRESS = re.compile(r"[\d.]+|[0-9a-fA-F:]*:[0-9a-fA-F:]*")
_HOST_KEYS = frozenset({"node", "hostname", "host", "nodename", "MASTER_ADDR", "SLURMD_NODENAME", "HOSTNAME"})
_HOST_IN_TEXT = re.compile(
    rb"\b(?:MASTER_ADDR|HOSTNAME|SLURMD_NODENAME|hostname|nodename)[\"']?\s{0,2}[=:]\s{0,2}[\"']?([A-Za-z0-9][\w.-]{0,252})"
)
_USER_IN_TEXT = re.compile(
    rb"/(?:home|Users)/([A-Za-z_][\w.-]{0,63})|"
    rb"\b(?:USER|LOGNAME|SUDO_USER|USERNAME|SLURM_JOB_USER)[\"']?\s{0,2}[=:]\s{0,2}[\"']?([A-Za-z_][\w.-]{0,63})|"
    rb"\buid=\d{1,10}\(([A-Za-z_][\w.-]{0,63})\)"
)
_SHARED_USERS = frozenset({"root", "nobody", "ubuntu", "user", "users", "shared", "daemon"})


def stated_hosts(artefacts: Iterable[Artefact]) -> tuple[frozenset[str], frozenset[str]]:
    """The hosts to replace, and those whose name is an ordinary word."""
    found: set[str] = set()
    for artefact in artefacts:
        found.update([artefact.host] if artefact.host else ())
        name = artefact.path.rpartition("/")[2]
        if name == BUNDLE or name in ("node.json", "rank.json"):
            found.update(_named(_document(artefact)))
        found.update(match.decode("ascii", "replace") for match in _HOST_IN_TEXT.findall(_head(artefact)))
    names = {name for name in found if _HOST.fullmatch(name) and not _ADDRESS.fullmatch(name)}
    names |= {name.split(".")[0] for name in names}
    ordinary = {name for name in names if _ORDINARY.fullmatch(name.lower()) or len(name) < 2}
    return frozenset(names - ordinary), frozenset(ordinary - {"localhost", "localdomain"})


def stated_users(artefacts: Iterable[Artefact]) -> frozenset[str]:
    """The users to replace."""
    found: set[str] = set()
    for artefact in artefacts:
        for piece in _text(artefact):
            found.update(name.decode("ascii", "replace") for names in _USER_IN_TEXT.findall(piece) for name in names if name)
    return frozenset({name.rstrip(".-") for name in found} - _SHARED_USERS)


def _named(value: Any) -> Iterator[str]:
    """Texts under keys that name hosts, and the list of nodes, at any depth."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, str) and key in _HOST_KEYS:
                yield inner
            elif key == "nodes" and isinstance(inner, list):
                yield from (one for one in inner if isinstance(one, str))
            else:
                yield from _named(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _named(inner)


def _document(artefact: Artefact) -> Any:
    content = b"".join(_text(artefact))
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


def _head(artefact: Artefact) -> bytes:
    return next(_text(artefact), b"")


def _text(artefact: Artefact) -> Iterator[bytes]:
    """The content in pieces, as far as it can be had, at most 64 MiB of it."""
    left = _MOST_BYTES
    try:
        with artefact.open() as stream:
            for piece in pieces(chunks(stream)):
                yield piece
                left -= len(piece)
                if left <= 0:
                    return
    except OSError:
        return
