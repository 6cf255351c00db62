"""Which host to look at first in a job that may be slow: the one whose cores, or all of whose GPUs, others use too."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.rules.reductions.hardware.causes import Hardware
from forensics.rules.reductions.hardware.cores import PLAINLY_SHORT, BusyHosts
from forensics.rules.reductions.hardware.cpu import CpuUse, HostCpu
from forensics.rules.reductions.hardware.guests import guest_shares
from forensics.rules.reductions.ranks.roster import Roster

# A debugger that looks once stops a process for a moment.
_LEAST_STOPPED = 3
# Hosts that stand out, of all: what is so on more of them is how the machines are used.
_MOST = 0.5


def host_leads(busy: BusyHosts, hardware: Hardware, roster: Roster) -> tuple[str, ...]:
    """At most one sentence for cores and one for GPUs, of hosts that stand out from most others; neither accuses by itself."""
    return (*_short_of_cores(busy, roster), *_with_guests(hardware, roster))


def crowded_leads(cpu: HostCpu) -> tuple[str, ...]:
    """The one host on which threads of the job wait for cores, where that is so of few: who is late there may lack one."""
    short = [use for host, use in sorted(cpu.items()) if use.is_short]
    is_apart = len(short) == 1 and (len(cpu) == 1 or 2 * len(short) <= len(cpu))
    return tuple(f"{_what_runs(use)}: {use.statement} ({use.source})" for use in short if is_apart)


def stopped_leads(roster: Roster) -> Iterator[str]:
    """A rank whose process is stopped whenever it is sampled, in a job that goes on: something lets it run in between."""
    stopped = [
        (rank, len(facts.thread_states)) for rank, facts in sorted(roster.ranks.items()) if facts.stopped and not facts.dead
    ]
    for rank, samples in stopped if 2 * len(stopped) < len(roster.ranks) else ():
        if samples >= _LEAST_STOPPED:
            how = f"its process was stopped in {samples} of {samples} samples, and the job goes on"
            yield f"what stops rank {rank} again and again (a limiter as cpulimit, a freezer, a debugger): {how}"


def _what_runs(use: CpuUse) -> str:
    """Whose processes to look at on a host that is short of CPU."""
    if use.starter is None:
        return f"what runs on {use.host} beside the job"
    return (
        f"what rank {use.starter} started on {use.host} ({use.started[use.starter]:.1f} of the threads that were ready to run)"
    )


def _short_of_cores(busy: BusyHosts, roster: Roster) -> Iterator[str]:
    """The one that is plainly so, by far more than others that wait too."""
    short = sorted(busy.values(), key=lambda each: (-each.waiting, each.host))
    plain = [each for each in short if each.waiting >= PLAINLY_SHORT and each.host in roster.hosts.values()]
    if len(plain) == 1:
        yield f"what runs on {plain[0].host} beside the job: {plain[0].statement} ({plain[0].source})"


def _with_guests(hardware: Hardware, roster: Roster) -> Iterator[str]:
    """Hosts with a guest on every GPU, where most have none."""
    shares = guest_shares(hardware, roster)
    full, free = [host for host, share in shares.items() if share == 1], [host for host, share in shares.items() if share == 0]
    if 0 < len(full) <= _MOST * len(shares) and 2 * len(free) >= len(shares):
        those = ", ".join(sorted(full))
        others = f"each GPU there has one, and {len(free)} of {len(shares)} hosts have none"
        yield f"processes of others on the GPUs of {those}: {others}"
