"""What a table of processes tells of the ranks that one launcher started on the only node of its job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from forensics.ingest.process_facts.tables import Seen


def with_launcher(table: Sequence[Seen]) -> list[Seen]:
    """The rows of one sample, with the node of those that the one launcher started.

    A process that ended has no command any more: of the ranks of the node it is the one that no other row is, where it is the
    only such process.
    """
    launchers = [seen.starts for seen in table if seen.starts is not None]
    places = [seen.place.get("local_rank") for seen in table if "local_rank" in seen.place and seen.pid == seen.thread]
    if len(launchers) != 1 or not places or len(set(places)) < len(places) or not {*places} <= {*range(launchers[0])}:
        return list(table)
    missing = {*range(launchers[0])} - {*places}
    ended = [seen for seen in table if seen.state == "Z" and "local_rank" not in seen.place and seen.pid == seen.thread]
    lost = ended[0] if len(ended) == len(missing) == 1 else None
    node = {"node": 0, "per_node": launchers[0]}
    return [
        replace(seen, place={"local_rank": min(missing), **node})
        if seen is lost
        else replace(seen, place={**seen.place, **node})
        if "local_rank" in seen.place
        else seen
        for seen in table
    ]
