"""Which end of a process came first, of those that launchers saw: the others were ended, or followed.

Ends at one time are distinguished only where one of them alone was killed by a signal that no peer can cause. A text may hold
the tables of several nodes, each of which marks the failure that it saw first.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from datetime import datetime

from forensics.rules.reductions.logs.failures import Failures
from forensics.rules.reductions.logs.process_exit import ENDED_BY_LAUNCHER, Exit

# A node that lost a peer ends within the time for which torchrun's agents wait for each other (`exit_barrier_timeout`, 300 s),
# after a last call that took as long.
_ONE_END_S = 600


def first_ends(
    found: Sequence[Exit], failed: Failures, timed_out: Mapping[int, str], stalled: bool, odd: bool
) -> tuple[Exit, ...]:
    """The ends that no other one explains.

    None where several are alike at one time, or where all that is known of a rank tells of another one.
    """
    kept = [end for end in found if not _follows(end, found, failed, timed_out, stalled, odd)]
    tables = {end.table for end in kept}
    firsts = [end for end in kept if end.first and end.time]
    if len(tables) > 1 and len(firsts) > 1:
        earliest = min(str(end.time) for end in firsts)
        kept = [end for end in firsts if end.time == earliest]
        return tuple(kept) if len(kept) == 1 else ()
    kept = [end for end in kept if end.by_itself or not any(_ends_sooner(other, end) for other in firsts)]
    return tuple(end for end in kept if not _is_tied(end, found, failed))


def _is_tied(end: Exit, found: Sequence[Exit], failed: Failures) -> bool:
    """Whether another end of the same second, in the same table, may as well have come first."""
    others = [other for other in found if other.rank != end.rank and other.table == end.table and other.time == end.time]
    rivals = [
        other for other in others if end.time and other.code not in ENDED_BY_LAUNCHER and other.rank not in failed.following
    ]
    if end.by_itself:
        return any(other.by_itself for other in rivals)
    alone = end.rank in failed.own and not any(other.rank in failed.own for other in rivals)
    return bool(rivals) and not alone


def _follows(
    end: Exit, found: Sequence[Exit], failed: Failures, timed_out: Mapping[int, str], stalled: bool, odd: bool
) -> bool:
    """Whether the end says nothing of the rank: another one failed before it, it gave up waiting, or it met odd sizes.

    An abort that nothing in its log explains is mostly that of a watchdog.
    """
    if end.code in ENDED_BY_LAUNCHER or end.code == 0:
        return True
    if not end.first and any(_goes_before(other, end) for other in found):
        return True
    if _is_of_a_peer(end, found, failed):
        return True
    if end.by_itself or end.pid in failed.devices:
        return False
    # A program's error that one rank meets, all may meet: unless the others were alive, or the launcher says who was first.
    if end.rank not in failed.own and (not end.first or (end.is_local and not failed.is_witnessed)) and not end.by_mpi:
        return True
    if (end.rank not in failed.own and failed.is_shared) or failed.is_alike(end.rank):
        return True
    explained = end.rank in failed.own or ((failed.of_device or failed.corrupted) is not None and end.first)
    if end.code == -signal.SIGABRT and not explained and (stalled or not end.by_mpi or end.is_local):
        return True
    if end.rank in failed.following or (end.is_local and (failed.unranked_following or stalled)):
        return True
    gave_up = end.rank in timed_out or (failed.only_following and not failed.is_witnessed)
    return end.code in (1, -signal.SIGABRT) and (gave_up or odd)


def _is_of_a_peer(end: Exit, found: Sequence[Exit], failed: Failures) -> bool:
    """Whether the rank was killed, nothing shows why, and another one, not seen to end later, raised its own error above.

    Lightning's processes kill their peers when they fail, and a launcher may see the killed one first.
    """
    if end.code != -signal.SIGKILL or not end.time or end.is_out_of_memory or end.rank in failed.own:
        return False
    later = {other.rank for other in found if other.time and other.time > end.time}
    path, _, line = end.source.rpartition("#line=")
    above = [own.source.rpartition("#line=") for rank, own in failed.own.items() if rank not in later]
    return any(other == path and int(number) < int(line) for other, _, number in above if number.isdecimal())


def _goes_before(other: Exit, end: Exit) -> bool:
    """Whether the launcher saw the other one fail first; one killed in the same second may have been first all the same."""
    first = other.first and other.table == end.table and other.rank != end.rank
    return first and not (end.by_itself and not other.by_itself and end.time and end.time == other.time)


def _ends_sooner(other: Exit, end: Exit) -> bool:
    """Whether another node saw its first failure in the same end of the job, and earlier; later ones are of another run."""
    if not (end.first and end.time and other.time):
        return False
    try:
        times = [datetime.strptime(time, "%Y-%m-%d_%H:%M:%S") for time in (other.time, end.time)]
    except ValueError:
        return False
    return 0 < (times[1] - times[0]).total_seconds() <= _ONE_END_S
