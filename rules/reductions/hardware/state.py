"""Which GPU and which ports each rank uses, and what they said of themselves when somebody looked.

A mapping is taken from what was seen or configured (the process on the GPU, CUDA_VISIBLE_DEVICES, the NIC of a queue pair);
where nothing tells it, a rank has no hardware here. What the state means against that of others is in `hardware_signs`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from duckdb import DuckDBPyConnection

from forensics.case.database import rows_of

_MEMORY = "process_memory_bytes."
# Times the memory on the next GPU: a context that a process opened on a GPU it does not compute on is small.
_BY_FAR = 4


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU at the moment of nvidia-smi; `processes` are pids with a compute context: (program, bytes of memory).

    `readings` are counters by name (docs/formats/nvidia-smi.md), `reasons` why its clocks are held down, `states` what wants a
    reset of it, `source` the path and the place in it, `pci` its address.
    """

    host: str
    device: str
    source: str
    model: str | None = None
    uuid: str | None = None
    readings: Mapping[str, int] = field(default_factory=dict)
    reasons: frozenset[str] = frozenset()
    states: Mapping[str, str] = field(default_factory=dict)
    processes: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    pci: str | None = None

    @property
    def index(self) -> str:
        """Its number among the GPUs of the host."""
        return self.device.removeprefix("GPU-")

    @property
    def busy(self) -> bool:
        """Whether something ran on it in the moments before."""
        return self.readings.get("utilization_percent", 0) > 0


@dataclass(frozen=True, slots=True)
class Port:
    """What the counters of one port of a NIC grew by between the first and the last read, `seconds` apart."""

    host: str
    nic: str
    device: str
    seconds: float
    grown: Mapping[str, int]
    source: str

    @property
    def packets(self) -> int:
        """Packets in both directions."""
        return self.grown.get("port_xmit_packets", 0) + self.grown.get("port_rcv_packets", 0)


@dataclass(frozen=True, slots=True)
class Process:
    """What is known of a rank's process that shows its GPU; `visible` is CUDA's number or UUID of its device."""

    host: str | None
    pid: int | None = None
    local_rank: int | None = None
    visible: str | None = None


@dataclass(frozen=True, slots=True)
class Machines:
    """All GPUs and ports, by rank as far as known; `own` are the processes of the job on each host."""

    gpus: Mapping[int, Gpu] = field(default_factory=dict)
    ports: Mapping[int, tuple[Port, ...]] = field(default_factory=dict)
    all_ports: tuple[Port, ...] = ()
    own: Mapping[str, frozenset[int]] = field(default_factory=dict)
    all_gpus: tuple[Gpu, ...] = ()


def machines(connection: DuckDBPyConnection) -> Machines:
    """Read the machines of a case; nothing of a host whose state nobody took."""
    gpus, ports = _gpus(connection), ports_read_twice(connection)
    processes = _processes(connection)
    if not (gpus or ports):
        return Machines()
    return Machines(
        gpu_of_rank(gpus, processes), _ports_of_ranks(connection, ports, processes), ports, _own(connection, processes), gpus
    )


def gpu_of_rank(gpus: Iterable[Gpu], processes: Mapping[int, Process]) -> dict[int, Gpu]:
    """The GPU of each rank: the one that its process is on, else the one that the environment gave it.

    A process that is on several GPUs uses the one on which it has most of its memory, by far. Without an environment, local
    ranks number the GPUs of a host that has as many as ranks. A GPU that two ranks would have by their numbers is nobody's.
    """
    by_host: dict[str, list[Gpu]] = defaultdict(list)
    for gpu in gpus:
        by_host[gpu.host].append(gpu)
    ranks = defaultdict(list)
    for rank, process in processes.items():
        ranks[process.host].append(rank)
    found: dict[int, Gpu] = {}
    for host, members in ranks.items():
        here = by_host.get(host or "", [])
        seen = {rank: _by_pid(here, processes[rank].pid) for rank in members}
        identified = {rank: _by_number(here, processes[rank], len(members)) for rank in members}
        for rank in members:
            mine = seen[rank] or identified[rank]
            if mine and (seen[rank] or sum(other is mine for other in identified.values()) == 1):
                found[rank] = mine
    return dict(sorted(found.items()))


def _by_pid(gpus: Iterable[Gpu], pid: int | None) -> Gpu | None:
    on = (
        sorted(((gpu.processes[pid][1], gpu) for gpu in gpus if pid in gpu.processes), key=lambda each: -each[0]) if pid else []
    )
    return on[0][1] if on and (len(on) == 1 or on[0][0] >= _BY_FAR * on[1][0]) else None


def _by_number(gpus: list[Gpu], process: Process, ranks: int) -> Gpu | None:
    """CUDA numbers equal GPUs as nvidia-smi does; GPUs of several models it may put in another order."""
    if process.visible is not None and not process.visible.isdecimal():
        return next((gpu for gpu in gpus if gpu.uuid and gpu.uuid.startswith(process.visible)), None)
    if len({gpu.model for gpu in gpus}) > 1:
        return None
    number = process.visible if process.visible is not None else process.local_rank if len(gpus) == ranks else None
    return next((gpu for gpu in gpus if number is not None and gpu.index == str(number)), None)


def _processes(connection: DuckDBPyConnection) -> dict[int, Process]:
    rows = rows_of(
        connection,
        "ranks",
        """
        SELECT rank, max(host), max(pid), max(local_rank), max(gpu) FROM ranks
        WHERE rank IS NOT NULL GROUP BY rank ORDER BY rank
        """,
    )
    return {rank: Process(host, pid, local, gpu) for rank, host, pid, local, gpu in rows}


def _own(connection: DuckDBPyConnection, processes: Mapping[int, Process]) -> dict[str, frozenset[int]]:
    """Processes of the job: those of its ranks and, as far as somebody looked, their children."""
    found: dict[str, set[int]] = defaultdict(set)
    for process in processes.values():
        if process.host and process.pid:
            found[process.host].add(process.pid)
    for rank, pid in rows_of(connection, "processes", "SELECT DISTINCT rank, pid FROM processes WHERE pid IS NOT NULL"):
        host = processes[rank].host if rank in processes else None
        if host:
            found[host].add(pid)
    return {host: frozenset(pids) for host, pids in sorted(found.items())}


def _gpus(connection: DuckDBPyConnection) -> tuple[Gpu, ...]:
    """GPUs as the newest nvidia-smi of each host has them."""
    rows = rows_of(
        connection,
        "devices",
        """
        SELECT d.host, d.device, s.path, d.model, d.uuid, d.pci, d.source_id FROM devices d JOIN sources s USING (source_id)
        WHERE d.kind = 'gpu' AND d.host IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY d.host, d.device ORDER BY s.captured_ns DESC NULLS LAST, s.path DESC) = 1
        ORDER BY d.host, d.device
        """,
    )
    if not rows:
        return ()
    sources = sorted({row[-1] for row in rows})
    readings = _by_device(connection, "counter, value FROM counters WHERE value IS NOT NULL", sources)
    links, failed = _links(connection), _failed_tests(connection)
    events = _by_device(connection, "kind, code, coalesce(text, '') FROM device_events WHERE true", sources)
    return tuple(
        _gpu(
            row[:6],
            [*readings[row[6], row[1]], *links.get((row[0], row[1]), ())],
            [*events[row[6], row[1]], *failed.get((row[0], row[1]), ())],
        )
        for row in rows
    )


def _failed_tests(connection: DuckDBPyConnection) -> Mapping[tuple[str, str], Sequence[tuple[str, None, str]]]:
    """Tests that GPUs failed, distinguished from what else is known of them."""
    rows = rows_of(
        connection,
        "device_events",
        """
        SELECT DISTINCT s.host, e.device, e.text FROM device_events e JOIN sources s USING (source_id)
        WHERE e.kind = 'test_failed' AND s.host IS NOT NULL ORDER BY ALL
        """,
    )
    found: dict[tuple[str, str], list[tuple[str, None, str]]] = defaultdict(list)
    for host, device, text in rows:
        found[host, device].append((text, None, text))
    return found


def _links(connection: DuckDBPyConnection) -> Mapping[tuple[str, str], Sequence[tuple[str, int]]]:
    """How many links of each GPU are up, by the newest of the texts that say only that."""
    rows = rows_of(
        connection,
        "counters",
        """
        SELECT s.host, c.device, c.value FROM counters c JOIN sources s USING (source_id)
        WHERE c.counter = 'nvlinks_up' AND s.host IS NOT NULL
        QUALIFY row_number() OVER (PARTITION BY s.host, c.device ORDER BY s.captured_ns DESC NULLS LAST, s.path DESC) = 1
        """,
    )
    return {(host, device): (("nvlinks_up", value),) for host, device, value in rows}


def _by_device(connection: DuckDBPyConnection, what: str, sources: list[int]) -> dict[tuple[int, str], list[Any]]:
    """Rows of a table by source and device."""
    found: dict[tuple[int, str], list[Any]] = defaultdict(list)
    query = f"SELECT source_id, device, {what} AND source_id IN (SELECT unnest(?::BIGINT[])) ORDER BY ALL"
    for source, device, *row in connection.execute(query, [sources]).fetchall():
        found[source, device].append(row)
    return found


def _gpu(about: Sequence[Any], counters: Iterable[tuple[str, int]], events: Sequence[tuple[str, int | None, str]]) -> Gpu:
    host, device, path, model, uuid, pci = about
    readings: dict[str, int] = dict(counters)
    return Gpu(
        host,
        device,
        f"{path}#{device}",
        model,
        uuid,
        {name: value for name, value in readings.items() if not name.startswith(_MEMORY)},
        frozenset(text for kind, _, text in events if kind == "throttle"),
        {kind: text for kind, _, text in events if kind not in ("throttle", "process")},
        {code: (text, readings.get(f"{_MEMORY}{code}", 0)) for kind, code, text in events if kind == "process" and code},
        pci,
    )


def ports_read_twice(connection: DuckDBPyConnection) -> tuple[Port, ...]:
    """What ports carried between two reads; a counter that fell was reset or wrapped, and shows nothing."""
    rows = rows_of(
        connection,
        "devices",
        """
        SELECT d.host, d.parent, d.device, c.counter, max(c.time_ns) - min(c.time_ns),
            arg_max(c.value, c.time_ns) - arg_min(c.value, c.time_ns), arg_max(s.path, c.time_ns)
        FROM (SELECT DISTINCT host, parent, device FROM devices WHERE kind = 'port' AND parent IS NOT NULL) d
            JOIN counters c ON c.host = d.host AND c.device = d.device JOIN sources s ON s.source_id = c.source_id
        WHERE c.time_ns IS NOT NULL AND c.value IS NOT NULL
        GROUP BY ALL HAVING max(c.time_ns) > min(c.time_ns) ORDER BY d.host, d.device, c.counter
        """,
    )
    return tuple(_port_of(rows))


def _port_of(rows: Iterable[tuple[str, str, str, str, int, int, str]]) -> Iterator[Port]:
    grown: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    about: dict[tuple[str, str, str], tuple[float, str]] = {}
    for host, nic, device, counter, lasted, difference, path in rows:
        about[host, nic, device] = (lasted / 1e9, f"{path}#{device}")
        if difference >= 0:
            grown[host, nic, device][counter] = difference
    for (host, nic, device), (seconds, source) in about.items():
        yield Port(host, nic, device, seconds, grown[host, nic, device], source)


def _ports_of_ranks(
    connection: DuckDBPyConnection, ports: Iterable[Port], processes: Mapping[int, Process]
) -> dict[int, tuple[Port, ...]]:
    """Ports of the NICs on which a rank has queue pairs."""
    by_nic: dict[tuple[str | None, str], list[Port]] = defaultdict(list)
    for port in ports:
        by_nic[port.host, port.nic].append(port)
    query = "SELECT DISTINCT rank, nic FROM queue_pairs WHERE rank IS NOT NULL AND nic IS NOT NULL ORDER BY rank, nic"
    rows = rows_of(connection, "queue_pairs", query)
    found: dict[int, list[Port]] = defaultdict(list)
    for rank, nic in rows:
        host = processes[rank].host if rank in processes else None
        found[rank] += by_nic.get((host, nic), [])
    return {rank: tuple(mine) for rank, mine in found.items() if mine}
