"""Record a live fault as a scenario: `python -m tests.live.record FAULT NAME [--victim R] [--at-step N]`.

Starts the job, collects from outside, takes out paths and facts of the recording machine, and writes
fixtures/scenarios/NAME/bundle.tar.zst. `expected.json` is written by hand: it is the truth, not the program's answer.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import pickle
import sys
import sysconfig
import tarfile
import tempfile
from pathlib import Path

import zstandard

from forensics.ingest.flight_recorder.pickle import load_pickle
from tests.live.commands import ROOT, collect
from tests.live.deep_faults import DEEP_FAULTS, rows_come_late
from tests.live.faults import FAULTS, Fault, Position, moving, moving_with_phases
from tests.live.rare_faults import RARE_FAULTS

STARTS = {fault.start.__name__: fault for fault in (*FAULTS, *RARE_FAULTS, *DEEP_FAULTS)}
ORDINARY = frozenset({"HOME", "LANG", "OLDPWD", "PATH", "PWD", "SHELL", "SHLVL", "TERM"})
HEALTHY = {start.__name__: start for start in (moving, moving_with_phases, rows_come_late)}


def neutral(folder: Path) -> list[tuple[bytes, bytes]]:
    """Pairs of a path of this machine and what stands for it; longer ones first."""
    pairs = {
        str(folder): "/data/run",
        str(ROOT / "tests/live/jobs"): "/srv/training",
        str(ROOT): "/srv/training",
        sysconfig.get_path("purelib"): "/opt/venv/lib/python3.11/site-packages",
        sys.prefix: "/opt/venv",
        sysconfig.get_path("stdlib"): "/usr/lib/python3.11",
        sys.base_prefix: "/usr",
    }
    return sorted(((old.encode(), new.encode()) for old, new in pairs.items()), key=lambda pair: -len(pair[0]))


def rewrite(bundle: Path, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """The bundle as a tar with the paths replaced and fresh checksums."""
    sums: list[str] = []
    out = io.BytesIO()
    with tarfile.open(bundle) as source, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as target:
        for member in source.getmembers():
            handle = source.extractfile(member)
            content = handle.read() if handle else b""
            if member.name == "SHA256SUMS":
                content = "".join(sums).encode()
            content = without_machine(member.name, replaced(content, pairs))
            sums.append(f"{hashlib.sha256(content).hexdigest()}  {member.name}\n")
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    return out.getvalue()


def without_machine(name: str, content: bytes) -> bytes:
    """The member without what only describes the recording machine: its kernel, its control groups, its environment."""
    last = name.rpartition("/")[2]
    if last == "dmesg.txt":
        return b"[    0.000000] Linux version 6.18.0\n"
    if last not in ("rank.json", "node.json"):
        return content
    facts = json.loads(content)
    if last == "rank.json":
        facts["env_withheld"] = sorted(ORDINARY.intersection(facts.get("env_withheld") or ()))
        facts["cgroup"] = "/training" if facts.get("cgroup") else None
    else:
        facts |= {"kernel": "6.18.0", "boot_id": None, "container": None}
    return json.dumps(facts, indent=2).encode()


def replaced(content: bytes, pairs: list[tuple[bytes, bytes]]) -> bytes:
    """The content with the paths replaced; a pickle counts its strings, so it is written anew from its plain data."""
    if content[:1] != b"\x80":
        for old, new in pairs:
            content = content.replace(old, new)
        return content
    document, problem = load_pickle(content)
    assert problem is None, problem
    return pickle.dumps(_renamed(document, pairs), protocol=2)


def _renamed(value: object, pairs: list[tuple[bytes, bytes]]) -> object:
    if isinstance(value, dict):
        return {key: _renamed(item, pairs) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_renamed(item, pairs) for item in value)
    return replaced(value.encode(), pairs).decode() if isinstance(value, str) else value


def record(start: str, at: Position, name: str) -> Path:
    """Run one fault and write its scenario."""
    with tempfile.TemporaryDirectory(prefix="recording-") as scratch:
        folder, bundle = Path(scratch) / "inputs", Path(scratch) / "bundle.tar"
        folder.mkdir()
        begin = HEALTHY[start] if start in HEALTHY else STARTS[start].start
        with begin(folder, at) as job:
            collect(job, bundle)
            pairs = neutral(folder)
            pairs.insert(0, (str(job.folder).encode(), b"/data/job"))
        content = rewrite(bundle, pairs)
    target = ROOT / "fixtures/scenarios" / name / "bundle.tar.zst"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
    return target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fault", choices=sorted({*STARTS, *HEALTHY}))
    parser.add_argument("name")
    parser.add_argument("--victim", type=int)
    parser.add_argument("--at-step", type=int)
    args = parser.parse_args()
    fault: Fault | None = STARTS.get(args.fault)
    usual = fault.position if fault else Position(0, 12)
    at = Position(usual.victim if args.victim is None else args.victim, usual.step if args.at_step is None else args.at_step)
    target = record(args.fault, at, args.name)
    print(f"{target} {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
