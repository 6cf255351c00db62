"""The world size that gathers of the default group show: each member brings one part, and the output holds all of them.

gloo reports no members, and a few dumps of a larger job look like a smaller one. torch records the output of an `all_gather` as
one tensor with the group's size in front of the input's shape (`[[1]]` in, `[[4,1]]` out).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

# Beyond this a number is a misread shape or file name, not a world or a rank.
LARGEST_WORLD = 1 << 18

_GATHERS = """
SELECT DISTINCT input_sizes, output_sizes FROM operations
WHERE kind = 'all_gather' AND (pg_name = '0' OR communicator LIKE '%:default_pg') AND input_sizes IS NOT NULL
    AND output_sizes IS NOT NULL
ORDER BY ALL LIMIT 1000
"""


def gathered_world_size(connection: DuckDBPyConnection) -> int | None:
    """Return the size that all gathers of the default group agree on, None without one or when they contradict."""
    sizes = {size for row in rows_of(connection, "operations", _GATHERS) if (size := _parts(*row))}
    ((highest,),) = rows_of(connection, "operations", "SELECT max(rank) FROM operations") or [(None,)]
    size = sizes.pop() if len(sizes) == 1 else None
    return size if size and (highest is None or highest < size) else None


def _parts(inputs: str, outputs: str) -> int | None:
    """How many inputs the output holds; None when the shapes do not fit."""
    one, whole = next(_shapes(inputs), None), next(_shapes(outputs), None)
    if one is None or whole is None or whole[1:] != one or not whole:
        return None
    return whole[0] if isinstance(whole[0], int) and 0 < whole[0] <= LARGEST_WORLD else None


def _shapes(text: str) -> Iterator[list[object]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return
    yield from (shape for shape in found if isinstance(shape, list)) if isinstance(found, list) else ()
