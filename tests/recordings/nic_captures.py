"""Captures of NICs made up: rings over hosts whose slices take their time (Pulse sections 2.3 and 6.1).

`python -m tests.recordings.nic_captures` writes the scenarios of a slow NIC, of one that halted, of a host that pauses, and of
uneven exchanges.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forensics.fixtures.simulator.writers.nic_epochs import packed
from tests.recordings import paper_logs

Ends = tuple[int, int]
Values = npt.NDArray[np.uint32]
_Run = tuple[int, int, int, Values]
LINE = 50e9
"""Bytes per second of a NIC of 400 Gbit/s."""
SLICE = 2 << 20
"""A slice of each of two channels."""
_FIRST_EPOCH = 55_000_000_000_000


@dataclass(frozen=True, slots=True)
class Ring:
    """Rings of `size` ranks, one a rail, over as many hosts; each operator moves `slices` to the next rank.

    `out` and `into` are the parts of their rate that ranks send and receive with, `slow` both; others have all of it, with a
    `spread` (standard deviation, of one). `held` makes everybody wait so long (ns) after each slice, as a late proxy does.
    A slice takes longer by chance, by `jitter` (standard deviation, of one; no more than four of them).
    The NICs of `busy` ranks have that part of their rate for two slices of three: traffic of others.
    `peers` says who is at the other end of each queue pair. A link has a queue pair on each of `ports` of its NIC, evenly, but
    those of ranks in `on_first` are on the first port alone. `halted` are links that moved so many slices of the last operator
    and no more; nobody moves anything for `quiet_ns` at the end. Of what links of `lossy` send that part (of one) arrives.
    """

    size: int = 4
    rails: int = 2
    operators: int = 6
    slices: int = 150
    epoch_ns: int = 32_000
    pause_ns: float = 5e6
    out: Mapping[int, float] = field(default_factory=dict)
    into: Mapping[int, float] = field(default_factory=dict)
    slow: Mapping[int, float] = field(default_factory=dict)
    spread: float = 0.0
    held: float = 0.0
    peers: bool = False
    busy: Mapping[int, float] = field(default_factory=dict)
    jitter: float = 0.0
    halted: Mapping[Ends, int] = field(default_factory=dict)
    quiet_ns: float = 0.0
    first_epoch: int = _FIRST_EPOCH
    ports: int = 1
    on_first: Collection[int] = ()
    lossy: Mapping[Ends, float] = field(default_factory=dict)

    @property
    def world(self) -> int:
        """All ranks: those of one host are neighbours."""
        return self.size * self.rails

    def links(self) -> list[Ends]:
        """From each rank to the one of the next host."""
        return [(rank, (rank + self.rails) % self.world) for rank in range(self.world)]


def halved(*ranks: int) -> dict[int, float]:
    """Half of the rate for some ranks."""
    return dict.fromkeys(ranks, 0.5)


def captures(ring: Ring, **text: Any) -> dict[str, bytes]:
    """The capture of every rank's NIC by path; `text` adds to its description."""
    random = np.random.default_rng(5)
    uneven = np.exp(random.normal(0, ring.spread, ring.world))
    out = {rank: {**ring.slow, **ring.out}.get(rank, 1.0) * uneven[rank] for rank in range(ring.world)}
    into = {rank: {**ring.slow, **ring.into}.get(rank, 1.0) * uneven[rank] for rank in range(ring.world)}
    rate = {(a, b): LINE * min(out[a], into[b]) for a, b in ring.links()}
    moved = {ends: _moved(ring, rate, ends) for ends in rate}
    return {
        f"nodes/n{rank // ring.rails}/nic/mlx5_{rank % ring.rails}.epochs": _file(ring, rank, moved, text)
        for rank in range(ring.world)
    }


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Lay files into a folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@dataclass(frozen=True, slots=True)
class Exchange:
    """Meshes of `size` ranks, one a rail, over as many hosts: what is routed to a rank travels there and back.

    Each of the `operators` has `share` bytes for each rank and each other one, times its `load`; from operator `onset` on the
    loads are those of `loaded`. Ranks of `beside` move so much more (of one) between each other all the time; every rank sends
    `ring` bytes to the next one. After each operator of `silent` nobody exchanges for 30 ms.
    Data moves at `part` of the line's rate. Links of `until` move nothing from that operator on, or from a part of it on;
    nobody does for `quiet_ns` at the end.
    """

    size: int = 4
    rails: int = 2
    operators: int = 60
    share: float = 16e6
    onset: int = 25
    loaded: Mapping[int, float] = field(default_factory=dict)
    beside: Mapping[Ends, float] = field(default_factory=dict)
    ring: float = 0.0
    silent: Sequence[int] = ()
    part: float = 0.3
    pause_ns: float = 2e6
    epoch_ns: int = 32_000
    line: float = LINE
    until: Mapping[Ends, float] = field(default_factory=dict)
    quiet_ns: float = 0.0


def exchanged(exchange: Exchange, **text: Any) -> dict[str, bytes]:
    """The capture of every rank's NIC by path; `text` adds to its description."""
    ring = Ring(exchange.size, exchange.rails, epoch_ns=exchange.epoch_ns, peers=True)
    pairs = [(a, b) for a in range(ring.world) for b in range(ring.world) if a != b and (a - b) % ring.rails == 0]
    sizes = {ends: _sizes(exchange, ends, ring.links()) for ends in pairs}
    longest = np.max(list(sizes.values()), axis=0) / (exchange.part * exchange.line) * 1e9
    pauses = exchange.pause_ns + 30e6 * np.isin(np.arange(exchange.operators) - 1, exchange.silent)
    starts = np.cumsum(longest + pauses) - longest
    count = int((starts[-1] + longest[-1] + exchange.quiet_ns) / exchange.epoch_ns) + 200
    edges = np.linspace(0, exchange.epoch_ns * (count - 1.0), count)
    moved = {ends: _steadily(exchange, starts, each, edges) for ends, each in sizes.items()}
    said = {"line_bytes_per_s": int(exchange.line), **text}
    return {
        f"nodes/n{rank // ring.rails}/nic/mlx5_{rank % ring.rails}.epochs": _file(ring, rank, moved, said)
        for rank in range(ring.world)
    }


@dataclass(frozen=True, slots=True)
class Pausing:
    """Rings of `size` ranks, one a rail, over as many hosts, that stop `pauses` times for `length` (ns) of every `period`.

    In the rings of `first`, by rail the rank that stops first, each rank behind it stops `hop` later: for want of data.
    `late` ranks send that much later (ns) than the others: each step of theirs is late, and nobody waits for data. The rings of
    `at_once` rails stop everywhere at the same time.
    """

    size: int = 4
    rails: int = 2
    first: Mapping[int, int] = field(default_factory=dict)
    pauses: int = 14
    length: float = 4e6
    period: float = 10e6
    hop: float = 150e3
    late: Mapping[int, float] = field(default_factory=dict)
    at_once: Sequence[int] = ()
    epoch_ns: int = 32_000


def paused(pausing: Pausing, **text: Any) -> dict[str, bytes]:
    """The capture of every rank's NIC by path; `text` adds to its description."""
    ring = Ring(pausing.size, pausing.rails, epoch_ns=pausing.epoch_ns, peers=True)
    edges = np.arange(0.0, (pausing.pauses + 3) * pausing.period, ring.epoch_ns)
    moved = {ends: _stopping(pausing, ends[0], edges) for ends in ring.links()}
    return {
        f"nodes/n{rank // ring.rails}/nic/mlx5_{rank % ring.rails}.epochs": _file(ring, rank, moved, text)
        for rank in range(ring.world)
    }


@dataclass(frozen=True, slots=True)
class Begun:
    """Rings of `size` ranks, one a rail, over as many hosts: in each `period` (ns) every link moves `whole` bytes.

    A link begins when both its ends are there: `late` ranks are so much later (ns). Others move `early` bytes at once, and the
    rest when all have begun. `mesh` has links between every two of a rail, those of `loaded` ranks with twice as much. From
    host to host links begin `apart` later (ns), as those of a pipeline do. Only the first `times` operators have a late rank.
    """

    size: int = 4
    rails: int = 2
    operators: int = 12
    late: Mapping[int, float] = field(default_factory=dict)
    apart: float = 0.0
    times: int = 12
    whole: float = 100e6
    early: float = 8e6
    mesh: bool = False
    loaded: Collection[int] = ()
    period: float = 40e6
    epoch_ns: int = 32_000


def begun(made: Begun, **text: Any) -> dict[str, bytes]:
    """The capture of every rank's NIC by path; `text` adds to its description."""
    ring = Ring(made.size, made.rails, epoch_ns=made.epoch_ns, peers=True)
    edges = np.arange(0.0, (made.operators + 1) * made.period, ring.epoch_ns)
    pairs = [(a, b) for a in range(ring.world) for b in range(ring.world) if a != b and (a - b) % ring.rails == 0]
    moved = {ends: _beginning(made, ends, edges) for ends in (pairs if made.mesh else ring.links())}
    return {
        f"nodes/n{rank // ring.rails}/nic/mlx5_{rank % ring.rails}.epochs": _file(ring, rank, moved, text)
        for rank in range(ring.world)
    }


def _beginning(made: Begun, ends: Ends, edges: npt.NDArray[np.float64]) -> Values:
    """What a link moves before all of its ring are there, and then."""
    whole = made.whole * (1 + bool({*made.loaded} & {*ends}))
    last = max((by for rank, by in made.late.items() if (rank - ends[0]) % made.rails == 0), default=0.0)
    times, total = [0.0], [0.0]
    for at in range(made.operators):
        own, all_there = (by if at < made.times else 0.0 for by in (max(made.late.get(end, 0.0) for end in ends), last))
        begin = (at + 0.25) * made.period + made.apart * (ends[0] // made.rails)
        parts = [(own, made.early), (all_there, whole - made.early)] if own < all_there else [(own, whole)]
        for delay, count in parts:
            times += [begin + delay, begin + delay + count / LINE * 1e9]
            total += [total[-1], total[-1] + count]
    found: Values = np.diff(np.floor(np.interp(edges, times, total))).astype(np.uint32)
    return found


def _stopping(pausing: Pausing, sender: int, edges: npt.NDArray[np.float64]) -> Values:
    """A link that moves at the rate of the line, and stops in each period when the ranks before it have."""
    host, rail = divmod(sender, pausing.rails)
    hops = (host - pausing.first.get(rail, sender) // pausing.rails) % pausing.size
    behind = pausing.late.get(sender, 0.0) + pausing.hop * hops * (rail not in pausing.at_once)
    stops = rail in pausing.first or rail in pausing.at_once or bool(pausing.late)
    begin = pausing.period * np.arange(pausing.pauses + 1) + behind
    end = begin + pausing.period - pausing.length * stops
    done = np.cumsum(end - begin) * LINE / 1e9
    times = np.column_stack([begin, end]).ravel()
    total = np.interp(edges, times, np.column_stack([np.append(0, done[:-1]), done]).ravel(), left=0.0)
    found: Values = np.diff(np.floor(total)).astype(np.uint32)
    return found


def _sizes(exchange: Exchange, ends: Ends, links: Sequence[Ends]) -> npt.NDArray[np.float64]:
    """Bytes of each operator on one link."""
    loads = [np.where(np.arange(exchange.operators) < exchange.onset, 1.0, exchange.loaded.get(rank, 1.0)) for rank in ends]
    more = exchange.beside.get((min(ends), max(ends)), 0.0)
    found: npt.NDArray[np.float64] = exchange.share * (loads[0] + loads[1]) * (1 + more) + exchange.ring * (ends in links)
    whole, part = divmod(exchange.until.get(ends, exchange.operators), 1)
    found[int(whole) :] *= part
    found[int(whole) + 1 :] = 0.0
    return found


def _steadily(
    exchange: Exchange, starts: npt.NDArray[np.float64], sizes: npt.NDArray[np.float64], edges: npt.NDArray[np.float64]
) -> Values:
    ends = starts + sizes / (exchange.part * exchange.line) * 1e9
    done = np.cumsum(sizes)
    total = np.interp(edges, np.column_stack([starts, ends]).ravel(), np.column_stack([done - sizes, done]).ravel(), left=0.0)
    found: Values = np.diff(np.floor(total)).astype(np.uint32)
    return found


def _moved(ring: Ring, rate: Mapping[Ends, float], ends: Ends) -> Values:
    """Bytes of each epoch: a slice at the rate of the link, the next one when the slowest link of the ring is through."""
    mine = {(a, b) for a, b in rate if a % ring.rails == ends[0] % ring.rails}
    turn = max(SLICE / rate[each] for each in mine) * 1e9 * (1 + 4 * ring.jitter) + ring.held
    slices = np.arange(ring.slices)
    left = {each: min(ring.busy.get(rank, 1.0) for rank in each) for each in mine}
    turns = np.where(slices % 3 > 0, turn / min(left.values()), turn)
    starts = np.arange(ring.operators)[:, None] * (turns.sum() + ring.pause_ns) + np.cumsum(turns) - turns
    done = (ring.operators - 1) * ring.slices + ring.halted.get(ends, ring.slices)
    begin = starts.ravel()[:done] + ring.pause_ns
    taken = np.where(np.arange(ring.operators * ring.slices) % ring.slices % 3 > 0, 1 / left[ends], 1.0)[:done]
    chance = np.abs(np.random.default_rng(ends).normal(0, ring.jitter, ring.operators * ring.slices))
    end = begin + SLICE / rate[ends] * 1e9 * taken * (1 + np.minimum(chance, 4 * ring.jitter)[:done])
    times = np.column_stack([begin, end]).ravel()
    total = np.column_stack([np.arange(len(begin)), np.arange(1, len(begin) + 1)]).ravel() * float(SLICE)
    edges = np.arange(_epochs(ring, rate) + 1) * float(ring.epoch_ns)
    found: Values = np.diff(np.floor(np.interp(edges, times, total))).astype(np.uint32)
    return found


def _epochs(ring: Ring, rate: Mapping[Ends, float]) -> int:
    turn = (SLICE / min(rate.values()) * 1e9 * (1 + 4 * ring.jitter) + ring.held) / min([1.0, *ring.busy.values()])
    return int(((turn * ring.slices + ring.pause_ns) * ring.operators + ring.quiet_ns) / ring.epoch_ns) + 300


def _file(ring: Ring, rank: int, moved: Mapping[Ends, Values], text: Mapping[str, Any]) -> bytes:
    ways = [(ends, direction) for ends in moved for direction in (0, 1) if ends[direction] == rank]
    mine = [(*way, port) for way in ways for port in range(ring.ports)]
    epochs = len(next(iter(moved.values())))
    said = {
        "host": f"n{rank // ring.rails}", "nic": f"mlx5_{rank % ring.rails}", "rank": rank, "epoch_ns": ring.epoch_ns,
        "unit": "bytes",
        "clock": "realtime", "first_epoch": ring.first_epoch, "epochs": epochs, "lost": [],
        "queue_pairs": [_pair(rank, *ends, port, named=ring.peers) for ends, _, port in mine], **text,
    }  # fmt: skip
    return packed(said, list(_runs(ring, mine, moved)))


def _runs(ring: Ring, mine: Sequence[tuple[Ends, int, int]], moved: Mapping[Ends, Values]) -> Iterator[_Run]:
    for place, (ends, direction, port) in enumerate(mine):
        values = _on_port(ring, ends, moved[ends], port)
        if not direction and ends in ring.lossy:
            values = (values / ring.lossy[ends]).astype(values.dtype)
        busy = np.flatnonzero(values)
        for run in np.split(busy, np.flatnonzero(np.diff(busy) > 32) + 1):
            if len(run):
                yield place, direction, ring.first_epoch + int(run[0]), values[run[0] : run[-1] + 1]


def _on_port(ring: Ring, ends: Ends, values: Values, port: int) -> Values:
    if set(ends) & set(ring.on_first):
        return values if port == 0 else np.zeros_like(values)
    return values // ring.ports


def _pair(rank: int, sender: int, receiver: int, port: int, *, named: bool) -> dict[str, Any]:
    """A queue pair by the link that it is of: its number tells link and port, the address the rank."""
    other, number = receiver if rank == sender else sender, 1_000_000 * port + 1000 * sender + receiver
    return {
        "number": number, "generation": 1, "port": port + 1, "gid": f"::ffff:10.0.0.{rank + 1}", "remote_number": number,
        "remote_gid": f"::ffff:10.0.0.{other + 1}", **({"peer": other} if named else {}),
    }  # fmt: skip


if __name__ == "__main__":
    paper_logs.write(captures(Ring(operators=3, slices=40, slow=halved(2))), "nic-slow")
    halted = {(1, 4): 0, (4, 7): 0, (7, 10): 2, (10, 1): 4}
    paper_logs.write(captures(Ring(rails=3, operators=4, slices=500, quiet_ns=3e9, halted=halted)), "nic-halted")
    paper_logs.write(paused(Pausing(size=3, first={0: 2, 1: 3})), "sender-paused")
    paper_logs.write(exchanged(Exchange(operators=30, onset=12, share=4e6, loaded={2: 2.0, 3: 2.0})), "expert-imbalance")
