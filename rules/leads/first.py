"""Where somebody on call looks first when nobody can be named: what others name, and what stands out and proves nothing.

What logs tell (logs.py, ends.py), a GPU with an error or whose results differ, a link or port (links.py), a NIC of which no
rank is known (nics.py), a GPU that idles or is clocked down while all others are busy; whom a library waited for (awaited.py);
calls that did not fit (calls.py); few ranks that are elsewhere than the others in stacks of one moment, or of which nothing is
here; a build that all wait for and nobody makes.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, takewhile
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of
from forensics.model import TreeLine
from forensics.rules.leads.awaited import awaited_leads
from forensics.rules.leads.boards import board_leads
from forensics.rules.leads.calls import differing_calls, mismatch_near, refused_message, threads_in_calls, unnamed_dumps
from forensics.rules.leads.devices import device_leads, norm_differs
from forensics.rules.leads.ends import end_leads
from forensics.rules.leads.fabric import fabric_leads
from forensics.rules.leads.flaps import flap_leads
from forensics.rules.leads.links import link_leads, place
from forensics.rules.leads.logs import LEAST_ALIKE, ended_leads, time_limit, waiting_leads
from forensics.rules.leads.nics import nic_leads
from forensics.rules.leads.steps import step_leads
from forensics.rules.reductions.epochs.unplaced import UnplacedNics
from forensics.rules.reductions.hardware.gpu_errors import GpuErrors
from forensics.rules.reductions.logs.log_evidence import Logged
from forensics.rules.reductions.mismatch.logged_mismatches import LoggedMismatches
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.stacks.samples import StacksByRank
from forensics.rules.reductions.stacks.tree import apart
from forensics.rules.reductions.text.evidence_text import ranks_text

_MOST = 4
# `FileBaton` of torch/utils/file_baton.py: whoever finds its file waits until it is gone.
_BUILD_LOCK = re.compile(r"\bwait \(file_baton\.py:")
_LEAST_GPUS, _LEAST_UNHELD = 4, 3
_IDLE, _USED, _BUSY, _WAITING = 5, 50, 95, 0.4
# GPUs on which somebody computes, or did before, with how busy they were in all looks at them, what power they drew of what
# they may, and the memory in use: tables of a container show no processes.
_GPUS = f"""
SELECT host, device, max(value) FILTER (counter = 'utilization_percent') AS most,
       min(value) FILTER (counter = 'utilization_percent') AS least,
       max(value) FILTER (counter = 'power_mw') / nullif(max(value) FILTER (counter = 'power_limit_mw'), 0) AS power,
       min(split_part(counter, '.', 2)) FILTER (counter LIKE 'process_memory_bytes.%') AS pid,
       max(value) FILTER (counter IN ('memory_used_bytes', 'memory_used_percent')) AS held
FROM counters WHERE device LIKE 'GPU-%' GROUP BY host, device
HAVING (pid IS NOT NULL OR held IS NOT NULL OR max(value) FILTER (counter = 'utilization_most_percent') >= {_USED})
    AND most IS NOT NULL ORDER BY host, device
"""
# GPUs whose clocks are held down by heat or power supply: a limit of power that software sets is usual.
_THROTTLED = """
SELECT e.host, e.device, string_agg(DISTINCT e.text, ', ' ORDER BY e.text), min(e.source),
       (SELECT count(DISTINCT (host, device)) FROM devices WHERE kind = 'gpu')
FROM device_event e WHERE e.kind = 'throttle'
    AND e.text IN ('hw_slowdown', 'hw_thermal_slowdown', 'hw_power_brake_slowdown', 'sw_thermal_slowdown')
GROUP BY e.host, e.device ORDER BY ALL
"""
# Clocks of GPUs that compute in all looks at them: idle ones lower theirs, and those that wait for the slow one have gaps.
_CLOCKS = f"""
SELECT c.host, c.device, max(value) FILTER (counter = 'clock_sm_mhz') AS clock, min(s.path),
       min(value) FILTER (counter = 'utilization_percent') AS least
FROM counters c JOIN sources s USING (source_id) WHERE c.device LIKE 'GPU-%' GROUP BY c.host, c.device
HAVING clock IS NOT NULL AND least >= {_USED} ORDER BY clock, c.host, c.device
"""
# GPUs by what they may draw, with what they draw at most.
_LIMITS = """
SELECT c.host, c.device, max(value) FILTER (counter = 'power_limit_mw') AS most,
       max(value) FILTER (counter = 'power_mw') AS draw, min(s.path)
FROM counters c JOIN sources s USING (source_id) WHERE c.device LIKE 'GPU-%' GROUP BY c.host, c.device
HAVING most IS NOT NULL AND draw IS NOT NULL ORDER BY most, c.host, c.device
"""
# Of the clock, or the limit, of the slowest other GPU, and how far below the fastest that one is at most. A GPU draws nearly
# what it may where that holds it down.
_LOW, _ALIKE, _AT_LIMIT = 0.75, 0.85, 0.85
# How long each rank took for its own work in a step; of fewer steps the first ones, which compile, count too much.
_WORKED = """
SELECT t.kind, t.rank, median(t.ms) AS usual, min(s.path) FROM log_stage_times t JOIN sources s USING (source_id)
WHERE t.rank IS NOT NULL AND t.kind IN ('compute', 'forward', 'data') GROUP BY t.kind, t.rank HAVING count(*) >= 8
ORDER BY t.kind, usual DESC, t.rank
"""
_OF_NCCL = "SELECT DISTINCT rank FROM process_ranks WHERE method = 'nccl' AND rank IS NOT NULL ORDER BY rank"
_LONGER, _ABOUT = 1.25, 1.1
# Whose result was another one when the same step was computed again.
_DIFFERS = """
SELECT rank, arg_min(subject, (path, locator)), arg_min(source, (path, locator)) FROM logged_event
WHERE kind = 'result_differs' AND rank IS NOT NULL GROUP BY rank ORDER BY rank
"""


def first_leads(
    connection: DuckDBPyConnection,
    roster: Roster,
    errors: GpuErrors,
    heard: Logged,
    mismatches: LoggedMismatches,
    stacks: StacksByRank,
    nics: UnplacedNics,
) -> tuple[str, ...]:
    """Each a sentence that says what to get, the surest first."""
    found = (
        *norm_differs(connection),
        *ended_leads(connection, heard),
        *_errors(roster, errors),
        *end_leads(connection),
        *device_leads(connection, errors),
        *board_leads(connection),
        *link_leads(connection),
        *fabric_leads(connection),
        *nic_leads(nics),
        *_result_differs(connection),
        *waiting_leads(connection),
        *awaited_leads(connection),
        *step_leads(connection),
        *differing_calls(mismatches),
        *refused_message(connection),
        *mismatch_near(connection),
        *unnamed_dumps(connection),
        *threads_in_calls(stacks),
        *_idle(connection),
        *of_speed(connection),
        *time_limit(connection, heard),
    )
    return tuple(islice(found, _MOST))


def of_speed(connection: DuckDBPyConnection) -> tuple[str, ...]:
    """Of these, what makes a job slow that moves: a link that flaps, a rank that works longer, a GPU whose clocks are down."""
    held = (*_throttled(connection), *_limited(connection))
    of_gpus = (*held, *(() if held else _clocked_down(connection)))
    return (*flap_leads(connection), *_works_longer(connection), *of_gpus)


def _errors(roster: Roster, errors: GpuErrors) -> Iterator[str]:
    """Errors that most ranks have are of the program that all of them run."""
    if 2 * len(errors.by_rank) <= max(len(roster.ranks), len(errors.by_rank)):
        for rank, error in errors.by_rank.items():
            yield f"stack and log of rank {rank}: {error.teller} reports of its GPU {error.meaning} ({error.source})"
    for error in errors.unplaced if len(errors.unplaced) == 1 else ():
        host = error.host or error.told
        where = f" of {host}" if host else ""
        device = (error.address or "").removeprefix("GPU-") or "of that line"
        yield f"the rank that uses GPU {device}{where}, its stack and log: {error.meaning} ({error.source})"


def _result_differs(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank; where several do, a program whose results vary explains all of them."""
    found = rows_of(connection, "log_events", _DIFFERS, kinds=("result_differs",))
    if len(found) == 1:
        ((rank, what, source),) = found
        yield f"the GPU of rank {rank} ({what}), by a test of its own: computed again, its result was another one ({source})"


def _works_longer(connection: DuckDBPyConnection) -> Iterator[str]:
    """One rank that takes longer for a part of its steps than all others, which take alike: nothing shows that they wait."""
    by_kind: dict[str, list[tuple[int, float, str]]] = defaultdict(list)
    for kind, *worked in rows_of(connection, "log_stage_times", _WORKED):
        by_kind[kind].append((worked[0], worked[1], worked[2]))
    for kind, ((rank, ms, path), *others) in by_kind.items():
        if len(others) >= LEAST_ALIKE and ms >= _LONGER * others[0][1] and others[0][1] <= _ABOUT * others[-1][1]:
            peers = f"{len(others)} others {others[0][1]:.0f} ms at most"
            yield f"GPU, host and data of rank {rank}: its {kind} takes {ms:.0f} ms a step ({path}), {peers}"


def _idle(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU that does nothing while a process holds it, and all others are busy: a moving job may look so for a moment."""
    gpus = rows_of(connection, "counters", _GPUS)
    idle = [gpu for gpu in gpus if gpu[2] <= _IDLE]
    busy = [gpu for gpu in gpus if gpu[3] >= _BUSY]
    if len(idle) != 1 or len(busy) != len(gpus) - 1 or len(gpus) < _LEAST_GPUS:
        return
    ((host, device, *_, pid, held),) = idle
    if pid is None and 2 * (held or 0) < min((gpu[6] or 0 for gpu in busy), default=0):
        return  # nobody's: its memory is not filled as that of the others is
    shares = sorted(gpu[4] for gpu in busy if gpu[4] is not None)
    waits = bool(shares) and shares[-1] < _WAITING
    how = f", at no more than {100 * shares[-1]:.0f} % of their power: typical of GPUs that wait for it" if waits else ""
    where = place(device, host)
    whose = f"process {pid} on {where}: it" if pid else f"the process that holds {where}, which"
    yield f"stack and log of {whose} is idle while {len(busy)} others are busy{how}"


def _throttled(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU of several: that it is held down is read, so that a few others are enough."""
    found = rows_of(connection, "device_events", _THROTTLED, kinds=("throttle",))
    if len(found) == 1 and found[0][4] >= _LEAST_UNHELD:
        ((host, device, why, source, gpus),) = found
        where = place(device, host)
        yield f"{where} and the rank on it: its clocks are held down ({why}; {source}), those of {gpus - 1} others are not"


def _is_one_low(gpus: Sequence[tuple[Any, ...]]) -> bool:
    """Whether of rows of GPUs by their third column, the least first, one is far below all others, which are alike."""
    return len(gpus) >= _LEAST_GPUS and gpus[0][2] <= _LOW * gpus[1][2] and gpus[1][2] >= _ALIKE * gpus[-1][2]


def _limited(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU of several that may draw far less than all others, which are alike, and draws all of it."""
    gpus = rows_of(connection, "counters", _LIMITS)
    if _is_one_low(gpus) and gpus[0][3] >= _AT_LIMIT * gpus[0][2]:
        host, device, most, draw, path = gpus[0]
        others = f"{len(gpus) - 1} others may draw {gpus[1][2] / 1000:.0f} W or more"
        drawn = f"it draws {draw / 1000:.0f} W of the {most / 1000:.0f} W it may ({path})"
        yield f"{place(device, host)} and the rank on it: {drawn}, {others}"


def _clocked_down(connection: DuckDBPyConnection) -> Iterator[str]:
    """One GPU of several that compute, far below all others, which run alike."""
    gpus = rows_of(connection, "counters", _CLOCKS)
    if _is_one_low(gpus) and gpus[0][4] >= _BUSY:
        host, device, clock, path, _ = gpus[0]
        where = place(device, host)
        others = f"{len(gpus) - 1} others at {gpus[1][2]} MHz or more"
        yield f"{where} and the rank on it: it computes at {clock} MHz ({path}), {others}"


def unproven(roster: Roster, trees: Sequence[tuple[TreeLine, ...]], spoken: Collection[int]) -> Iterator[str]:
    """Ranks that one moment shows apart, or that left nothing: a moving job may look so too, so they are not accused."""
    yield from _stands_apart(roster, trees)
    yield from _waits_for_a_build(roster, trees[0])
    yield from _never_heard(roster, spoken)


def _stands_apart(roster: Roster, trees: Sequence[tuple[TreeLine, ...]]) -> Iterator[str]:
    """Whom to sample first where one moment shows few ranks elsewhere: a moving job may look so too, so it accuses nobody."""
    if (found := next(filter(None, map(apart, trees)), None)) is not None:
        few, many = found
        places = _where_they_differ(few.frames, many.frames)
        guessed = ", ".join(str(process.pid) for process in roster.guessed(few.ranks))
        whose = f"{ranks_text(list(few.ranks))}{f' (process {guessed})' if guessed else ''}"
        yield (
            f"stacks of {whose} minutes later: at {places[0]} while {len(many.ranks)} other ranks are at "
            f"{places[1]}; if the job stands and nothing has changed there, it begins there"
        )


def _where_they_differ(few: Sequence[str], many: Sequence[str]) -> tuple[str, str]:
    """The last frames of two call paths, each below the innermost one that the other does not have where these are equal."""
    if few[-1] != many[-1]:
        return few[-1], many[-1]
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(few), reversed(many), strict=False)))
    few_ends, many_ends = few[-common - 1 : -common], many[-common - 1 : -common]
    return " > ".join([*few_ends, few[-1]]), " > ".join([*many_ends, many[-1]])


def _waits_for_a_build(roster: Roster, tree: tuple[TreeLine, ...]) -> Iterator[str]:
    """The file by which torch lets one process build an extension, where all ranks wait for it and nobody builds."""
    waiting = {rank for line in tree if _BUILD_LOCK.search(line.frames[-1]) for rank in line.ranks}
    if waiting and waiting == {*roster.ranks}:
        yield (
            "the lock file in the folder where torch builds extensions (TORCH_EXTENSIONS_DIR, or ~/.cache/torch_extensions): "
            f"all {len(waiting)} ranks wait until somebody removes it, and none of them builds; a build that was killed leaves "
            "it behind, and then it has to be removed by hand"
        )


def begun_in_nccl(connection: DuckDBPyConnection) -> frozenset[int]:
    """Ranks of processes that say in NCCL's own lines that they began to start."""
    return frozenset(rank for (rank,) in rows_of(connection, "process_ranks", _OF_NCCL))


def _never_heard(roster: Roster, spoken: Collection[int]) -> Iterator[str]:
    """Few ranks of which nothing was collected: they are not accused, and the first to look at.

    Where nothing states the size of the job, those whose numbers are missing among the others.
    """
    ranks: Collection[int] = roster.ranks if roster.world_size else range(max(roster.ranks, default=-1) + 1)
    if len(ranks) > 2 * (len(roster.ranks) + len(spoken)):
        return  # most are silent; the largest number may be one that was misread, of millions
    silent = [rank for rank in ranks if rank not in spoken and roster.rank(rank).unseen]
    if 0 < len(silent) < len(ranks) / 2:
        nothing = "neither a stack nor a whole record of it is here"
        yield f"the log and `py-spy dump` of {ranks_text(silent)}: {nothing}, and the others may wait for it"
