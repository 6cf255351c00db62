"""Record the scenarios of jobs that move and are slow: `python -m tests.native.slow_scenarios [NAME ...]`.

Jobs of the test bed (docs/testbed.md), slowed by its physics and recorded by the real collector until they ended; no other
evidence is kept. `proxy-paused` is simulated (docs/simulator.md), for the test bed has no such fault.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import zstandard

from forensics.fixtures.simulator import bundle as simulated
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import MS, Model, Parallelism, TrainingJob
from forensics.fixtures.simulator.network import Network
from forensics.fixtures.simulator.simulation import simulate
from forensics.fixtures.simulator.writers.shim_log import shim_log
from tests.native.conftest import ROOT
from tests.native.shim_scenarios import SQUARE, compiled, loaded
from tests.native.testbed import Shape, built, start
from tests.recordings.shim_logs import bundle, logs_in, tar_of


@dataclass(frozen=True, slots=True)
class Slowing:
    """A fault and the job it strikes."""

    fault: str
    shape: Shape = field(default_factory=lambda: replace(SQUARE, steps=10))


RECORDINGS = {
    "transfer-slow": Slowing("link_slow:rank=0,us=1500"),
    "rank-awaited": Slowing("late:rank=1,us=20000"),
}
_SMALL = TrainingJob(
    "small",
    Parallelism(tensor=1, pipeline=2, data=4),
    Model(8, 30 * MS, 16 << 20, 256 << 20),
    microbatches=4,
    gpus_per_host=1,
)


def ended_logs(shim: Path, folder: Path, slowing: Slowing) -> dict[int, bytes]:
    """The logs of a job that ran to its end under a fault."""
    with start(built(), folder / "job", slowing.shape, slowing.fault, env=loaded(shim, folder / "logs")) as job:
        if any(job.finish()):
            raise RuntimeError(f"{slowing.fault}: the job did not end in order")
        return logs_in(folder / "logs")


def paused_proxy(seed: int) -> bytes:
    """A bundle of the logs of a simulated job in which one proxy sleeps before many transfers."""
    made = simulate(_SMALL, [parse("proxy-delay@rank2:60")], seed)
    effects = [effect for injection in made.injections for effect in injection.effects]
    network = Network(made.run, effects, made.capture_ns, made.seed)
    logs = partial(shim_log, network=network, window_s=4.0)
    options = simulated.options_of(made)
    return tar_of(dict(logs(made.run, made.places, made.capture_ns, options)))


def main(names: list[str]) -> None:
    """Record the named scenarios, or all."""
    with tempfile.TemporaryDirectory() as name:
        shim = compiled(Path(name) / "libforensics_shim.so")
        for scenario in names or [*RECORDINGS, "proxy-paused"]:
            folder = Path(name) / scenario
            folder.mkdir()
            recorded = RECORDINGS.get(scenario)
            content = bundle(ended_logs(shim, folder, recorded)) if recorded else paused_proxy(1)
            target = ROOT / "fixtures/scenarios" / scenario / "bundle.tar.zst"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(zstandard.ZstdCompressor(level=19).compress(content))
            print(scenario, target.stat().st_size)


if __name__ == "__main__":
    main(sys.argv[1:])
