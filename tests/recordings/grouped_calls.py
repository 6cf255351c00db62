"""Cases of dumps as rows: groups with their members, ranks with their hosts, and calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from forensics.case.database import Connection, insert_rows, new_case

Groups = Mapping[str, tuple[int, ...]]
_GROUP = "communicator generation pg_name description backend size method confidence"


def insert_groups(
    connection: Connection, groups: Groups, backend: str = "nccl", names: Mapping[str, str] | None = None
) -> None:
    """Communicators of whose members a recorder tells; `names` are their descriptions."""
    described = names or {}
    rows = [(name, 0, name, described.get(name, ""), backend, len(ranks), "reported", "read") for name, ranks in groups.items()]
    insert_rows(connection, "communicators", _GROUP, [*rows])
    members = [(name, place, rank) for name, ranks in groups.items() for place, rank in enumerate(ranks)]
    insert_rows(connection, "members", "communicator position rank", [*members])


def case_of_dumps(
    groups: Groups, columns: str, calls: Iterable[tuple[object, ...]], *, backend: str = "nccl", host: str = "host{0}"
) -> Connection:
    """A case of one dump of each rank of the groups; `calls` are rows of `operations` with these columns."""
    connection = new_case()
    insert_groups(connection, groups, backend)
    ranks = sorted({rank for members in groups.values() for rank in members})
    files = [(rank, f"{rank}.json", "flight_recorder", "ok", 9) for rank in ranks]
    insert_rows(connection, "sources", "source_id path kind status rows", [*files])
    insert_rows(connection, "ranks", "source_id rank host", [(rank, rank, host.format(rank)) for rank in ranks])
    insert_rows(connection, "operations", columns, [*calls])
    return connection
