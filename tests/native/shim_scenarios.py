"""Record the scenarios that shim logs explain: `python -m tests.native.shim_scenarios [NAME ...]`.

Jobs of the test bed (docs/testbed.md), hung by its physics and recorded by the real collector; no other evidence is kept.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import zstandard

from tests.native.conftest import LINKING, ROOT, sources_of
from tests.native.testbed import Job, Shape, built, start
from tests.recordings.shim_logs import bundle, logs_in

SQUARE = Shape(pp=2, dp=2, per_host=1)
STAGES = Shape(pp=4, per_host=1)


@dataclass(frozen=True, slots=True)
class Recording:
    """A fault, the job it strikes, what the site set, and for how long nothing must have moved."""

    fault: str
    shape: Shape = SQUARE
    env: Mapping[str, str] = field(default_factory=dict)
    quiet: float = 3.0


RECORDINGS = {
    "chunk-not-delivered": Recording("link_down:rank=0,peer=2,step=1,oneway=1"),
    "credit-withheld": Recording("credit_withheld:rank=2,step=1"),
    "gpu-not-ready": Recording("compute_stall:rank=2,step=1", STAGES),
    "work-request-failed": Recording("link_down:rank=0,peer=2,step=1,oneway=1,ms=200"),
    "heartbeat-stopped": Recording("kill:rank=2,step=1", env={"TESTBED_RETRY_MS": "200"}, quiet=7.0),
    "behind-in-shim-logs": Recording("never_calls:rank=1,step=1"),
}


def loaded(shim: Path, logs: Path) -> dict[str, str]:
    """What a site sets to load the collector."""
    both = {"LD_PRELOAD": str(shim), "NCCL_PROFILER_PLUGIN": str(shim)}
    return {**both, "FORENSICS_SHIM_DIR": str(logs), "FORENSICS_SHIM_JOB": "job", "FORENSICS_SHIM_BYTES": "1048576"}


def hung_logs(
    shim: Path, folder: Path, recording: Recording, then: Callable[[Job], None] = lambda job: None
) -> dict[int, bytes]:
    """The logs of a job that was hung by a fault, taken while its processes wait."""
    env = {**loaded(shim, folder / "logs"), **recording.env}
    with start(built(), folder / "job", recording.shape, recording.fault, env=env) as job:
        job.until_hung(lambda: any(place.step >= 1 for place in job.places()), quiet=recording.quiet)
        then(job)
        return logs_in(folder / "logs")


def compiled(library: Path) -> Path:
    """The collector, from its sources."""
    includes = [f"-I{ROOT / 'native/include'}", f"-I{ROOT / 'native'}"]
    options = ["-std=c11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", *LINKING["shim"], "-pthread"]
    subprocess.run(["cc", *options, *includes, *sources_of("shim"), "-ldl", "-lm", "-o", str(library)], check=True)
    return library


def main(names: list[str]) -> None:
    """Record the named scenarios, or all."""
    with tempfile.TemporaryDirectory() as name:
        shim = compiled(Path(name) / "libforensics_shim.so")
        for scenario in names or list(RECORDINGS):
            folder = Path(name) / scenario
            folder.mkdir()
            content = bundle(hung_logs(shim, folder, RECORDINGS[scenario]))
            target = ROOT / "fixtures/scenarios" / scenario / "bundle.tar.zst"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
            print(scenario, target.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
