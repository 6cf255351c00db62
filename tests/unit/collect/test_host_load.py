"""Load, clocks and pressure of a host, as /proc tells them."""

from __future__ import annotations

import json
from pathlib import Path

from forensics.case.build import open_case
from forensics.collect.host_load import host_load
from forensics.collect.processes import ProcFs

_CPUINFO = "processor\t: 0\nmodel name\t: Xeon\ncpu MHz\t\t: 800.000\n\nprocessor\t: 1\ncpu MHz\t\t: 3500.500\n"
_PSI = "some avg10=12.50 avg60=3.00 avg300=1.00 total=987654\nfull avg10=1.25 avg60=0.00 avg300=0.00 total=1234\n"


def proc(folder: Path, files: dict[str, str]) -> ProcFs:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return ProcFs(folder)


def test_load_clocks_and_pressure_are_read(tmp_path: Path) -> None:
    found = host_load(proc(tmp_path, {"loadavg": "96.10 80.00 70.5 97/3120 441\n", "cpuinfo": _CPUINFO, "pressure/cpu": _PSI}))
    assert found["load"] == [96.1, 80.0, 70.5] and found["running"] == 97
    assert found["cores"] == 2 and found["mhz"] == {"min": 800.0, "median": 2150.25, "max": 3500.5}
    assert found["pressure"]["cpu"]["some"] == {"avg10": 12.5, "avg60": 3.0, "total_us": 987654}
    assert found["pressure"]["cpu"]["full"]["avg10"] == 1.25
    assert found["pressure"]["memory"] is None


def test_what_a_kernel_does_not_have_is_null(tmp_path: Path) -> None:
    found = host_load(proc(tmp_path, {"cpuinfo": "processor\t: 0\nBogoMIPS\t: 50.00\n", "pressure/cpu": "garbage"}))
    assert found == {"cores": 1, "load": None, "running": None, "mhz": None, "pressure": None}


def test_the_facts_of_a_node_hold_it(tmp_path: Path) -> None:
    cpu = host_load(proc(tmp_path / "proc", {"loadavg": "1.00 2.00 3.00 1/10 4\n"}))
    document = {
        "node": "n1",
        "hostname": "n1",
        "boot_id": "b",
        "clocks": [],
        "ptrace_scope": 0,
        "processes_seen": 3,
        "cpu": cpu,
    }
    (tmp_path / "bundle" / "nodes" / "n1").mkdir(parents=True)
    (tmp_path / "bundle" / "nodes" / "n1" / "node.json").write_text(json.dumps(document))
    with open_case([tmp_path / "bundle"]) as opened:
        ((value,),) = opened.execute("SELECT value FROM job_config WHERE key = 'node.cpu'").fetchall()
    assert json.loads(value)["load"] == [1.0, 2.0, 3.0]
