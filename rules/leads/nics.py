"""Which NIC to begin with where captures tell no rank: it is slow, or halted first, and nothing says whose it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forensics.rules.reductions.epochs.halted_links import HaltedLink
from forensics.rules.reductions.epochs.judged import JudgedLink
from forensics.rules.reductions.epochs.slow_links import SlowEnd
from forensics.rules.reductions.epochs.unplaced import UnplacedNics
from forensics.rules.reductions.text.evidence_text import counted

# Of the time: what costs less may be hidden; more where it is open which NIC is slow (as FX180 has it). Of the NICs: where more
# would be slow, what they wait for is elsewhere.
_LEAST_COST, _LEAST_COST_OPEN, _MOST_PART = 0.02, 0.05, 0.25


def nic_leads(nics: UnplacedNics) -> Iterator[str]:
    """Each a NIC, or the two ends of a link: those that halted first in a job that stands still, else those that lack rate."""
    if nics.silence:
        yield from (_halted(nics, *each) for each in nics.halted)
        return
    ends = [end for end in nics.slow if _worst(end).cost >= _least_cost(end)]
    if len({number for end in ends for number in end.ranks}) <= max(2, _MOST_PART * len(nics.names)):
        yield from (_slow(nics, end) for end in ends)


def _halted(nics: UnplacedNics, numbers: Sequence[int], links: Sequence[HaltedLink]) -> str:
    first = links[0]
    moved = f"moved {first.moved / 1e6:.1f} MB of its last operator" if first.begun else "did not begin the last operator"
    beside = f"{counted(first.others, 'link')} between the same hosts moved {first.expected / 1e6:.1f} MB"
    return (
        f"port and cable of NIC {_either(nics, numbers)}, and the process and GPU that use it: "
        f"{_way(nics, first.ends)} {moved}, {beside}; {nics.silence.reason} ({first.source.split('#')[0]})"
    )


def _slow(nics: UnplacedNics, end: SlowEnd) -> str:
    worst = _worst(end)
    way = _way(nics, worst.ends)
    if worst.is_lossy:
        why = f"{100 - 100 * worst.part:.1f} % of what goes from {way} does not arrive and is sent again"
    else:
        others = f"{worst.usual / 1e9:.1f} GB/s on {counted(worst.peers, 'link')} that carry as much"
        how = "over all epochs with data" if worst.is_mean else "in its busiest epochs"
        why = f"{way} moves {worst.link.rate / 1e9:.1f} GB/s {how}, {others}"
    place = worst.link.source.split("#")[0]
    return f"port, cable, PCIe link and counters of NIC {_either(nics, end.ranks)}, and whose it is: {why} ({place})"


def _worst(end: SlowEnd) -> JudgedLink:
    return max(end.links, key=lambda link: (link.cost, link.ends))


def _least_cost(end: SlowEnd) -> float:
    return _LEAST_COST_OPEN if end.is_open and not _worst(end).is_lossy else _LEAST_COST


def _either(nics: UnplacedNics, numbers: Sequence[int]) -> str:
    return " or ".join(nics.names[number] for number in numbers)


def _way(nics: UnplacedNics, ends: tuple[int, int]) -> str:
    return " to ".join(nics.names[number] for number in ends)
