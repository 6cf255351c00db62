"""All ranks of a host of which some are known, where a launcher states how many each host has.

Launchers give each host of a job as many ranks in a row (torchrun and Slurm by default). What is known must fit: all ranks of a
host lie in one block, and no two hosts in the same one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from forensics.case.alignment import stated_world_sizes
from forensics.case.database import Connection, has_rows, insert_rows, rows_of
from forensics.case.owners import LINES_OF_A_LOG

_EACH = """
SELECT DISTINCT try_cast(value AS INTEGER) FROM job_config WHERE key = 'log.per_node'
UNION SELECT DISTINCT per_node FROM process_ranks WHERE per_node IS NOT NULL
"""
# What other processes say of a rank, in the log of one host, shows nothing of where it is.
_KNOWN = f"""
SELECT host, rank FROM process_ranks WHERE host IS NOT NULL AND rank IS NOT NULL
UNION SELECT host, rank FROM sources WHERE kind IN ('training_log', 'nccl_log') AND host IS NOT NULL AND rank IS NOT NULL
    AND rank_method <> 'guessed'
UNION SELECT host, node * per_node FROM process_ranks WHERE host IS NOT NULL AND node IS NOT NULL AND per_node IS NOT NULL
UNION SELECT coalesce(e.host, s.host), e.rank FROM (
        SELECT source_id, host, rank FROM log_events WHERE rank IS NOT NULL AND {LINES_OF_A_LOG["log_events"]}
    ) e JOIN sources s USING (source_id) WHERE s.kind = 'training_log' AND coalesce(e.host, s.host) IS NOT NULL
"""
_IN_ORDER = "SELECT list(host ORDER BY node) FROM nodes WHERE slots IS NULL GROUP BY source_id"
_BY_NCCL = "SELECT max(size) FROM log_positions WHERE origin = 'nccl'"
_LARGEST_NODE = 64


def complete_nodes(connection: Connection) -> None:
    """Add the ranks of each host to `process_ranks`, where one number of them is stated and all that is known fits."""
    if not has_rows(connection, "job_config", ("log.per_node",)) and not has_rows(connection, "process_ranks"):
        return
    stated = {each for (each,) in connection.execute(_EACH).fetchall() if each}
    sizes = {size for size in stated_world_sizes(connection) if size}
    sizes = sizes or {size for (size,) in rows_of(connection, "log_positions", _BY_NCCL) if size}
    if len(stated) != 1 or len(sizes) > 1:
        return
    (each,) = stated
    world = next(iter(sizes), None)
    known: dict[str, set[int]] = defaultdict(set)
    for host, rank in connection.execute(_KNOWN).fetchall():
        known[host].add(rank)
    if not 1 < each <= _LARGEST_NODE or (world is not None and world <= each):
        return
    lists = {tuple(hosts) for (hosts,) in rows_of(connection, "nodes", _IN_ORDER)}
    blocks = _blocks(known, each, world, lists.pop() if len(lists) == 1 else ())
    rows: list[tuple[object, ...]] = [
        (host, rank, rank - block * each, "implied")
        for host, block in blocks.items()
        for rank in range(block * each, (block + 1) * each)
        if rank not in known.get(host, ())
    ]
    insert_rows(connection, "process_ranks", "host rank local_rank method", rows)


def _blocks(known: Mapping[str, Iterable[int]], each: int, world: int | None, order: Sequence[str]) -> dict[str, int]:
    """The block of each host; those of a list that has all hosts of the job, by its order, where it fits what is known."""
    blocks = {host: {rank // each for rank in ranks} for host, ranks in known.items()}
    if any(len(own) > 1 for own in blocks.values()):
        return {}
    found = {host: own.pop() for host, own in blocks.items()}
    if len(set(found.values())) < len(found) or (world is not None and max(found.values(), default=0) * each >= world):
        return {}
    listed = {host: place for place, host in enumerate(order)} if world == each * len(order) else {}
    return found | listed if all(listed.get(host, block) == block for host, block in found.items()) else found
