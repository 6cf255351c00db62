"""Runs random programs without and with the collector, and shows which of them show a difference."""

from __future__ import annotations

import difflib
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.native.programs.building import Linkage

LEAST_BYTES = str(1 << 20)
"""Size of a log: the smallest that the collector makes."""
LONGEST_S = 900
_AGAIN = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is left of a program: wait status in hexadecimal, complaints of the strict library, hash of all that it said."""

    status: str
    complaints: int
    digest: str


@dataclass(frozen=True, slots=True)
class Collector:
    """What is preloaded in its place, what it is stated, what is preloaded in the run without it; how many run at a time."""

    preload: tuple[str, ...] = ()
    env: Mapping[str, str] | None = None
    absent: tuple[str, ...] = ()
    at_once: int = 1

    def without(self) -> Collector:
        """The run that it is compared with."""
        return Collector(self.absent, self.env, at_once=self.at_once)


def outcomes(linkage: Linkage, seeds: range, collector: Collector) -> dict[int, Outcome]:
    """One outcome for each seed, without gaps."""
    found = {}
    size = -(-len(seeds) // collector.at_once)
    parts = [seeds[begin : begin + size] for begin in range(0, len(seeds), size)]
    with ThreadPoolExecutor(collector.at_once) as pool:
        said = pool.map(lambda part: _run(linkage, (part.start, len(part)), collector), parts)
    for line in "".join(said).splitlines():
        seed, status, complaints, digest = line.split()
        found[int(seed)] = Outcome(status, int(complaints), digest)
    assert list(found) == list(seeds), f"the driver ended at {len(found)} of {len(seeds)}"
    return found


def differing(linkage: Linkage, seeds: range, collector: Collector) -> list[int]:
    """Seeds of the programs that end in a way with the collector in which they never end without it.

    On a busy host a program may end otherwise by itself, once, with the collector or without: both are run again.
    """
    plain = outcomes(linkage, seeds, collector.without())
    wrong = [seed for seed, outcome in plain.items() if outcome.complaints]
    assert not wrong, f"these programs are wrong without any collector: {wrong}"
    watched = outcomes(linkage, seeds, collector)
    changed = [seed for seed in seeds if watched[seed] != plain[seed]]
    return [
        seed
        for seed in changed
        if _again(linkage, seed, collector) - _again(linkage, seed, collector.without()) - {plain[seed]}
    ]


def _again(linkage: Linkage, seed: int, collector: Collector) -> set[Outcome]:
    """The outcomes of ten more runs of one program."""
    return {outcomes(linkage, range(seed, seed + 1), collector)[seed] for _ in range(_AGAIN)}


def difference(linkage: Linkage, seed: int, collector: Collector) -> str:
    """All that a program said, without and with the collector, as a unified diff; empty when they agree."""
    plain, watched = (_run(linkage, (seed,), each).splitlines() for each in (collector.without(), collector))
    return "\n".join(difflib.unified_diff(plain, watched, "without the collector", "with it", lineterm="", n=6))


def first_change(text: str) -> str:
    """The line of a diff that tells most: a complaint, or else the first that changed."""
    changed = [line for line in text.splitlines() if line.startswith(("+", "-")) and not line.startswith(("+++", "---"))]
    return next((line for line in changed if "STRICT" in line), changed[0] if changed else "no difference this time")


def _run(linkage: Linkage, arguments: Sequence[int], collector: Collector) -> str:
    with tempfile.TemporaryDirectory(prefix="programs-", dir=_memory()) as logs:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("FORENSICS_SHIM", "LD_", "NCCL_"))}
        env |= {"FORENSICS_SHIM_DIR": logs, "FORENSICS_SHIM_JOB": "job", "FORENSICS_SHIM_BYTES": LEAST_BYTES}
        env |= linkage.env | dict(collector.env or {})
        preload = (*linkage.before, *collector.preload, *linkage.after)
        if preload:
            env["LD_PRELOAD"] = ":".join(preload)
        command = [linkage.command, *map(str, arguments)]
        done = subprocess.run(command, env=env, capture_output=True, timeout=LONGEST_S)
        assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
        return done.stdout.decode(errors="replace")


def _memory() -> str | None:
    """Logs are made and deleted by the thousand: in memory where there is some."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
