"""Write an Nsight Systems export on paper: `python -m tests.recordings.nsight_export`.

The tables and columns are those of the exporter's schema 3.x; one export holds two processes, as of `nsys profile torchrun`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
EPOCH = 1_790_000_000_000_000_000
MS = 1_000_000
STAGES = {"data": 2, "forward": 10, "backward": 20, "optimizer": 4}
_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE {nvtx} (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
    color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL);
CREATE TABLE META_DATA_CAPTURE (name TEXT NOT NULL, value TEXT);
"""


def write(
    path: Path, slow: Mapping[tuple[int, str], int], steps: int = 12, nvtx: str = "NVTX_EVENTS", open_range: str | None = None
) -> Path:
    """Two ranks of a synchronous job; `slow` adds milliseconds to a stage of a rank."""
    path.unlink(missing_ok=True)
    names: dict[str, int] = {}
    with sqlite3.connect(path) as database:
        database.executescript(_TABLES.format(nvtx=nvtx))
        now = [1000 * MS, 1000 * MS]

        def mark(name: str, rank: int, begin: int, end: int | None, kind: int = 59) -> None:
            number, thread = names.setdefault(name, len(names) + 1), (1 << 56) | ((700 + rank) << 24) | (700 + rank)
            row = (begin, end, kind, thread, number)
            database.execute(f"INSERT INTO {nvtx} (start, end, eventType, globalTid, textId) VALUES (?, ?, ?, ?, ?)", row)

        for step in range(steps):
            begins = list(now)
            starts = []
            for stage, length in STAGES.items():
                for rank in (0, 1):
                    took = (length + slow.get((rank, stage), 0)) * MS + (step * 7919 + rank * 104729) % 97 * 1000
                    starts.append((stage, rank, now[rank], now[rank] + took))
                    now[rank] += took
                if stage == "backward":
                    met = max(now) + 3 * MS
                    for rank in (0, 1):
                        kernel(database, names, rank, now[rank] - MS, met)
                    starts = [(s, r, b, met if s == stage else e) for s, r, b, e in starts]
                    now = [met, met]
            for stage, rank, begin, end in starts:
                mark(f"## {stage} ##", rank, begin, end)
            for rank in (0, 1):
                mark(f"ProfilerStep#{step}", rank, begins[rank], now[rank])
        if open_range:
            mark(open_range, 1, now[1], None, 60)
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", [(number, name) for name, number in names.items()])
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, NULL, NULL)", [EPOCH])
        database.execute("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'x', 'Hostname', 1, 'node1')")
        database.execute("INSERT INTO META_DATA_CAPTURE VALUES ('ENVIRONMENT_VARIABLE', 'SECRET_TOKEN=not-to-be-shown')")
    database.close()
    return path


def kernel(database: sqlite3.Connection, names: dict[str, int], rank: int, begin: int, end: int) -> None:
    number = names.setdefault("ncclDevKernel_AllReduce_Sum_f32_RING_LL", len(names) + 1)
    row = (begin, end, rank, 7, 1, (1 << 56) | ((700 + rank) << 24), number, number)
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)


if __name__ == "__main__":
    write(ROOT / "fixtures/samples/nsight/handmade_two_ranks.sqlite", {(1, "forward"): 15})
