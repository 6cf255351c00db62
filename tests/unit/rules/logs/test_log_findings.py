"""Jobs of which only logs are left."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Cause, Confidence, Outcome
from tests.recordings.rank_logs import WORLD, RankLogs, one_behind
from tests.recordings.verdicts import blamed, named, stated, verdict_of, victims


def test_the_rank_that_enqueued_less_than_its_peers_is_named(tmp_path: Path) -> None:
    verdict = verdict_of(one_behind().write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.confidence) == ((3,), Cause.HOST_STALL, Confidence.LIKELY)
    assert first.rules == ("FX151",)
    assert verdict.outcome is Outcome.HANG
    assert victims(verdict) == {rank: (3,) for rank in range(WORLD) if rank != 3}
    assert "ends at work 1579" in stated(verdict)


@pytest.mark.parametrize("label", ["", "[default{0}]:", "{0}: "])
def test_one_log_of_the_launcher_for_all_ranks(tmp_path: Path, label: str) -> None:
    verdict = verdict_of(one_behind().write_together(tmp_path / "slurm-4711.out", label))
    assert blamed(verdict) == {3}


def test_the_same_logs_twice_change_nothing(tmp_path: Path) -> None:
    logs = one_behind()
    logs.write(tmp_path / "ranks")
    logs.write_together(tmp_path / "launcher.log")
    assert blamed(verdict_of(tmp_path)) == {3}


def test_of_several_attempts_of_torchrun_the_last_counts(tmp_path: Path) -> None:
    one_behind(5).write(tmp_path / "run_x/attempt_0")
    one_behind(2).write(tmp_path / "run_x/attempt_1")
    (tmp_path / "run_x/attempt_0/rank2.log").write_text(
        (tmp_path / "run_x/attempt_0/rank1.log").read_text().replace("15", "95")
    )
    assert named(verdict_of(tmp_path)) == {2}


def test_where_dumps_are_the_numbers_of_logs_say_nothing(tmp_path: Path) -> None:
    bundle = Path(__file__).parents[4] / "fixtures/scenarios/device-stalled/bundle.tar.zst"
    verdict = verdict_of(bundle, one_behind().write(tmp_path))
    assert "FX151" not in {rule for suspect in verdict.suspects for rule in suspect.rules}
    assert verdict.suspects[0].ranks == (5,)


def test_a_member_whose_rank_nothing_tells_is_not_taken_for_absent(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.timed_out(rank, 40, 40, "8(TENSOR)", within=rank, group_id=2)
    logs.lines[3] = [line.removeprefix("[rank3]:") for line in logs.lines[3]]
    assert named(verdict_of(logs.write_together(tmp_path / "job.log"))) == set()


def cut_behind_the_call(group: str | None = None) -> RankLogs:
    """All gave up on one number but rank 3; the log of rank 0 ends before the line that states the group."""
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        if rank != 3 and group is None:
            logs.timed_out(rank, 1579, 1580)
        elif rank != 3:
            logs.timed_out(rank, 1579, 1580, f"{4 + rank % 4}({group})", within=rank // 4, group_id=1)
    del logs.lines[0][-1]
    return logs


def test_a_call_without_a_group_is_in_none_of_several_for_sure(tmp_path: Path) -> None:
    """Rank 3 is not the one in the default group alone: rank 0 may wait in a group of its own with rank 4."""
    verdict = verdict_of(cut_behind_the_call("TENSOR").write(tmp_path))
    assert not named(verdict) - {3} and "of 0" not in stated(verdict)


def test_where_all_speak_of_the_default_group_a_call_without_one_says_nothing_else(tmp_path: Path) -> None:
    assert named(verdict_of(cut_behind_the_call().write(tmp_path))) == {3}


def test_the_first_to_report_is_not_named(tmp_path: Path) -> None:
    logs = RankLogs()
    logs.timed_out(4, 1580, 1580)
    for rank in range(WORLD):
        if rank != 4:
            logs.signalled(rank, 1580, 1579, by=4)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_all_at_the_same_place_names_nobody(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.timed_out(rank, 1580, 1582)
    verdict = verdict_of(logs.write(tmp_path))
    assert named(verdict) == set()
    assert verdict.outcome is Outcome.HANG, "that somebody gave up waiting is known, if not because of whom"


def test_one_that_ran_ahead_alone_may_be_the_one_with_a_call_too_many(tmp_path: Path) -> None:
    logs = RankLogs()
    logs.timed_out(4, 1580, 1580)
    for rank in range(WORLD):
        if rank != 4:
            logs.signalled(rank, 1579, 1579, by=4)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_the_rank_that_did_not_complete_what_most_completed(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.timed_out(rank, 1580 if rank == 5 else 1581, 1582)
    (first,) = verdict_of(logs.write(tmp_path)).suspects
    assert (first.ranks, first.cause, first.confidence) == ((5,), Cause.COMPUTE_HANG, Confidence.LIKELY)


def test_half_of_the_ranks_did_not_complete_it(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.timed_out(rank, 1580 + rank % 2, 1582)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_only_the_root_of_a_chain_over_groups_is_named(tmp_path: Path) -> None:
    """Rank 2 did not enter the group of its pair, rank 3 waits for it there and so is missing in the group of 1 and 3."""
    logs = RankLogs()
    for rank, group, within in ((0, "5(DATA)", 0), (1, "6(DATA)", 0), (3, "8(TENSOR)", 1)):
        logs.timed_out(rank, 40, 40, group, within=within, group_id=2)
    logs.timed_out(0, 40, 40, "5(DATA)", within=0, group_id=1)
    for rank, group, within, enqueued in ((2, "5(DATA)", 1, 39), (3, "6(DATA)", 1, 39), (2, "8(TENSOR)", 0, 39)):
        logs.say(
            rank,
            f"[rank{rank}]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:1785] [PG ID 2 PG GUID {group} Rank {within}] Timeout at NCCL "
            f"work: 1, last enqueued NCCL work: {enqueued}, last completed NCCL work: 39.",
        )
    verdict = verdict_of(logs.write(tmp_path))
    assert named(verdict) == {2}
    assert victims(verdict) == {0: (2,), 1: (3,), 3: (2,)}


def test_logs_of_a_few_ranks_only_make_a_suspicion(tmp_path: Path) -> None:
    logs = RankLogs()
    logs.timed_out(60, 1580, 1582)
    logs.timed_out(61, 1580, 1582)
    logs.signalled(3, 1579, 1579, by=60)
    verdict = verdict_of(logs.write(tmp_path))
    assert (named(verdict), blamed(verdict)) == ({3}, set())


def test_a_rank_without_a_log_is_at_most_a_suspect(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        if rank != 6:
            logs.timed_out(rank, 1580, 1582)
    del logs.lines[6]
    verdict = verdict_of(logs.write(tmp_path))
    assert (named(verdict), blamed(verdict)) == ({6}, set())
    assert "no line of its watchdog is here" in stated(verdict)


@pytest.mark.parametrize(
    ("silent", "suspected"), [((6,), {6}), ((5, 6), {5, 6}), ((3, 6), set())], ids=["one", "a row", "apart"]
)
def test_silence_that_no_one_cause_explains_accuses_nobody(
    silent: tuple[int, ...], suspected: set[int], tmp_path: Path
) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        if rank not in silent:
            logs.started(rank, WORLD)
            logs.timed_out(rank, 1580, 1582)
    assert named(verdict_of(logs.write(tmp_path))) == suspected


@pytest.mark.parametrize(("silent", "suspected"), [((7, 8), set()), ((8, 10), {8, 10})], ids=["of two hosts", "of one host"])
def test_silent_ranks_of_one_host_may_have_one_cause(silent: tuple[int, ...], suspected: set[int], tmp_path: Path) -> None:
    """Their logs hold the start of NCCL, which names the host: eight ranks each."""
    logs = RankLogs()
    for rank in range(16):
        logs.started(rank, 16)
        if rank not in silent:
            logs.timed_out(rank, 1580, 1582)
    assert named(verdict_of(logs.write(tmp_path))) == suspected


@pytest.mark.parametrize("end", ["ALLR", "ALLREDUCE, NumelIn=40"])
def test_a_line_that_a_cut_file_ends_with_states_no_other_call(end: str, tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        logs.timed_out(rank, 1580, 1582)
    folder = logs.write(tmp_path)
    text = (folder / "rank3.log").read_text()
    (folder / "rank3.log").write_text(text[: text.index("OpType=") + len("OpType=")] + end)
    verdict = verdict_of(folder)
    assert named(verdict) == set()


@pytest.mark.parametrize(("pid", "cause"), [(7006, Cause.HOST_STALL), (7005, Cause.UNKNOWN)], ids=["its own", "another's"])
def test_what_the_kernel_wrote_of_a_rank_that_is_not_heard_is_its_cause(tmp_path: Path, pid: int, cause: Cause) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        if rank != 6:
            logs.timed_out(rank, 1580, 1582)
    logs.write(tmp_path)
    (tmp_path / "pids.txt").write_text("".join(f"rank {rank} is pid {7000 + rank}\n" for rank in range(WORLD)))
    (tmp_path / "dmesg.txt").write_text(f"[ 9203.123456] INFO: task python3:{pid} blocked for more than 122 seconds.\n")
    (suspect,) = verdict_of(tmp_path).suspects
    assert (suspect.ranks, suspect.cause) == ((6,), cause)


def test_the_empty_place_of_a_group_whose_members_say_nothing_of_it(tmp_path: Path) -> None:
    """TP 4 x DP 2: rank 6 does not enter its tensor group; ranks 0-3 wait for theirs in the data groups."""
    logs = RankLogs()
    for rank in range(WORLD):
        logs.signalled(rank, 2, 2, by=5)
    for rank in (4, 5, 7):
        logs.timed_out(rank, 40, 40, "8(TENSOR)", within=rank - 4, group_id=2)
    for rank in (0, 1, 2, 3):
        logs.timed_out(rank, 7, 7, f"{rank + 3}(DATA)", within=0, group_id=1)
    verdict = verdict_of(logs.write(tmp_path))
    assert blamed(verdict) == {6}
    assert named(verdict) == {6}


def test_point_to_point_numbers_are_not_compared(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(4):
        logs.timed_out(rank, 10 + rank, 10 + rank, "9(PIPELINE)", operation="RECV", group_id=3)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_a_rank_that_gave_up_on_a_message_is_not_the_one_that_is_behind(tmp_path: Path) -> None:
    """Ranks 2 and 3 have not come to the reduction; rank 2 waits for a message itself."""
    logs = RankLogs()
    for rank in (0, 1, 4, 5, 6, 7):
        logs.timed_out(rank, 8, 8)
    logs.timed_out(2, 15, 15, "17(PIPELINE)", operation="RECV", within=0, group_id=3)
    for rank in (2, 3):
        logs.signalled(rank, 7, 7, by=0)
    assert named(verdict_of(logs.write(tmp_path))) == {3}


def test_a_cancelled_job_that_nobody_found_stuck(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        logs.calls(rank, WORLD, range(20 if rank == 2 else 21))
    logs.say(0, "slurmstepd: error: *** STEP 4711.0 ON gpu-000 CANCELLED AT 2026-03-21T02:20:00 DUE TO TIME LIMIT ***")
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_exits_after_a_cancel_accuse_nobody(tmp_path: Path) -> None:
    table = ["Root Cause (first observed failure):", "  rank      : 2 (local_rank: 2)", "  exitcode  : -9 (pid: 77)"]
    cancelled = "slurmstepd: error: *** STEP 4711.0 ON gpu-000 CANCELLED AT 2026-03-21T02:20:00 ***"
    (tmp_path / "launcher.log").write_text("\n".join([cancelled, *table]) + "\n")
    assert named(verdict_of(tmp_path)) == set()


def test_numbers_after_a_cancel_are_not_read(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(4):
        logs.say(rank, "slurmstepd: error: *** JOB 4711 ON gpu-000 CANCELLED AT 2026-03-21T02:20:00 ***")
        logs.timed_out(rank, 9 if rank else 8, 9)
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_the_calls_that_nccl_logged(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        logs.calls(rank, WORLD, range(0x1D if rank == 2 else 0x20))
    verdict = verdict_of(logs.write(tmp_path))
    (first,) = verdict.suspects
    assert (first.ranks, first.cause, first.confidence) == ((2,), Cause.HOST_STALL, Confidence.SUSPECT)
    assert any(not line.supports and "moves" in line.statement for line in first.evidence)


def test_calls_of_nccl_and_a_timeout_elsewhere(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        logs.calls(rank, WORLD, range(0x1D if rank == 2 else 0x20))
    logs.say(0, "[rank0]: RuntimeError: Timed out waiting 1800000ms for recv operation to complete")
    assert blamed(verdict_of(logs.write_together(tmp_path / "job.log"))) == {2}


def test_calls_between_pairs_are_not_compared(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD)
        logs.calls(rank, WORLD, range(0x1D if rank == 2 else 0x20), kind="Send")
    assert named(verdict_of(logs.write(tmp_path))) == set()


def test_the_rank_that_never_began_the_init(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        if rank == 6:
            logs.nccl(rank, "Bootstrap: Using eth0:10.0.0.6<0>")
        else:
            logs.started(rank, WORLD, complete=False)
    logs.say(0, "[rank0]: torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda:0//0")
    (first,) = verdict_of(logs.write(tmp_path)).suspects
    assert (first.ranks, first.cause, first.confidence) == ((6,), Cause.INIT_STALL, Confidence.LIKELY)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_log_that_ends_before_the_init_may_be_cut(stopped: bool, tmp_path: Path) -> None:
    """Logs are handed over cut; of a job that nothing says has stopped, the missing line says nothing."""
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD, complete=rank != 6)
    if stopped:
        logs.say(0, "[rank0]: torch.distributed.DistStoreError: wait timeout after 600000ms, keys: /default_pg/0//cuda:0//0")
    assert named(verdict_of(logs.write(tmp_path))) == ({6} if stopped else set())


def test_an_init_that_all_began_and_nobody_completed(tmp_path: Path) -> None:
    logs = RankLogs()
    for rank in range(WORLD):
        logs.started(rank, WORLD, complete=False)
    assert named(verdict_of(logs.write(tmp_path))) == set()


@pytest.mark.parametrize(
    ("function", "said"), [("forward", "what the other ranks do is not seen"), ("work", "the training stage cannot be read")]
)
def test_without_stacks_the_stage_is_missing_where_no_traceback_tells_it(function: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(
        "[rank1]: Traceback (most recent call last):\n"
        '[rank1]:   File "/w/train.py", line 214, in <module>\n[rank1]:     main()\n'
        '[rank1]:   File "/w/train.py", line 178, in main\n[rank1]:     loss = model(batch).loss\n'
        f'[rank1]:   File "/w/model.py", line 93, in {function}\n[rank1]:     att = a @ b\n'
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "[E1124 03:12:01 launch.py] failed (exitcode: 1) local_rank: 1 (pid: 64) of binary: python\n"
        "[rank0]:[W1124 03:12:02.1 ProcessGroupNCCL.cpp:1250] Warning: connection closed\n"
    )
    (label,) = [label.reason for label in verdict_of(tmp_path).labels if label.axis == "stacks"]
    assert label == f"no stacks: {said}"


REFUSED = (
    "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail at /src/gloo/transport/tcp/pair.cc:456] op.preamble.length <= op.nbytes. 80 vs 32. "
    "Received data size doesn't match expected size. Is there a distributed collective mismatch in your code?\n"
    "Fatal Python error: Aborted\n"
)
LOST = (
    "[rank{rank}]: Traceback (most recent call last):\n"
    '[rank{rank}]:   File "/srv/job/train.py", line 13, in main\n'
    "[rank{rank}]:     exchange(e)\n"
    '[rank{rank}]:   File "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in {call}\n'
    "[rank{rank}]:     work.wait()\n"
    "[rank{rank}]: RuntimeError: [/src/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:21636\n"
)


@pytest.mark.parametrize(
    ("refused", "call", "ranks", "members"),
    [(1, "all_reduce", (1, 2), "one_of"), (3, "all_reduce", (0, 3), "one_of"), (1, "all_gather", (1,), "each")],
)
def test_who_refuses_a_size_or_who_sent_it_is_meant(
    tmp_path: Path, refused: int, call: str, ranks: tuple[int, ...], members: str
) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.log").write_text(REFUSED if rank == refused else LOST.format(rank=rank, call=call))
    first = verdict_of(tmp_path).suspects[0]
    assert (first.ranks, first.members, first.cause) == (ranks, members, Cause.SHAPE_MISMATCH)
    assert (first.confidence is Confidence.SUSPECT) is (members == "each")
