"""Which host a file is of, by what it is called: one that other evidence speaks of, or one more in a row of such files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

from forensics.case.database import Connection, has_rows

_HOSTS = """
SELECT DISTINCT host FROM (
    SELECT host FROM sources UNION SELECT host FROM ranks UNION SELECT host FROM process_ranks UNION SELECT host FROM nodes
    UNION SELECT host FROM log_positions UNION SELECT host FROM log_events UNION SELECT host FROM job_config
    UNION SELECT host FROM device_events UNION SELECT value FROM job_config WHERE key = 'pod.node'
) WHERE host IS NOT NULL
"""
_WITHOUT_HOST = (
    "SELECT source_id, path FROM sources WHERE host IS NULL AND status IN ('ok', 'partial') AND kind <> 'bundle_manifest'"
)
_OF_A_HOST = (
    "ranks",
    "process_ranks",
    "processes",
    "devices",
    "log_events",
    "log_positions",
    "device_events",
    "counters",
    "ras_ranks",
    "ras_reports",
)
_PARTS = re.compile(r"[A-Za-z0-9]+")
_DIGITS = re.compile(r"\d+")
_LEAST_SIBLINGS = 2


def name_hosts(connection: Connection) -> None:
    """Give files that are called by one known host that host, with their rows."""
    hosts = [host for (host,) in connection.execute(_HOSTS).fetchall()]
    if not hosts:
        return
    known = _by_parts(hosts)
    longest = max(map(len, known), default=0)
    paths = dict(connection.execute(_WITHOUT_HOST).fetchall())
    rows = [(source_id, host) for source_id, path in paths.items() if (host := _named(path, known, longest)) is not None]
    rows += _of_siblings(paths, dict(rows))
    if not rows:
        return
    connection.execute("CREATE TEMP TABLE named_hosts (source_id BIGINT, host VARCHAR)")
    connection.execute(
        "INSERT INTO named_hosts SELECT unnest(?::BIGINT[]), unnest(?::VARCHAR[])",
        [list(each) for each in zip(*rows, strict=True)],
    )
    for table in ("sources", *(name for name in _OF_A_HOST if has_rows(connection, name))):
        connection.execute(
            f"UPDATE {table} SET host = n.host FROM named_hosts n "
            f"WHERE {table}.source_id = n.source_id AND {table}.host IS NULL"
        )
    connection.execute("DROP TABLE named_hosts")


def _by_parts(hosts: Iterable[str]) -> dict[tuple[str, ...], set[str]]:
    """Hosts by the words and numbers of their names, whole and without their domain, and by each end that has a number."""
    found: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for host in hosts:
        short = tuple(part.lower() for part in _PARTS.findall(host.partition(".")[0]))
        for start in range(len(short)):
            end = short[start:]
            if any(c.isdigit() for c in "".join(end)) and any(c.isalpha() for c in "".join(end)):
                found[end].add(host)
        found[short].add(host)
        found[tuple(part.lower() for part in _PARTS.findall(host))].add(host)
    return found


def _named(path: str, known: dict[tuple[str, ...], set[str]], longest: int) -> str | None:
    """The one host that a path names: of several names at one place the longest counts, of `longest` parts at most."""
    named: set[str] = set()
    for folder in path.split("/"):
        parts = [part.lower() for part in _PARTS.findall(folder)]
        place = 0
        while place < len(parts):
            for length in range(min(longest, len(parts) - place), 0, -1):
                hosts = known.get(tuple(parts[place : place + length]))
                if hosts is not None:
                    named |= hosts if len(hosts) == 1 else {"", *hosts}
                    place += length - 1
                    break
            place += 1
    return named.pop() if len(named) == 1 else None


def _of_siblings(paths: Mapping[int, str], named: Mapping[int, str]) -> list[tuple[int, str]]:
    """Files that are called as several of known hosts are, but for numbers of the host: that is a host too."""
    siblings: dict[tuple[str, str], set[str]] = defaultdict(set)
    for source_id, host in named.items():
        before, middle, behind = paths[source_id].partition(host)
        if middle:
            siblings[before, behind].add(host)
    alike = [
        (*around, {_DIGITS.sub("#", host) for host in hosts})
        for around, hosts in siblings.items()
        if len(hosts) >= _LEAST_SIBLINGS
    ]
    return [
        (source_id, found)
        for source_id, path in paths.items()
        for before, behind, forms in alike
        if source_id not in named and (found := _between(path, before, behind, forms)) is not None
    ]


def _between(path: str, before: str, behind: str, forms: Collection[str]) -> str | None:
    """The name of a host, of one of these forms, between two parts of a path."""
    if not (path.startswith(before) and path.endswith(behind)) or len(path) <= len(before) + len(behind):
        return None
    middle = path[len(before) : len(path) - len(behind)]
    return middle if _DIGITS.sub("#", middle) in forms else None
