"""Ranks of a script that starts itself once more for every further device of its host, as Lightning and Fabric do.

The copies get NODE_RANK, LOCAL_RANK and WORLD_SIZE, and no RANK (`_SubprocessScriptLauncher` of lightning/fabric/strategies/
launchers/subprocess_script.py). The process that the user started is number 0; it sets these variables after exec, so that
only what it starts shows them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from forensics.bundle.claims import Claim, NodePlace, job_id, place_on_node
from forensics.collect.processes import descendants
from forensics.collect.scan import Process, Scan

METHOD = "LOCAL_RANK+NODE_RANK"


def script_claims(scan: Scan, excluded: frozenset[int]) -> dict[int, Claim]:
    """What processes with a place on their node claim, by pid, those below them and the one that started them included."""
    places = {
        pid: place
        for pid, process in scan.processes.items()
        if pid not in excluded and process.stat.state not in "ZX" and (place := place_on_node(process.environ or {}))
    }
    copies: dict[tuple[int, NodePlace], list[int]] = defaultdict(list)
    for pid, place in places.items():
        parent = scan.processes[pid].stat.ppid
        if places.get(parent) != place:
            copies[parent, NodePlace(place.node, 0, place.world_size)].append(pid)
    found: dict[int, Claim] = {}
    for (parent, _), own in copies.items():
        found.update(_of_script(scan, places, parent, own))
    return found


def _of_script(scan: Scan, places: Mapping[int, NodePlace], parent: int, own: Sequence[int]) -> Iterator[tuple[int, Claim]]:
    processes = [scan.processes[pid] for pid in own]
    local_size = _local_size(places[own[0]].world_size, 1 + max(places[pid].local_rank for pid in own))
    first = processes[0]
    job = job_id(first.environ or {}, first.net_ns)
    claims = {
        pid: Claim(place.node * local_size + place.local_rank, METHOD, place.world_size, place.local_rank, local_size, job)
        for pid, place in ((pid, places[pid]) for pid in own)
    }
    for pid in own:
        yield pid, claims[pid]
        yield from ((below, claims[pid]) for below in descendants(scan.stats, pid) if places.get(below) == places[pid])
    script = scan.processes.get(parent)
    if script is not None and script.is_python and _began(processes, places):
        rank = places[own[0]].node * local_size
        yield parent, Claim(rank, METHOD, places[own[0]].world_size, 0, local_size, job)


def _began(processes: Sequence[Process], places: Mapping[int, NodePlace]) -> bool:
    """Whether the parent of these processes is number 0: a launcher starts that one before the others."""
    started = sorted(processes, key=lambda one: (one.stat.start_ticks, one.pid))
    return places[started[0].pid].local_rank > 0


def _local_size(world_size: int, least: int) -> int:
    """Processes on each node: as many as were seen at least, and all nodes alike."""
    return next((size for size in range(least, world_size + 1) if world_size % size == 0), least)
