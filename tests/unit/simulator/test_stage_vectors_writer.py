"""Stage vectors of simulated jobs: the host's times, read by our ingester, and the shares that StageFrontier published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.fixtures.simulator import bundle
from forensics.fixtures.simulator.faults import parse
from forensics.fixtures.simulator.job import TESTBED, TrainingJob
from forensics.fixtures.simulator.simulation import Simulation, simulate
from forensics.fixtures.simulator.writers.interface import Recorder
from forensics.fixtures.simulator.writers.stage_vectors import stage_vectors
from forensics.fixtures.simulator.writers.trace_hosts import past, programs, stretches
from forensics.fixtures.suites.frontier import job as ddp_job
from forensics.model import Component, StageName
from forensics.recorder import Recorder as RealRecorder
from forensics.recorder import layout
from forensics.rules.diagnosis import diagnose
from tests.unit.simulator.small_jobs import DENSE

STAGES = ("data", "forward", "backward", "optimizer", "callbacks")
AFTER_NS = 1e9


def ddp(size: int) -> TrainingJob:
    """The paper's job on machines like the paper's: the figures of one that has them to itself."""
    return replace(ddp_job(size), noise=TESTBED)


def run(job: TrainingJob, fault: str, seed: int = 3, iterations: int = 6) -> Simulation:
    """With so few iterations the fault is there from the first one on."""
    return simulate(job, [parse(fault)], seed, iterations=iterations)


def files(made: Simulation, how: Recorder | None = None) -> dict[str, bytes]:
    """The files as they are after the run, or at the capture of one that hangs."""
    then = made.capture_ns if made.hung else float(made.run.ends.max()) + AFTER_NS
    return dict(stage_vectors(made.run, made.places, then, bundle.options_of(made, style="plain"), recorder=how))


def case(found: Mapping[str, bytes], folder: Path) -> DuckDBPyConnection:
    for path, content in found.items():
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(content)
    connection = open_case([folder])
    assert connection.execute("SELECT path, message FROM ingest_warnings").fetchall() == []
    return connection


def matrix(connection: DuckDBPyConnection, ranks: int) -> npt.NDArray[np.float64]:
    """Steps x ranks x stages, ns."""
    rows = connection.execute(
        "SELECT step, rank, stage, sum(duration_ns) FROM stage_spans WHERE NOT side_channel GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    steps = sorted({row[0] for row in rows})
    found = np.zeros((len(steps), ranks, len(STAGES)))
    for step, rank, stage, duration in rows:
        found[steps.index(step), rank, STAGES.index(stage)] = duration
    return found


def shares(found: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Shares of the stages in the advances of the largest prefix over ranks (StageFrontier section 3)."""
    advances = np.diff(found.cumsum(axis=2).max(axis=1), axis=1, prepend=0.0)
    return np.asarray(advances.sum(axis=0) / advances.sum())


# Our jobs read the loss in every step, so that nothing hides the delay; without that, and with a host that waits for its
# gradients, 120 ms come to 0.42.
@pytest.mark.parametrize(("delay_ms", "published", "tolerance"), [(12, 0.06, 0.01), (120, 0.43, 0.06)])
def test_the_share_of_a_late_batch_is_the_published_one(
    delay_ms: int, published: float, tolerance: float, tmp_path: Path
) -> None:
    made = run(ddp(8), f"frontier-data@rank5:{delay_ms}ms", iterations=12)
    found = matrix(case(files(made), tmp_path), 8)
    assert found.shape[0] == 12
    assert shares(found)[0] == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize(("blocking", "shown"), [(True, "backward"), (False, "optimizer")])
def test_a_delay_of_the_device_shows_where_the_hosts_first_wait(blocking: bool, shown: str, tmp_path: Path) -> None:
    how = Recorder(blocking=blocking, every=1)
    usual = matrix(case(files(run(ddp(8), "none"), how), tmp_path / "usual"), 8)
    connection = case(files(run(ddp(8), "frontier-forward-device@rank2:120ms"), how), tmp_path / "slow")
    longer = (matrix(connection, 8) - usual)[1:].mean(axis=0) / 1e6
    assert STAGES[int(longer.mean(axis=0).argmax())] == shown
    assert longer[:, STAGES.index(shown)] == pytest.approx(120.0, abs=8.0)
    assert abs(longer[2, STAGES.index("forward")]) < 5.0
    device = dict(
        connection.execute("SELECT rank, median(device_ns) / 1e6 FROM stage_spans WHERE device_ready GROUP BY rank").fetchall()
    )
    assert device[2] - device[1] == pytest.approx(120.0, abs=5.0)


def test_with_device_times_the_rank_of_a_slow_forward_pass_is_named(tmp_path: Path) -> None:
    made = run(ddp(8), "frontier-forward-device@rank2:120ms", iterations=20)
    verdict = diagnose(case(files(made, Recorder(every=1)), tmp_path))
    assert [(suspect.ranks, suspect.stage.name, suspect.stage.component) for suspect in verdict.suspects] == [
        ((2,), StageName.FORWARD, Component.COMPUTE)
    ]


def test_times_are_those_of_the_run_on_the_clock_of_the_host(tmp_path: Path) -> None:
    made = run(DENSE, "none", iterations=3)
    connection = case(files(made), tmp_path)
    rows = connection.execute("SELECT rank, step, begin_ns, end_ns FROM steps ORDER BY ALL").fetchall()
    assert len(rows) == 3 * DENSE.parallel.world
    for rank, step, begin, end in rows:
        number = step - made.first_step
        assert begin == pytest.approx(made.places.wall_of(rank, made.run.begins[number, rank]), abs=10)
        assert end == pytest.approx(made.places.wall_of(rank, made.run.ends[number, rank]), abs=10)
    apart = "SELECT max(abs(wall_ns - total)) FROM steps JOIN (SELECT rank, step, sum(duration_ns) total FROM stage_spans "
    apart += "WHERE NOT side_channel GROUP BY ALL) USING (rank, step)"
    assert connection.execute(apart).fetchall()[0][0] < 100
    roles = connection.execute("SELECT group_role, min(rank), max(rank) FROM stage_spans GROUP BY ALL ORDER BY ALL").fetchall()
    assert roles == [("pp0", 0, 7), ("pp1", 8, 15)]
    forwards = "SELECT DISTINCT max(substep) FROM stage_spans WHERE stage = 'forward' AND NOT side_channel GROUP BY rank, step"
    assert connection.execute(forwards).fetchall() == [(DENSE.microbatches - 1,)]


def test_a_step_that_never_ends_is_not_there(tmp_path: Path) -> None:
    made = run(DENSE, "host-hang@rank5/backward", iterations=4)
    assert made.hung
    found = files(made)
    rows = case(found, tmp_path).execute("SELECT rank, max(step) FROM steps GROUP BY rank").fetchall()
    through = np.isfinite(made.run.ends).sum(axis=0)
    assert dict(rows) == {rank: made.first_step + count - 1 for rank, count in enumerate(through.tolist()) if count}


def test_a_killed_process_loses_what_its_thread_had_not_written() -> None:
    made = run(DENSE, "process-killed@rank6", iterations=4)
    found = files(made)
    onset = made.injections[0].onset_ns
    for rank in range(DENSE.parallel.world):
        (written,) = {layout.HEADER.unpack_from(found[f"ranks/{rank}/stages/rank_{rank}.stages"])[14]}
        ended = made.run.ends[:, rank]
        assert written <= (ended <= (onset if rank == 6 else made.capture_ns)).sum()
        assert rank == 6 or written == np.isfinite(ended).sum()


def test_a_rank_with_a_program_of_its_own_is_distinguished() -> None:
    made = run(DENSE, "extra-collective@rank3", iterations=4)
    recording = next(recording for recording in made.run.recordings if recording.own)
    usual, own = programs(recording)
    assert own.places.tolist() == [3] and len(own.ops) == len(usual.ops) + 1
    assert usual.places.tolist() == [0, 1, 2, 4, 5, 6, 7]
    begins = made.run.begins[recording.iteration, own.places]
    through = past(own, begins, blocking=False)[:, 0]
    assert len(through) == len(own.ops) + 1 and (np.diff(through[np.isfinite(through)]) >= 0).all()
    parts = stretches(own.ops)
    assert [part.first for part in parts[1:]] == [part.last + 1 for part in parts[:-1]]
    assert parts[-1].last == len(own.ops) - 1


def test_the_file_has_the_layout_of_the_recorder(tmp_path: Path) -> None:
    real = RealRecorder(tmp_path, rank=0, world_size=16)
    real.watch(_Model())
    for _ in real.batches([0]):
        with real.step():
            for stage in STAGES[1:]:
                with real.stage(stage), real.device_time() if stage == "forward" else real.probe("kept out"):
                    pass
    real.close()
    written = (tmp_path / "rank_0.stages").read_bytes()
    made = run(DENSE, "none", iterations=2)
    simulated = files(made, Recorder(watched=True, every=1))["ranks/0/stages/rank_0.stages"]
    alike = [0, 1, 2, 3, 4, 5, 6]
    heads = [layout.HEADER.unpack_from(content) for content in (written, simulated)]
    assert [heads[0][field] for field in alike] == [heads[1][field] for field in alike]
    assert len(simulated) == layout.SLOTS_OFFSET + heads[1][14] * heads[1][5]
    names = [_names(content) for content in (written, simulated)]
    assert [name for name in names[0] if name[1] != "kept out"] == [name for name in names[1] if name[1] != "checkpoint"]


class _Model:
    """As much of a torch model as `watch` needs."""

    requires_grad = True

    def parameters(self) -> list[_Model]:
        return [self]

    def register_hook(self, hook: object) -> None:
        self.hook = hook


def _names(content: bytes) -> list[tuple[int, str]]:
    count = layout.HEADER.unpack_from(content)[-1]
    table = content[layout.NAMES_OFFSET :][: count * layout.NAME_BYTES]
    return [(flags, raw[:size].decode()) for flags, size, raw in layout.NAME.iter_unpack(table)]
