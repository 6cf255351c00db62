"""Shim logs as the only evidence: what they may say, and what they may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from duckdb import DuckDBPyConnection

from forensics.case.alignment import align
from forensics.case.build import open_case
from forensics.case.logged_calls import complete_calls
from forensics.model import Cause, Confidence, Verdict
from forensics.rules.diagnosis import diagnose
from forensics.rules.engine import supply_of
from forensics.rules.reductions.progress.liveness import Motion
from forensics.rules.reductions.progress.shim_logs import logged_motion
from forensics.rules.reductions.progress.standstill import Standing, WaitStates
from forensics.rules.reductions.ranks.shim_logs import ShimLog, heartbeat_gaps, shim_logs
from forensics.rules.reductions.waits.graph import WaitGraph
from tests.recordings.shim_logs import tar_of

SCENARIOS = Path(__file__).parents[4] / "fixtures/scenarios"
SECOND = 1_000_000_000
BEGIN = 1_790_000_000 * SECOND


def members(name: str) -> dict[str, bytes]:
    """Members of a scenario by path."""
    import io
    import tarfile

    packed = (SCENARIOS / name / "bundle.tar.zst").read_bytes()
    content = zstandard.ZstdDecompressor().decompressobj().decompress(packed)
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar.getmembers()}  # type: ignore[union-attr]


def case_of(found: dict[str, bytes], folder: Path) -> DuckDBPyConnection:
    (folder / "bundle.tar").write_bytes(tar_of(found))
    return open_case([folder / "bundle.tar"])


def logs_alone(found: dict[str, bytes], ranks: set[int]) -> dict[str, bytes]:
    return {path: content for path, content in found.items() if path.endswith(".frx") and int(path.split("/")[1]) in ranks}


def changed(name: str, folder: Path, *statements: str) -> Verdict:
    """The verdict on a scenario after its case was changed."""
    connection = open_case([SCENARIOS / name / "bundle.tar.zst"])
    for statement in statements:
        connection.execute(statement)
    complete_calls(connection)
    return diagnose(connection)


def outcomes(verdict: Verdict) -> dict[str, str]:
    return {outcome.rule: outcome.status for outcome in verdict.ruled_out}


def log(
    rank: int, *, host: str = "a", end: float = 60, active: float = 60, ended: bool = False, copied: float | None = None
) -> ShimLog:
    """A log that began at second 0; times in seconds."""
    taken = None if copied is None else BEGIN + int(copied * SECOND)
    return ShimLog(
        rank=rank, source_id=rank, source=f"{rank}.frx", host=host, begin_ns=BEGIN, end_ns=BEGIN + int(end * SECOND),
        copied_ns=taken, ended=ended, active_ns=BEGIN + int(active * SECOND), chunk_ns=None,
        pause_ns=SECOND // 2, hooks=frozenset(),
    )  # fmt: skip


@pytest.mark.parametrize(("stuck_s", "still"), [(60, True), (1, False)])
def test_a_wait_stands_still_when_its_chunks_do(stuck_s: int, still: bool) -> None:
    """The log of a process that lives shows how long nothing happened; an operation whose chunks move is a long one."""
    with open_case([SCENARIOS / "chunk-not-delivered" / "bundle.tar.zst"]) as case:
        case.execute("DELETE FROM stacks; UPDATE sources SET captured_ns = NULL, modified_ns = NULL")
        case.execute(f"UPDATE chunk_states SET stuck_ns = least(stuck_ns, {stuck_s * SECOND})")
        supply = supply_of(case)
        states = zip(supply.get(WaitGraph).waits, supply.get(WaitStates), strict=True)
        standing = [state.standing for wait, state in states if not wait.missing]
    assert [each is Standing.STILL for each in standing] == [still]


def test_without_the_profiler_hook_chunks_are_unknown_not_fine(tmp_path: Path) -> None:
    verdict = changed(
        "chunk-not-delivered",
        tmp_path,
        "DELETE FROM chunk_states",
        "DELETE FROM flows",
        "UPDATE coverage SET status = 'not_configured' WHERE kind = 'nccl_profiler'",
    )
    assert {outcomes(verdict)[code] for code in ("FX142", "FX143", "FX144")} == {"not_applicable"}


def test_without_the_verbs_hook_no_work_request_is_fine(tmp_path: Path) -> None:
    verdict = changed(
        "chunk-not-delivered",
        tmp_path,
        "UPDATE coverage SET status = 'not_configured' WHERE kind = 'verbs'",
        "DELETE FROM wr_samples",
    )
    assert outcomes(verdict)["FX145"] == "not_applicable"
    assert (verdict.suspects[0].cause, verdict.suspects[0].confidence) == (Cause.NETWORK_DOWN, Confidence.LIKELY)


def test_steps_that_a_log_does_not_show_are_not_zero_steps(tmp_path: Path) -> None:
    """A plugin that was not asked for steps counts none: that is no receiver without credit."""
    verdict = changed("credit-withheld", tmp_path, "UPDATE chunk_states SET posted = 0 WHERE rank = 2")
    assert Cause.PROXY_DELAY not in {suspect.cause for suspect in verdict.suspects}


def test_one_end_of_a_way_is_not_enough_to_confirm_it(tmp_path: Path) -> None:
    found = members("chunk-not-delivered")
    verdict = diagnose(case_of(logs_alone(found, {0}), tmp_path))
    assert verdict.suspects == ()


def test_a_dead_receiver_is_the_root_and_not_the_way_to_it(tmp_path: Path) -> None:
    verdict = changed(
        "chunk-not-delivered",
        tmp_path,
        "UPDATE ranks SET state = 'absent' WHERE rank = 2",
        "UPDATE ranks SET pid = NULL WHERE rank = 2",
    )
    assert verdict.suspects[0].ranks == (2,)
    assert "FX142" not in {code for suspect in verdict.suspects for code in suspect.rules}


def test_an_error_towards_a_dead_process_is_its_echo(tmp_path: Path) -> None:
    verdict = changed("work-request-failed", tmp_path, "UPDATE ranks SET state = 'absent' WHERE rank = 2")
    assert "FX145" not in {code for suspect in verdict.suspects for code in suspect.rules}


def test_requests_flushed_behind_another_error_accuse_nobody(tmp_path: Path) -> None:
    verdict = changed("work-request-failed", tmp_path, "UPDATE wr_samples SET error_status = 5 WHERE error_status IS NOT NULL")
    assert "FX145" not in {code for suspect in verdict.suspects for code in suspect.rules}


def test_a_local_error_names_the_rank_whose_request_it_was(tmp_path: Path) -> None:
    verdict = changed("work-request-failed", tmp_path, "UPDATE wr_samples SET error_status = 4 WHERE error_status IS NOT NULL")
    first = verdict.suspects[0]
    assert (first.ranks, first.cause) == ((0,), Cause.OTHER)


def test_dumps_of_as_many_ranks_are_preferred_to_the_logs(tmp_path: Path) -> None:
    """Their numbers and orders are not those of the logs: the two are never mixed."""
    dumps = (
        "INSERT INTO sources (source_id, path, kind, rank, status, rows) "
        "SELECT 100 + r, 'fr/' || r, 'flight_recorder', r, 'ok', 1 FROM range({ranks}) t(r)",
        "INSERT INTO operations (source_id, locator, snapshot, rank, record_id, kind, sequence, state, is_p2p) "
        "SELECT 100 + r, 0, 0, r, 0, 'all_reduce', 1, 'done', false FROM range({ranks}) t(r)",
    )
    fewer = changed("behind-in-shim-logs", tmp_path, *(text.format(ranks=2) for text in dumps))
    assert fewer.suspects[0].ranks == (1,)
    assert changed("behind-in-shim-logs", tmp_path, *(text.format(ranks=4) for text in dumps)).suspects == ()


def test_without_a_manifest_logs_of_different_hosts_tell_no_heartbeat(tmp_path: Path) -> None:
    """They may have been copied at different times; the error towards the silent rank is then only a suspicion."""
    found = logs_alone(members("heartbeat-stopped"), {0, 1, 2, 3})
    verdict = diagnose(case_of(found, tmp_path))
    assert "FX146" not in {code for suspect in verdict.suspects for code in suspect.rules}
    failed = [suspect for suspect in verdict.suspects if "FX145" in suspect.rules]
    assert all(suspect.confidence is Confidence.SUSPECT for suspect in failed)


def test_two_processes_of_one_rank_at_one_time_are_two_jobs(tmp_path: Path) -> None:
    found = members("behind-in-shim-logs")
    other = members("credit-withheld")
    mixed = {**logs_alone(found, {0, 1, 2, 3}), **{f"other/{p}": c for p, c in logs_alone(other, {1}).items()}}
    connection = case_of(mixed, tmp_path)
    times = "begin_ns = (SELECT min(begin_ns) FROM coverage), end_ns = (SELECT max(end_ns) FROM coverage)"
    connection.execute(f"UPDATE coverage SET {times} WHERE kind = 'shim_log'")
    connection.execute("UPDATE job_config SET value = source_id WHERE key = 'shim.pid'")
    complete_calls(connection)
    assert shim_logs(connection) == {}
    assert diagnose(connection).suspects == ()


def test_an_earlier_attempt_gives_way_to_the_newest() -> None:
    gaps = heartbeat_gaps([log(0, end=60), log(1, end=52)])
    assert gaps[1] == 8 * SECOND and gaps[0] == 0


def test_a_heartbeat_is_measured_against_the_copy() -> None:
    assert heartbeat_gaps([log(0, end=60, copied=61)]) == {0: SECOND}
    assert heartbeat_gaps([log(0, end=60, ended=True, copied=90)]) == {}
    assert heartbeat_gaps([log(0, host="a"), log(1, host="b", end=10)]) == {}, "nothing to compare with on either host"


@pytest.mark.parametrize(
    ("logs", "motion"),
    [
        ([log(0, active=60), log(1, active=59.9)], Motion.MOVING),
        ([log(0, active=50), log(1, active=51)], Motion.STALLED),
        ([log(0, active=50), log(1, active=59)], Motion.TOO_EARLY),
        ([log(0, active=58.5), log(1, active=58.5)], Motion.TOO_EARLY),
        ([log(0, active=5, ended=True), log(1, active=6, ended=True)], Motion.MOVING),
        ([log(0, active=20, ended=True), log(1, active=21)], Motion.STALLED),
    ],
)
def test_silence_in_the_logs_against_the_rhythm_of_the_job(logs: list[ShimLog], motion: Motion) -> None:
    found = logged_motion(logs, 2.0)
    assert found is not None and found.motion is motion


def test_replays_of_graphs_make_no_call_and_silence_says_nothing() -> None:
    logs = [replace(log(rank, active=5), graphs=True) for rank in range(2)]
    found = logged_motion(logs, 2.0)
    assert found is not None and found.motion is Motion.UNSEEN


def test_logs_without_any_call_tell_no_motion() -> None:
    assert logged_motion([replace(log(0), active_ns=None)], 2.0) is None


def test_a_process_that_ended_in_order_while_others_wait_is_named(tmp_path: Path) -> None:
    verdict = changed(
        "behind-in-shim-logs", tmp_path, "UPDATE job_config SET value = 'ended' WHERE key = 'shim.state' AND rank = 1"
    )
    first = verdict.suspects[0]
    assert (first.ranks, first.rules[0]) == ((1,), "FX146")


def test_what_nobody_stated_of_completion_is_not_claimed() -> None:
    verdict = diagnose(open_case([SCENARIOS / "behind-in-shim-logs/bundle.tar.zst"]))
    assert verdict.suspects[0].ranks == (1,)
    assert "finished" not in " ".join(line.statement for line in verdict.suspects[0].evidence)


@pytest.mark.parametrize("left_out", range(4))
@pytest.mark.parametrize(
    ("scenario", "truth"),
    [
        ("behind-in-shim-logs", {1}),
        ("chunk-not-delivered", {0, 2}),
        ("credit-withheld", {2}),
        ("gpu-not-ready", {2}),
        ("heartbeat-stopped", {2}),
        ("work-request-failed", {0, 2}),
    ],
)
def test_a_log_that_nobody_fetched_accuses_nobody_else(scenario: str, truth: set[int], left_out: int, tmp_path: Path) -> None:
    """It is made with the first call and outlives its process: where there is none, it was not copied."""
    found = {path: content for path, content in members(scenario).items() if not path.startswith(f"ranks/{left_out}/")}
    verdict = diagnose(case_of(found, tmp_path))
    for suspect in verdict.suspects:
        assert suspect.confidence is Confidence.SUSPECT or set(suspect.ranks) & truth, suspect


def test_a_communicator_with_an_unknown_member_is_left_out(tmp_path: Path) -> None:
    """Two of four places are known and the group is smaller than the job: who is missing cannot be known."""
    found = logs_alone(members("behind-in-shim-logs"), {0, 2})
    connection = case_of(found, tmp_path)
    connection.execute("UPDATE communicator_states SET size = 3 WHERE size = 4")
    connection.execute("DELETE FROM communicators")
    connection.execute("DELETE FROM members")
    complete_calls(connection)
    assert diagnose(connection).suspects == ()


def test_members_of_a_group_of_which_one_left_nothing_keep_their_places(tmp_path: Path) -> None:
    """Peers are shown by place: numbered anew, those behind the missing one would stand in for each other."""
    connection = case_of(logs_alone(members("behind-in-shim-logs"), {0, 2, 3}), tmp_path)
    connection.execute("UPDATE communicator_states SET size = 5 WHERE size = 4")
    connection.execute("DELETE FROM communicators")
    connection.execute("DELETE FROM members")
    align(connection)
    places = "SELECT communicator, list((rank, position) ORDER BY rank) FROM members GROUP BY communicator"
    found = connection.execute(f"SELECT * FROM ({places}) JOIN communicators USING (communicator) WHERE size = 3").fetchall()
    assert found and all(row[1] == [(0, 0), (2, 2), (3, 3)] for row in found)


CALL_WITH_A_RANK_WITHOUT_LOG = """
INSERT INTO operations BY NAME
SELECT * REPLACE ('nccl:with-a-stranger' AS communicator, 'all_reduce' AS kind, 'pending' AS state, 999 AS locator)
FROM operations WHERE rank = {rank} ORDER BY entered_ns LIMIT 1
"""


@pytest.mark.parametrize(("rank", "is_accused"), [(2, False), (1, True)], ids=["of the device", "of a victim"])
def test_a_device_that_may_be_held_inside_its_host_is_not_accused(rank: int, is_accused: bool, tmp_path: Path) -> None:
    """No flow shows a call inside a host; with a rank that left no log it may be what a device is held by."""
    verdict = changed("gpu-not-ready", tmp_path, CALL_WITH_A_RANK_WITHOUT_LOG.format(rank=rank))
    accused = {rank for suspect in verdict.suspects if suspect.cause is Cause.COMPUTE_HANG for rank in suspect.ranks}
    assert accused == ({2} if is_accused else set())


INSIDE_A_HOST = (
    """
    INSERT INTO communicators BY NAME
    SELECT 'nccl:inside' AS communicator, 2 AS size, 'reported' AS method, 'read' AS confidence
    """,
    "INSERT INTO members BY NAME SELECT 'nccl:inside' AS communicator, rank - 2 AS position, rank FROM range(2, 4) r(rank)",
    """
    INSERT INTO operations BY NAME
    SELECT * EXCLUDE n REPLACE (
        'nccl:inside' AS communicator, 'pending' AS state, 'all_reduce' AS kind, false AS is_p2p, NULL AS peer,
        NULL AS pair_number, 900 + n AS locator, n AS op_id, 1024 AS count, entered_ns + n AS entered_ns
    ) FROM operations, range(1, 4) r(n) WHERE rank IN (2, 3)
    QUALIFY row_number() OVER (PARTITION BY rank, n ORDER BY entered_ns) = 1
    """,
)
"""Ranks 2 and 3 made three reductions of their host, and no log shows whether these are complete."""
OTHER = "UPDATE operations SET {what} WHERE communicator = 'nccl:inside' AND op_id = 2 AND rank = 3"


def inside(*statements: str) -> dict[int, set[str]]:
    """States of the calls of ranks 2 and 3 inside their host, by number, after the case was changed."""
    with open_case([SCENARIOS / "gpu-not-ready" / "bundle.tar.zst"]) as case:
        for statement in (*INSIDE_A_HOST, *statements):
            case.execute(statement)
        complete_calls(case)
        rows = case.execute("SELECT sequence, list(state) FROM latest_call WHERE communicator = 'nccl:inside' GROUP BY ALL")
        return {number: set(states) for number, states in rows.fetchall()}


@pytest.mark.parametrize("what", ["kind = 'reduce_scatter'", "count = 2048", "dtype = 'uint8'"])
@pytest.mark.first(1)
def test_what_members_made_differently_is_not_taken_for_complete(what: str) -> None:
    assert inside() == {1: {"done"}, 2: {"done"}, 3: {"done"}}
    assert inside(OTHER.format(what=what)) == {1: {"done"}, 2: {"pending"}, 3: {"pending"}}


def test_a_difference_that_members_got_past_holds_nobody() -> None:
    past = "UPDATE operations SET state = 'done' WHERE communicator = 'nccl:inside' AND op_id = 3 AND rank = 2"
    assert inside(OTHER.format(what="kind = 'reduce_scatter'"), past)[2] == {"done"}


def test_sizes_of_gathers_may_differ() -> None:
    gathers = "UPDATE operations SET kind = 'all_gather', count = count + rank WHERE communicator = 'nccl:inside'"
    assert inside(gathers) == {1: {"done"}, 2: {"done"}, 3: {"done"}}


def test_a_device_in_a_call_that_differs_is_not_accused_for_what_it_does_not_send(tmp_path: Path) -> None:
    verdict = changed("gpu-not-ready", tmp_path, *INSIDE_A_HOST, OTHER.format(what="kind = 'reduce_scatter'"))
    first = verdict.suspects[0]
    assert (first.ranks, first.members, first.cause) == ((2, 3), "one_of", Cause.COLLECTIVE_MISMATCH)
    assert all(suspect.cause is not Cause.COMPUTE_HANG for suspect in verdict.suspects)
