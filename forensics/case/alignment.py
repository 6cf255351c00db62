"""Find the communicators of a case: who are the members of each group, and which operation belongs to which.

Group numbers (`pg_id`) are local to a process; the name and the member set are the only keys that hold across ranks. gloo
reports no members (docs/formats/flight-recorder.md), so they are inferred from the ranks that were seen using the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.case.call_store import call_column, calls_table
from forensics.case.database import has_rows, insert_rows, rows_of
from forensics.case.gathered import LARGEST_WORLD, gathered_world_size
from forensics.case.logged_calls import complete_calls
from forensics.case.logged_groups import logged_groups

DEFAULT_GROUP = "default_pg"
_NAMED = "FROM group_views WHERE pg_name IS NOT NULL AND rank IS NOT NULL"
# The first rank that describes a group decides.
_DESCRIPTIONS = f"""
SELECT pg_name, coalesce(min_by(description, (rank, description)) FILTER (description <> ''), '')
{_NAMED} GROUP BY pg_name ORDER BY min(rank), pg_name
"""
# Every rank lists all members of every group: distinct here, for a large world has millions of numbers in these lists.
_MEMBER_LISTS = f"SELECT DISTINCT pg_name, members {_NAMED} AND len(members) > 0"
_VIEWS_WITHOUT_MEMBERS = f"SELECT DISTINCT pg_name, rank, pg_id {_NAMED} AND coalesce(len(members), 0) = 0 ORDER BY ALL"


@dataclass(slots=True)
class _Group:
    """What all ranks together say of one (name, backend): users by rank, and the distinct member lists they reported."""

    name: str
    backend: str
    description: str = ""
    users: dict[int, int | None] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    reported: set[tuple[int, ...]] = field(default_factory=set)
    alike: tuple[int, ...] = ()


def align(connection: DuckDBPyConnection) -> None:
    """Fill `communicators`, `members` and `operations.communicator`, then complete the calls of shim logs."""
    world = _world(connection)
    rows: list[tuple[object, ...]] = []
    members: list[tuple[object, ...]] = []
    keys: list[tuple[object, ...]] = []
    groups = _groups(connection)
    several_backends = _names_with_several_backends(groups)
    for group in groups:
        for generation, (label, method, ranks) in enumerate(_member_sets(group, world, several_backends)):
            confidence = {"reported": "read", "siblings": "inferred", "world": "inferred", "peers": "assumed"}[method]
            rows.append((label, generation, group.name, group.description, group.backend, len(ranks), method, confidence))
            places = _places(group, method, ranks)
            members.extend((label, place, rank, group.users.get(rank)) for place, rank in zip(places, ranks, strict=True))
            keys.extend((group.name, group.backend, rank, label) for rank in ranks)
    _store(connection, rows, members, keys)
    complete_calls(connection)


def _places(group: _Group, method: str, ranks: tuple[int, ...]) -> Sequence[int]:
    """Places of ranks in their group: one of which some members are not known has gaps, where its ranks say their places."""
    stated = [group.places[rank] for rank in ranks if rank in group.places]
    is_known = method == "peers" and len(set(stated)) == len(ranks)
    return stated if is_known else range(len(ranks))


def _store(
    connection: DuckDBPyConnection,
    rows: list[tuple[object, ...]],
    members: list[tuple[object, ...]],
    keys: list[tuple[object, ...]],
) -> None:
    insert_rows(connection, "communicators", "communicator generation pg_name description backend size method confidence", rows)
    insert_rows(connection, "members", "communicator position rank pg_id", members)
    if not has_rows(connection, "operations"):
        return
    connection.execute("CREATE TEMP TABLE group_keys (pg_name VARCHAR, backend VARCHAR, rank INTEGER, label VARCHAR)")
    insert_rows(connection, "group_keys", "pg_name backend rank label", keys)
    connection.execute(
        """
        CREATE TEMP TABLE relabelled AS
        SELECT used.*, k.label
        FROM (SELECT DISTINCT pg_name, backend, rank, communicator FROM operations) used
        LEFT JOIN group_keys k ON k.pg_name = used.pg_name AND k.backend = used.backend AND k.rank = used.rank
        WHERE used.communicator IS DISTINCT FROM k.label
        """
    )
    # An ingester's guess is nearly always right, and rewriting a column of millions of rows takes longer than reading it.
    if connection.execute("SELECT count(*) FROM relabelled").fetchall() != [(0,)]:
        connection.execute(
            f"""
            UPDATE {calls_table(connection)} SET communicator = r.label FROM relabelled r
            WHERE {call_column(connection, "pg_name")} IS NOT DISTINCT FROM r.pg_name
                AND {call_column(connection, "backend")} IS NOT DISTINCT FROM r.backend
                AND {call_column(connection, "rank")} IS NOT DISTINCT FROM r.rank
                AND {call_column(connection, "communicator")} IS NOT DISTINCT FROM r.communicator
            """
        )
    connection.execute("DROP TABLE relabelled")
    connection.execute("DROP TABLE group_keys")


def _world(connection: DuckDBPyConnection) -> tuple[int, ...]:
    """Ranks of the default group: the highest one seen implies the lower ones, and a gather shows how many there are."""
    configured = configured_world_size(connection)
    ((highest,),) = connection.execute(
        f"""
        SELECT max(rank) FROM (SELECT rank FROM ranks UNION SELECT rank FROM operations UNION SELECT rank FROM group_views
        UNION SELECT rank FROM stacks UNION SELECT rank FROM sources) WHERE rank < {LARGEST_WORLD}
        """
    ).fetchall()
    seen = (-1 if highest is None else int(highest)) + 1
    return tuple(range(configured or max(seen, gathered_world_size(connection) or 0)))


def configured_world_size(connection: DuckDBPyConnection) -> int | None:
    """Return the world size that the job's configuration tells, None when nothing tells it or it is absurd."""
    query = "SELECT max(try_cast(value AS INTEGER)) FROM job_config WHERE key = 'world_size'"
    sizes = [size for (size,) in rows_of(connection, "job_config", query, kinds=("world_size",)) if size is not None]
    return next((int(size) for size in sizes if 0 < size <= LARGEST_WORLD), None)


def stated_world_sizes(connection: DuckDBPyConnection, *more: str) -> set[int | None]:
    """Every size of the job that its configuration, a log, or one of `more` settings states; None for what is no number."""
    query = "SELECT DISTINCT try_cast(value AS INTEGER) FROM job_config WHERE list_contains(?, key)"
    keys = ["world_size", "log.world_size", *more]
    return {size for (size,) in rows_of(connection, "job_config", query, [keys], keys)}


def _groups(connection: DuckDBPyConnection) -> list[_Group]:
    groups: dict[tuple[str, str], _Group] = {}
    used = "SELECT pg_name, backend, rank, any_value(pg_id) FROM operations WHERE pg_name IS NOT NULL AND rank IS NOT NULL"
    for name, backend, rank, pg_id in rows_of(connection, "operations", f"{used} GROUP BY ALL ORDER BY ALL"):
        groups.setdefault((name, backend), _Group(name, backend)).users[rank] = pg_id
    _add_views(connection, groups)
    _add_logged(connection, groups)
    return [groups[key] for key in sorted(groups, key=lambda k: (k[0], str(k[1])))]


def _add_views(connection: DuckDBPyConnection, groups: dict[tuple[str, str], _Group]) -> None:
    """Add what ranks report of groups; a group without a single recorded operation has no backend of its own."""
    by_name: dict[str, list[_Group]] = defaultdict(list)
    for group in groups.values():
        by_name[group.name].append(group)
    for name, description in rows_of(connection, "group_views", _DESCRIPTIONS):
        if name not in by_name:
            by_name[name].append(groups.setdefault((name, "unknown"), _Group(name, "unknown")))
        for group in by_name[name]:
            group.description = description
    for name, members in rows_of(connection, "group_views", _MEMBER_LISTS):
        for group in by_name[name]:
            group.reported.add(tuple(members))
    for name, rank, pg_id in rows_of(connection, "group_views", _VIEWS_WITHOUT_MEMBERS):
        for group in by_name[name]:
            group.users.setdefault(rank, pg_id)


def _add_logged(connection: DuckDBPyConnection, groups: dict[tuple[str, str], _Group]) -> None:
    """Add what shim logs say of NCCL communicators; their label is the name of the group."""
    for stated in logged_groups(connection, configured_world_size(connection)):
        group = groups.setdefault((stated.communicator, "nccl"), _Group(stated.communicator, "nccl"))
        for rank in stated.seen:
            group.users.setdefault(rank, None)
        group.places |= stated.places
        group.alike = stated.alike
        if stated.members:
            group.reported.add(stated.members)


def _names_with_several_backends(groups: list[_Group]) -> frozenset[str]:
    counts = Counter(group.name for group in groups)
    return frozenset(name for name, count in counts.items() if count > 1)


def _member_sets(group: _Group, world: tuple[int, ...], ambiguous: frozenset[str]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Member sets of one name, each with its label and the method that gave it."""
    label = plain_label(group.name, group.description)
    if group.name in ambiguous:
        label += f"/{group.backend}"
    if group.reported:
        sets = sorted(group.reported, key=lambda ranks: (ranks[0], len(ranks), ranks))
        if len(sets) == 1:
            return [(label, "reported", sets[0])]
        return [(f"{label}[{_span(ranks)}]", "reported", ranks) for ranks in sets]
    if group.alike:
        return [(label, "siblings", group.alike)]
    if group.description == DEFAULT_GROUP or (group.name == "0" and set(group.users) <= set(world)):
        return [(label, "world", tuple(sorted(set(world) | set(group.users))))]
    return [(label, "peers", tuple(sorted(group.users)))]


def plain_label(name: str, description: str | None) -> str:
    """The label of a communicator whose name no other group shares."""
    return f"{name}:{description}" if description and description != "undefined" else name


def _span(ranks: tuple[int, ...]) -> str:
    return ",".join(map(str, ranks)) if len(ranks) <= 4 else f"{ranks[0]},{ranks[1]}..{ranks[-1]}"
