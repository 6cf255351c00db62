"""A launcher that started a job again and again leaves thousands of logs: each has a status, the good ones are used."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections import Counter
from typing import Any

import numpy as np
import pytest

from forensics.ingest.shim_log import layout
from tests.unit.ingest.reading import SAMPLES

pytestmark = pytest.mark.slow

FILES, RANKS = 2000, 64
MOST_CPU_SECONDS, MOST_MIB = 120, 1024
READ = """
import json, re, resource, sys
from pathlib import Path
from forensics.case.build import open_case
case = open_case([Path(sys.argv[1])])
ask = lambda query: case.execute(query).fetchall()
# What rusage has of the process itself is also that of whoever started it.
peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps({
    "statuses": ask("SELECT status, reason, count(*) FROM sources GROUP BY ALL ORDER BY ALL"),
    "ranks": ask("SELECT rank, count(*), count(DISTINCT source_id) FROM operations GROUP BY rank ORDER BY rank"),
    "processes": ask("SELECT count(DISTINCT value) FROM job_config WHERE key = 'shim.pid'"),
    "off": ask("SELECT count(DISTINCT rank) FROM coverage WHERE status = 'not_found' AND kind = 'shim_log'"),
    "cpu_s": sum(one.ru_utime + one.ru_stime for one in used),
    "mib": max(peak, used[1].ru_maxrss) / 1024,
}))
"""


def content_of(number: int, whole: bytes) -> tuple[str, bytes]:
    """The log of one process: of 50 of them one was cut, one is empty, one was never begun, one could not record."""
    rank, pid = number % RANKS, 1000 + number
    name = f"node-{rank // 8}.{rank}.{pid}.{100000 + number}"
    head = np.frombuffer(whole[: layout.HEAD_BYTES], layout.HEAD).copy()
    facts = {
        "rank": rank,
        "pid": pid,
        "process_start": 100000 + number,
        "world_size": RANKS,
        "host": f"node-{rank // 8}".encode(),
    }
    for field, value in {**facts, "checksum": 0}.items():
        head[field] = value
    head["checksum"] = zlib.crc32(head.tobytes())
    content = head.tobytes() + whole[layout.HEAD_BYTES :]
    kinds = {7: content[:3000], 8: b"", 9: bytes(4096), 10: f"FRXSHIM-OFF 1 reason=2 errno=28 of={name}\n".encode()}
    return f"{name}.{'off' if number % 50 == 10 else 'frx'}", kinds.get(number % 50, content)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("logs")
    whole = (SAMPLES / "shim_log" / "one_of_everything.frx").read_bytes()
    for number in range(FILES):
        name, content = content_of(number, whole)
        (folder / name).write_bytes(content)
    done = subprocess.run([sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=True)
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def test_every_file_has_a_status_that_says_why(found: dict[str, Any]) -> None:
    each = FILES // 50
    assert sum(count for _, _, count in found["statuses"]) == FILES
    assert {(status, reason): count for status, reason, count in found["statuses"]} == {
        ("ok", None): FILES - 4 * each,
        ("partial", "cut: 3000 of 12928 bytes; read up to the cut"): each,
        ("partial", "the process recorded nothing: no space (errno 28)"): each,
        ("rejected", "cut inside its head: 0 of 2048 bytes"): each,
        ("rejected", "its head was never written: the process died while it made the file"): each,
    }


def test_the_others_are_used(found: dict[str, Any]) -> None:
    """Every attempt stays a source of its own; which of them counts is for the rules to say."""
    logs = Counter(number % RANKS for number in range(FILES) if number % 50 not in (7, 8, 9, 10))
    assert {rank: count for rank, _, count in found["ranks"]} == dict(logs)
    assert all(rows == 4 * sources for _, rows, sources in found["ranks"])
    assert found["processes"] == [[FILES - 3 * FILES // 50]]
    assert found["off"][0][0] == len({number % RANKS for number in range(10, FILES, 50)})


def test_it_costs_little(found: dict[str, Any]) -> None:
    assert found["cpu_s"] < MOST_CPU_SECONDS
    assert found["mib"] < MOST_MIB
