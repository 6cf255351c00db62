"""Commands that behave like ssh, srun, squeue and kubectl, and a forensics on each host behind them.

The name of a host says how it behaves. The words on standard error are those of OpenSSH 9.2, Slurm 23.02 and kubectl 1.29.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from forensics.bundle.layout import SCHEMA
from forensics.bundle.writer import Content, write_bundle

ROOT = Path(__file__).resolve().parents[4]

SSH = """
arguments = sys.argv[1:]
place = arguments.index("--")
assert not any(word.startswith("-o") and "=" not in arguments[i + 1] for i, word in enumerate(arguments[:place])), arguments
host, words = arguments[place + 1], arguments[place + 2:]
assert len(words) == 1, words
host = host.rpartition("@")[2]
if host.startswith("dead"):
    print(f"ssh: connect to host {host} port 22: Connection timed out", file=sys.stderr)
    sys.exit(255)
if host.startswith("missing"):
    sys.exit(subprocess.call(["bash", "-c", words[0].replace("forensics ", "forensics-not-there ", 1)]))
sys.exit(subprocess.call(["bash", "-c", words[0]], env=os.environ | {"STAND_IN_HOST": host}))
"""
SRUN = """
flags = [word for word in sys.argv[1:] if word.startswith("--")]
assert "--overlap" in flags and "--gres=none" in flags and "--jobid=77" in flags, flags
assert not [name for name in os.environ if name.startswith("SLURM_") and name != "SLURM_CONF"]
host = next(word.partition("=")[2] for word in sys.argv if word.startswith("--nodelist="))
command = sys.argv[sys.argv.index(f"--nodelist={host}") + 1:]
if host.startswith("dead"):
    print(f"srun: error: Task launch for StepId=77.4 failed on node {host}: Communication connection failure", file=sys.stderr)
    sys.exit(1)
if host.startswith("missing"):
    print("slurmstepd: error: execve(): forensics: No such file or directory", file=sys.stderr)
    print(f"srun: error: {host}: task 0: Exited with exit code 2", file=sys.stderr)
    sys.exit(2)
sys.exit(subprocess.call(command, env=os.environ | {"STAND_IN_HOST": host, "SLURM_PROCID": "0"}))
"""
SQUEUE = """
assert "--jobs=77" in sys.argv, sys.argv
print(os.environ["STAND_IN_NODES"])
"""
KUBECTL = """
if sys.argv[1] == "get":
    assert "--selector=app=train" in sys.argv and "--namespace=ml" in sys.argv, sys.argv
    print(os.environ["STAND_IN_PODS"])
    sys.exit()
assert sys.argv[1:3] == ["exec", "-i"], sys.argv
place = sys.argv.index("--")
host = next(word for word in sys.argv[3:place] if not word.startswith("--"))
if host.startswith("dead"):
    print("Error from server: error dialing backend: dial tcp 10.0.0.3:10250: connect: no route to host", file=sys.stderr)
    sys.exit(1)
if host.startswith("missing"):
    print("OCI runtime exec failed: exec failed: unable to start container process: "
          'exec: "forensics": executable file not found in $PATH: unknown', file=sys.stderr)
    print("command terminated with exit code 126", file=sys.stderr)
    sys.exit(126)
sys.exit(subprocess.call(sys.argv[place + 1:], env=os.environ | {"STAND_IN_HOST": host}))
"""
FORENSICS = """
sys.path.insert(0, {root!r})
import pathlib, time
import forensics
from forensics.collect.cluster.frames import greet, send_bundle, send_failure
host, number = os.environ["STAND_IN_HOST"], sys.argv[sys.argv.index("--send") + 1]
bundle = pathlib.Path({bundles!r}) / f"{{host}}.tar"
behaviour = host.rstrip("0123456789-")
if behaviour == "old":
    print("Usage: forensics collect [OPTIONS]\\n" + chr(0x256d) + "- Error -" + chr(0x256e), file=sys.stderr)
    print(chr(0x2502) + " No such option: --send" + " " * 50 + chr(0x2502), file=sys.stderr)
    sys.exit(2)
if behaviour == "mute":
    time.sleep(600)
if behaviour == "rubbish":
    while True:
        print("forensics-bundle 0 1 5 " + "0" * 64 + " 0\\nY" * 2000, flush=True)
if behaviour == "banner":
    print("Welcome to the cluster!\\nmodule: command not found\\nforensics-clock 1 2", flush=True)
greet(number)
if behaviour == "slow":
    time.sleep(600)
if behaviour == "crash":
    print("Killed", file=sys.stderr)
    sys.exit(137)
if behaviour == "refuses":
    send_failure(number, 5, "the disk\\nis full \\x1b[31m")
    sys.exit(5)
if behaviour == "newer":
    forensics.__version__ = "99.1"
if behaviour in ("cut", "stalls", "liar"):
    data = bundle.read_bytes()
    import hashlib
    digest = "0" * 64 if behaviour == "liar" else hashlib.sha256(data).hexdigest()
    sys.stdout.buffer.write(f"\\nforensics-bundle {{number}} 1 {{len(data)}} {{digest}} 0\\n".encode())
    sys.stdout.buffer.write(data if behaviour == "liar" else data[: len(data) // 2])
    sys.stdout.buffer.flush()
    time.sleep(600 if behaviour == "stalls" else 0)
    sys.exit()
if behaviour == "noise":
    bundle.write_bytes(os.urandom(5000))
send_bundle(number, bundle, 0)
"""


def install(folder: Path, bundles: Path) -> None:
    """Put the stand-ins into a folder for PATH."""
    folder.mkdir()
    texts = {"ssh": SSH, "srun": SRUN, "squeue": SQUEUE, "kubectl": KUBECTL}
    texts["forensics"] = FORENSICS.format(root=str(ROOT), bundles=str(bundles))
    for name, text in texts.items():
        (folder / name).write_text(f"#!{sys.executable}\nimport os, subprocess, sys\n{text}")
        (folder / name).chmod(0o755)


def host_bundle(
    path: Path,
    node: str,
    ranks: Mapping[int, str],
    *,
    world: int = 8,
    job: str | None = "77",
    also: Iterable[Content] = (),
    says: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """The bundle of one host; `ranks` gives the state of each rank that it has or misses, and others are unknown to it."""
    states = {rank: ranks.get(rank, "unknown") for rank in range(world)}
    entries = {
        str(rank): {"node": node if rank in ranks else None, "pid": 100 + rank, "state": state, "reason": None}
        for rank, state in states.items()
    }
    document = {
        "schema": SCHEMA,
        "tool": "forensics 1",
        "begin_ns": 10,
        "end_ns": 20,
        "interrupted": False,
        "job_id": job,
        "world_size": world,
        "nodes": [node],
        "ranks": entries,
        "status": {str(rank): {"proc.tasks": "ok" if rank in ranks else "not_found"} for rank in states},
        "node_status": {node: {"clock": "ok"}},
        "warnings": [],
        **says,
    }
    runs = [run(rank, "ok" if rank in ranks else "not_found") for rank in states] + [run(None, "ok")]
    contents = [
        Content("bundle.json", json.dumps(document).encode()),
        Content(f"nodes/{node}/collectors.jsonl", "".join(json.dumps(each) + "\n" for each in runs).encode()),
        Content(f"nodes/{node}/node.json", json.dumps({"node": node, "hostname": node, "boot_id": "b", "clocks": []}).encode()),
        *(Content(f"ranks/{rank}/rank.json", json.dumps({"rank": rank, "node": node}).encode()) for rank in states),
        Content("redactions.json", b'[{"rule": "r", "path": "p", "count": 1}]'),
        *also,
    ]
    write_bundle(path, contents, replace=True)
    return path


def run(rank: int | None, status: str) -> dict[str, Any]:
    """One line of collectors.jsonl."""
    kind = "clock" if rank is None else "proc.tasks"
    return {"id": kind, "rank": rank, "status": status, "argv": [], "begin_ns": 10, "end_ns": 20, "path": None}
