"""What is odd of a GPU or a port against its peers: clocks held down, a guest, a narrow link, counters that move.

Peers of a GPU are those of the same model that other ranks use; peers of a port are all others with traffic.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.hardware.causes import Hardware, Oddity, Sign
from forensics.rules.reductions.hardware.nic_slots import slot_signs
from forensics.rules.reductions.hardware.state import Gpu, Machines, Port, machines
from forensics.rules.reductions.interface import reduction

# What more than a quarter of the peers show as well explains no difference to them.
COMMON = 0.25
_HELD_DOWN = ("hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown", "hw_slowdown")
# Boards of one model differ by a few per cent in clock and draw; a tenth is a setting or a fault.
_LOWER, _NEAR_LIMIT = 0.9, 0.85
# Programs that share GPUs for others hold small contexts, and so does one that only looks at a GPU.
_LEAST_MEMORY = 256 << 20
_SERVERS = ("nvidia-cuda-mps-server", "nvidia-persistenced")
# Below so many packets between the reads shares are chance.
_LEAST_PACKETS = 10_000
# Half of the ports may have the same trouble: the lower quarter of the others is what is usual.
_TIMES_PEERS, _LOWER_QUARTER = 10.0, 0.25
_CONGESTION = {
    "rp_cnp_handled": ("congestion notifications handled", 100),
    "np_cnp_sent": ("congestion notifications sent", 100),
    "np_ecn_marked_roce_packets": ("packets received with a congestion mark", 100),
    "port_xmit_wait": ("ticks with data to send and no credit", 10_000),
}
# A NIC that was asked to slow down does not speed up again for 300 us (rpg_time_reset of its rate control).
_HELD_S = 300e-6
_SLOWED_DOWN = ("rp_cnp_handled", "np_cnp_sent")
# With the least number that counts: links and frames that break are rare, transports repeat now and then.
_ERRORS = {
    "symbol_error": ("symbol errors", 1),
    "link_downed": ("losses of the link", 1),
    "link_error_recovery": ("recoveries of the link", 1),
    "local_link_integrity_errors": ("link integrity errors", 1),
    "port_rcv_errors": ("damaged packets", 1),
    "out_of_sequence": ("packets out of sequence", 10),
    "packet_seq_err": ("sequence errors", 10),
    "local_ack_timeout_err": ("acknowledgement timeouts", 2),
    "rnr_nak_retry_err": ("retries for a receiver that was not ready", 10),
}
_COMPARED = ("power_limit_mw", "pcie_width", "nvlinks_up")
_COMPARED_BUSY = ("clock_sm_mhz", "pcie_gen", "power_mw")


@dataclass(frozen=True, slots=True)
class _Fleet:
    """GPUs of one model that ranks use: readings in order, of all or of those at work; `shared` are those with a guest."""

    gpus: tuple[Gpu, ...]
    ordered: Mapping[str, Sequence[float]]
    shared: frozenset[str]

    @property
    def others(self) -> int:
        """Peers of each GPU."""
        return len(self.gpus) - 1

    def usual(self, reading: str, gpu: Gpu) -> float | None:
        """The middle of what the peers read; None without any."""
        counts = gpu.busy or reading in _COMPARED
        return _without(self.ordered[reading], gpu.readings.get(reading) if counts else None, 0.5)

    def alike(self, gpu: Gpu, reasons: Collection[str], *, busy: bool = False) -> tuple[int, int]:
        """How many peers show one of these reasons, and of how many."""
        peers = [other for other in self.gpus if other is not gpu and (other.busy or not busy)]
        return sum(not other.reasons.isdisjoint(reasons) for other in peers), len(peers)


@reduction
def hardware(connection: DuckDBPyConnection) -> Hardware:
    """Signs of the hardware of a case."""
    found, slots = hardware_signs(machines(connection)), slot_signs(connection)
    ranks = sorted({*found.signs, *slots})
    return Hardware({rank: (*found.signs.get(rank, ()), *slots.get(rank, ())) for rank in ranks}, found.read)


def hardware_signs(found: Machines) -> Hardware:
    """Compare GPUs with those of the same model that other ranks use, and ports with the other ports."""
    fleets, shares = _fleets(found), _shares(found.all_ports)
    signs: dict[int, list[Sign]] = defaultdict(list)
    for rank, gpu in found.gpus.items():
        name = f"GPU {gpu.index} of rank {rank}"
        signs[rank] += _gpu_signs(gpu, fleets[gpu.model], name, found.own.get(gpu.host, frozenset()))
    for rank, ports in found.ports.items():
        for port in ports:
            signs[rank] += _port_signs(port, shares, f"{port.device} of rank {rank}")
    return Hardware({rank: tuple(mine) for rank, mine in sorted(signs.items()) if mine}, frozenset(found.gpus))


def _fleets(found: Machines) -> dict[str | None, _Fleet]:
    by_model: dict[str | None, dict[str, Gpu]] = defaultdict(dict)
    for gpu in found.gpus.values():
        by_model[gpu.model][gpu.source] = gpu
    return {model: _fleet(tuple(gpus.values()), found.own) for model, gpus in by_model.items()}


def _fleet(gpus: tuple[Gpu, ...], own: Mapping[str, frozenset[int]]) -> _Fleet:
    ordered = {reading: _ordered(gpus, reading) for reading in _COMPARED}
    ordered |= {reading: _ordered([gpu for gpu in gpus if gpu.busy], reading) for reading in _COMPARED_BUSY}
    return _Fleet(gpus, ordered, frozenset(gpu.source for gpu in gpus if _foreign(gpu, own.get(gpu.host, frozenset()))))


def _ordered(gpus: Iterable[Gpu], reading: str) -> list[float]:
    return sorted(value for gpu in gpus if (value := gpu.readings.get(reading)) is not None)


def _without(ordered: Sequence[float], own: float | None, part: float) -> float | None:
    """The value that `part` of the others do not exceed, between neighbours evenly; `own` is one of them when not None."""
    count = len(ordered) - (own is not None)
    if count < 1:
        return None
    left_out = bisect_left(ordered, own) if own is not None else count
    low = int(part * (count - 1))
    below, above = (ordered[place + (place >= left_out)] for place in (low, min(low + 1, count - 1)))
    return below + (part * (count - 1) - low) * (above - below)


def _gpu_signs(gpu: Gpu, fleet: _Fleet, name: str, own: frozenset[int]) -> Iterator[Sign]:
    yield from _held_down(gpu, fleet, name)
    yield from _limited(gpu, fleet, name)
    yield from _shared(gpu, fleet, name, own)
    yield from _narrow(gpu, fleet, name)
    up, usual = gpu.readings.get("nvlinks_up"), fleet.usual("nvlinks_up", gpu)
    if up is not None and usual and up < usual:
        yield Sign(Oddity.ERRORS, f"{name} has {up} NVLinks up, its peers {usual:.0f}", gpu.source)
    for text in gpu.states.values():
        yield Sign(Oddity.MEMORY, f"{name}: {text}", gpu.source)
    if errors := gpu.readings.get("ecc_volatile_uncorrected", 0):
        yield Sign(Oddity.MEMORY, f"{name} counts {errors} uncorrected memory errors since its driver was loaded", gpu.source)


def _held_down(gpu: Gpu, fleet: _Fleet, name: str) -> Iterator[Sign]:
    """Reasons that normal work does not give, unless peers show them as well."""
    reasons = [reason for reason in _HELD_DOWN if reason in gpu.reasons]
    if not reasons:
        return
    alike, peers = fleet.alike(gpu, reasons)
    if alike <= COMMON * peers:
        said = f"clocks of {name} are held down by {', '.join(reasons)} ({_state(gpu)})"
        yield Sign(Oddity.THROTTLED, f"{said}; {alike} of {peers} peers show that", gpu.source, _clock_factor(gpu, fleet))


def _limited(gpu: Gpu, fleet: _Fleet, name: str) -> Iterator[Sign]:
    """A power limit: one below the peers' that is met, or one that holds the clock below theirs while they do not meet it.

    Meeting its limit is what a GPU under load does now and then, so that this alone says nothing. A limit well below what peers
    draw is met by the same work, whatever the GPU draws in a moment of waiting.
    """
    limit, clock = gpu.readings.get("power_limit_mw"), gpu.readings.get("clock_sm_mhz")
    limits, clocks = fleet.usual("power_limit_mw", gpu), fleet.usual("clock_sm_mhz", gpu)
    is_slower = bool(gpu.busy and clocks and clock is not None and clock <= _LOWER * clocks)
    is_capped = gpu.busy and "sw_power_cap" in gpu.reasons
    against = f"; its peers run at {clocks:.0f} MHz" if clocks else ""
    draws = fleet.usual("power_mw", gpu)
    if limit and limits and limit <= _LOWER * limits:
        is_exceeded = gpu.busy and draws is not None and limit <= _LOWER * draws
        if is_capped or is_slower or is_exceeded or gpu.readings.get("power_mw", 0) >= _NEAR_LIMIT * limit:
            usual = f"those of its peers {limits / 1e3:.0f} W"
            said = f"the power limit of {name} is {limit / 1e3:.0f} W, {usual} ({_state(gpu)}){against}"
            by_limit = None if is_slower else _limit_factor(gpu, fleet)
            said += f" and draw {(draws or 0) / 1e3:.0f} W" if by_limit else ""
            yield Sign(Oddity.THROTTLED, said, gpu.source, by_limit or _clock_factor(gpu, fleet))
    elif is_capped and is_slower:
        alike, peers = fleet.alike(gpu, ("sw_power_cap",), busy=True)
        if alike <= COMMON * peers:
            said = f"{name} is at its power limit ({_state(gpu)}){against}"
            yield Sign(Oddity.THROTTLED, said, gpu.source, _clock_factor(gpu, fleet))


def _clock_factor(gpu: Gpu, fleet: _Fleet) -> float | None:
    """Clock of its peers at work over its own; where none has work, over the most that its model runs at."""
    clock = gpu.readings.get("clock_sm_mhz")
    usual = fleet.usual("clock_sm_mhz", gpu) or gpu.readings.get("clock_sm_max_mhz")
    return usual / clock if clock and usual and gpu.busy else None


def _limit_factor(gpu: Gpu, fleet: _Fleet) -> float | None:
    """Limit of its peers over its own, where these draw more than its limit: a kernel takes no longer by a lower one than that.

    A clock is read at one moment, a draw over a second: in a moment of communication the clock of a limited GPU is a high one.
    """
    limit, draw = gpu.readings.get("power_limit_mw"), fleet.usual("power_mw", gpu)
    usual = fleet.usual("power_limit_mw", gpu)
    return usual / limit if gpu.busy and limit and usual and draw is not None and draw > limit else None


def _shared(gpu: Gpu, fleet: _Fleet, name: str, own: frozenset[int]) -> Iterator[Sign]:
    """Processes beside the job's; on a host whose own processes nvidia-smi does not show, numbers mean something else."""
    others, alike = _foreign(gpu, own), len(fleet.shared - {gpu.source})
    if others and own & gpu.processes.keys() and 2 * alike <= fleet.others:
        pid, (program, memory) = max(others.items(), key=lambda each: (each[1][1], -each[0]))
        said = f"process {pid} ({program}), which is not the job's, has {memory / (1 << 30):.1f} GiB on {name}"
        said = f"{said}; {alike} of {fleet.others} peers have a guest"
        beside = [other.source for other in fleet.gpus if other.host == gpu.host]
        # Some guests here and there are how the machines are used; others of them are no slower for it.
        counts = not alike or 2 * len(fleet.shared.intersection(beside)) >= len(beside)
        # Processes take turns on a GPU: each guest that always has work takes as much as the rank.
        yield Sign(Oddity.SHARED, said, gpu.source, 1.0 + len(others) if counts else None)


def _foreign(gpu: Gpu, own: Collection[int]) -> dict[int, tuple[str, int]]:
    return {
        pid: about
        for pid, about in gpu.processes.items()
        if pid not in own and about[0] not in _SERVERS and about[1] >= _LEAST_MEMORY
    }


def _narrow(gpu: Gpu, fleet: _Fleet, name: str) -> Iterator[Sign]:
    """A PCIe link with fewer lanes than its peers', or slower than its maximum and theirs while both have work.

    Links of idle GPUs slow down by themselves; the number of lanes stays.
    """
    width, widths = gpu.readings.get("pcie_width"), fleet.usual("pcie_width", gpu)
    if width and widths and width < widths:
        most = gpu.readings.get("pcie_width_max", width)
        said = f"the PCIe link of {name} has {width} lanes of {most}, those of its peers {widths:.0f}"
        yield Sign(Oddity.NARROW, said, gpu.source, widths / width)
    speed, speeds = gpu.readings.get("pcie_gen"), fleet.usual("pcie_gen", gpu)
    if gpu.busy and speed and speeds and speed < min(gpu.readings.get("pcie_gen_max", speed), speeds):
        said = f"the PCIe link of {name} runs at generation {speed} under load, those of its peers at {speeds:.0f}"
        # Every generation of PCIe doubles the rate of a lane.
        yield Sign(Oddity.NARROW, said, gpu.source, 2.0 ** (speeds - speed))


def _shares(ports: Iterable[Port]) -> dict[str, list[float]]:
    """Events for each packet on all ports with traffic, in order, by counter."""
    with_traffic = [port for port in ports if port.packets >= _LEAST_PACKETS]
    return {counter: sorted(_share(port, counter) for port in with_traffic) for counter in (*_CONGESTION, *_ERRORS)}


def _share(port: Port, counter: str) -> float:
    return port.grown.get(counter, 0) / port.packets


def _port_signs(port: Port, shares: Mapping[str, Sequence[float]], name: str) -> Iterator[Sign]:
    """Counters that move much more for a packet than three quarters of the others at least; some may have the same trouble."""
    if port.packets < _LEAST_PACKETS:
        return
    for kind, counters in ((Oddity.CONGESTED, _CONGESTION), (Oddity.ERRORS, _ERRORS)):
        for counter, (meaning, least) in counters.items():
            mine = _share(port, counter)
            usual = _without(shares[counter], mine, _LOWER_QUARTER)
            if port.grown.get(counter, 0) >= least and usual is not None and mine > _TIMES_PEERS * usual:
                share = f"{1e6 * mine:.1f} in a million packets; on most others {1e6 * usual:.1f}"
                said = f"{name} counts {port.grown[counter]} {meaning} in {port.seconds:.1f} s ({counter}), {share}"
                held = port.grown[counter] * _HELD_S / port.seconds if counter in _SLOWED_DOWN and port.seconds else None
                yield Sign(kind, said, port.source, share=None if held is None else min(1.0, held))


def _state(gpu: Gpu) -> str:
    """Draw, temperature and clock, as far as they were read."""
    draw, heat, clock = (gpu.readings.get(name) for name in ("power_mw", "temperature_c", "clock_sm_mhz"))
    most = gpu.readings.get("clock_sm_max_mhz")
    known = (
        f"{draw / 1e3:.0f} W" if draw is not None else "",
        f"{heat} C" if heat is not None else "",
        f"{clock} MHz" + (f" of {most}" if most else "") if clock is not None else "",
    )
    return ", ".join(text for text in known if text) or "nothing else was read"
