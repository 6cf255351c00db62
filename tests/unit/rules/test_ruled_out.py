"""A rule says that its fault is not there only where it would have seen it: with weaker evidence nothing is ruled out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from duckdb import DuckDBPyConnection

from forensics.case.build import open_case
from forensics.rules.engine import discover, find, run, supply_of
from forensics.rules.reductions.network.channel_flows import ChannelFlows
from forensics.rules.reductions.network.line_uses import LineUse, LineUses
from forensics.rules.reductions.network.pair_rates import PairRate
from forensics.rules.reductions.network.slowness import Slowness
from forensics.rules.reductions.network.stragglers import Straggler
from forensics.rules.reductions.ranks.shim_logs import ChunkLogs
from tests.recordings.collection import whole
from tests.recordings.job import Job
from tests.recordings.rank_logs import RankLogs
from tests.recordings.scenarios import changed, recorded
from tests.unit.frontier.recorded import synchronous, write

STAGES = ("data", "forward", "backward", "callbacks", "optimizer")

NO_STACK = "DELETE FROM stacks WHERE rank = 1"
ONE_SAMPLE = "DELETE FROM stacks WHERE rank = 1 AND sample > 0"
NO_CALLS = "DELETE FROM operations WHERE rank = 1; DELETE FROM group_views WHERE rank = 1"
CUT = "UPDATE sources SET status = 'partial' WHERE kind = 'flight_recorder' AND rank = 1"
NO_LOG = "DELETE FROM coverage WHERE kind = 'shim_log' AND rank = 1"
NO_CHUNKS = "UPDATE coverage SET status = 'not_configured' WHERE kind = 'nccl_profiler' AND rank = 1"

ON_SCENARIOS = [
    ("FX101", "dataloader-stalled", "UPDATE ranks SET state = 'unknown' WHERE rank = 1"),
    ("FX102", "dataloader-stalled", "DELETE FROM processes WHERE rank = 1"),
    ("FX103", "dataloader-stalled", "DELETE FROM processes WHERE rank = 1"),
    ("FX110", "checkpoint-stalled", NO_STACK),
    ("FX110", "checkpoint-stalled", ONE_SAMPLE),
    ("FX111", "dataloader-stalled", ONE_SAMPLE),
    ("FX112", "dataloader-stalled", f"{NO_STACK}; {NO_CALLS}"),
    ("FX113", "dataloader-stalled", NO_STACK),
    ("FX114", "dataloader-stalled", NO_STACK),
    ("FX116", "dataloader-stalled", "UPDATE stacks SET owns_gil = NULL WHERE rank = 1"),
    ("FX117", "dataloader-stalled", ONE_SAMPLE),
    ("FX118", "dataloader-stalled", "DELETE FROM processes WHERE rank = 1 AND sample > 0"),
    ("FX119", "dataloader-stalled", ONE_SAMPLE),
    ("FX120", "dataloader-stalled", CUT),
    ("FX121", "dataloader-stalled", NO_CALLS),
    ("FX122", "collective-one-short", "UPDATE operations SET call_path = NULL WHERE rank = 1"),
    ("FX130", "dataloader-stalled", CUT),
    ("FX131", "dataloader-stalled", NO_STACK),
    ("FX140", "dataloader-stalled", NO_CALLS),
    ("FX142", "proxy-paused", NO_CHUNKS),
    ("FX143", "proxy-paused", NO_CHUNKS),
    ("FX145", "gpu-not-ready", "UPDATE coverage SET status = 'not_configured' WHERE kind = 'verbs' AND rank = 1"),
    ("FX146", "gpu-not-ready", NO_LOG),
    ("FX150", "dataloader-stalled", f"{NO_STACK}; {NO_CALLS}"),
    ("FX160", "job-moving", "UPDATE ranks SET host = 'host' || rank"),
    ("FX175", "job-moving", "UPDATE ranks SET host = 'host' || rank"),
    ("FX147", "dataloader-stalled", "UPDATE sources SET host = 'elsewhere' WHERE kind = 'kernel_log'"),
    ("FX173", "transfer-slow", NO_CHUNKS),
    (
        "FX190",
        "dataloader-stalled",
        "DELETE FROM stacks; UPDATE sources SET captured_ns = NULL; DELETE FROM operations WHERE snapshot > 0",
    ),
]


def status(code: str, case: DuckDBPyConnection, instead: dict[object, object] | None = None) -> str:
    rule = find(code)
    assert rule is not None
    _, (outcome,) = run(supply_of(case, instead=instead), [rule], {})
    return outcome.status


@pytest.mark.parametrize(("code", "scenario", "weaker"), ON_SCENARIOS)
@pytest.mark.first(5)
def test_only_what_would_have_been_seen_is_ruled_out(code: str, scenario: str, weaker: str) -> None:
    assert status(code, recorded(scenario)) == "ruled_out"
    with changed(scenario, weaker) as case:
        assert status(code, case) != "ruled_out"


@pytest.mark.parametrize("code", ["FX132", "FX141"])
def test_operations_of_devices(code: str, tmp_path: Path) -> None:
    job = Job(4, "nccl")
    job.steps(12)
    with open_case([whole(job, {}).write(tmp_path)]) as case:
        assert status(code, case) == "ruled_out"
        case.execute(NO_CALLS)
        assert status(code, case) != "ruled_out"


def test_logs_of_all_ranks_without_an_exception(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(12)
    job.hang({2})
    found = whole(job, {})
    for rank in range(4):
        found.log(rank, "step 12 loss 2.31", "RuntimeError: Connection closed by peer [10.0.0.2]:4711")
    with open_case([found.write(tmp_path)]) as case:
        assert status("FX115", case) == "ruled_out"
        case.execute("DELETE FROM log_events WHERE rank = 3; DELETE FROM sources WHERE kind = 'training_log' AND rank = 3")
        assert status("FX115", case) != "ruled_out"


def test_logs_of_all_members_that_enqueued_the_same(tmp_path: Path) -> None:
    def logged(ranks: int) -> RankLogs:
        logs = RankLogs()
        for rank in range(ranks):
            logs.started(rank, 4)
            logs.timed_out(rank, 40, 40)
        return logs

    with open_case([logged(4).write(tmp_path / "all")]) as case:
        assert status("FX151", case) == "ruled_out"
    with open_case([logged(3).write(tmp_path / "some")]) as case:
        assert status("FX151", case) != "ruled_out"


@pytest.mark.parametrize(
    ("steps", "late_ms", "meeting", "expected"),
    [
        (60, 0.0, "callbacks", "ruled_out"),
        (60, 0.0, "backward", "silent"),
        (3, 0.0, "callbacks", "silent"),
        (1, 50.0, "backward", "silent"),
        (3, 50.0, "backward", "fired"),
        (60, 50.0, "backward", "fired"),
    ],
)
def test_steps_in_which_a_slow_stage_would_have_shown(
    steps: int, late_ms: float, meeting: str, expected: str, tmp_path: Path
) -> None:
    """Where ranks meet at the end of a long pass, one that always works longer in it makes it as long for all."""
    does = np.tile(np.array([5.0, 60, 100, 4, 20])[None, :, None], (steps, 1, 4))
    does[:, 1, 2] += late_ms
    with open_case([write(tmp_path / "stages", synchronous(STAGES, does, meeting=meeting))]) as case:
        assert status("FX170", case) == expected


CHANNEL = ChannelFlows("dp", "all_reduce", 0, 1, 0, 1 << 20, 20, 0, 1e6, 1e6, 0.0, 0.0, 1e9, 1e9, None, 3, "log")


def channel(sender: int, **other: object) -> ChannelFlows:
    return replace(CHANNEL, sender=sender, receiver=(sender + 1) % 4, **other)  # type: ignore[arg-type]


RING = {(n, (n + 1) % 4): (channel(n),) for n in range(4)}
PAIR = PairRate(0, 1, "mlx5_0/7", "mlx5_0", 1, 500, 1e9, 1e9, 8, 0.0, 0.0, "log", spread=0.1)


def straggler(share: float, members: tuple[int, ...] = (0, 1, 2, 3), calls: int = 20) -> Straggler:
    return Straggler(
        1, "dp", "all_reduce", members, calls, 6, calls, 1e6, 1e5, 6e6, share, 0.0, 0.0, 0.0, 1e6, 0.0, "log", turns=calls
    )


@pytest.mark.parametrize(
    ("code", "slowness", "logs", "expected"),
    [
        ("FX171", Slowness(channels={(n, (n + 1) % 4): (channel(n),) for n in range(4)}), range(4), "ruled_out"),
        ("FX171", Slowness(channels=RING, pairs=(PAIR,)), range(4), "ruled_out"),
        ("FX171", Slowness(channels=RING, pairs=(replace(PAIR, rate=5e8),)), range(4), "silent"),
        ("FX171", Slowness(channels=RING, pairs=(replace(PAIR, rate=5e8, spread=0.5),)), range(4), "ruled_out"),
        ("FX171", Slowness(channels={(0, 1): (channel(0, flows=2),)}), range(4), "silent"),
        ("FX171", Slowness(channels={(0, 1): (channel(0, peers=0),)}), range(4), "silent"),
        ("FX171", Slowness(channels={(n, (n + 1) % 4): (channel(n),) for n in range(4)}), range(3), "silent"),
        ("FX173", Slowness(channels=RING), range(4), "ruled_out"),
        ("FX173", Slowness(channels=RING, longest_gap_ns=4e6), range(4), "ruled_out"),
        ("FX173", Slowness(channels=RING, longest_gap_ns=8e6), range(4), "silent"),
        ("FX172", Slowness(stragglers=(straggler(0.01),)), range(4), "ruled_out"),
        ("FX172", Slowness(stragglers=(straggler(0.3),)), range(4), "silent"),
        ("FX172", Slowness(stragglers=(straggler(0.01, calls=5),)), range(4), "silent"),
        ("FX172", Slowness(stragglers=(straggler(0.01, members=(0, 1)),)), range(4), "silent"),
    ],
)
@pytest.mark.first(2)
def test_flows_that_would_have_shown_a_slow_end(code: str, slowness: Slowness, logs: range, expected: str) -> None:
    about: dict[object, object] = {Slowness: slowness, ChunkLogs: ChunkLogs(frozenset(logs))}
    assert status(code, recorded("transfer-slow"), about) == expected


@pytest.mark.parametrize(("hosts", "expected"), [(6, "ruled_out"), (5, "silent")])
def test_nics_that_move_what_their_lines_carry_clear_the_network(hosts: int, expected: str) -> None:
    """One host of which no NIC does may be behind a slow leaf."""
    case = recorded("network-slow")
    names = case.execute("SELECT DISTINCT host FROM devices WHERE kind = 'port' ORDER BY host").fetchall()
    rates = [45e9 if at < hosts else 20e9 for at in range(len(names))]
    uses = (LineUse(host, "mlx5_0", (at,), rates[at], 0.5, 50e9, "log") for at, (host,) in enumerate(names))
    assert status("FX177", case, {LineUses: LineUses(tuple(uses))}) == expected


def test_every_rule_that_clears_is_tried() -> None:
    tried = {code for code, _, _ in ON_SCENARIOS} | {"FX115", "FX132", "FX141", "FX151", "FX170", "FX171", "FX172", "FX177"}
    # Their open flows are those of FX142 and FX143; FX148 and FX178 to FX184 are tried with their rules; six say
    # nothing of absence, or only where a report stands.
    beside = {
        "FX144",
        "FX148",
        "FX152",
        "FX153",
        "FX154",
        "FX155",
        "FX174",
        "FX176",
        "FX178",
        "FX179",
        "FX180",
        "FX181",
        "FX182",
        "FX183",
        "FX184",
        "FX185",
    }
    assert {rule.code for rule in discover()} == tried | beside
