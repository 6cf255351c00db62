"""Two runs in one folder: the newest is meant, or nothing shows which, and never both as one job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from forensics.case.build import open_case
from tests.recordings.collection import loose as loose_dumps
from tests.recordings.job import START_NS, Job

SECOND, HOUR = 1_000_000_000, 3600 * 1_000_000_000
NOW = 1_795_000_000 * SECOND


def stack(pid: int) -> str:
    frames = "    all_reduce (torch/distributed/distributed_c10d.py:2900)\n    <module> (train.py:97)\n"
    return f'Process {pid}: python\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} (idle): "MainThread"\n{frames}'


def bundle(folder: Path, pids: Mapping[int, int], time_ns: int) -> None:
    """A bundle of these processes by rank, with one stack of each."""
    said = {"schema": "forensics.bundle/1", "ranks": {str(rank): {"node": "n1", "pid": pid} for rank, pid in pids.items()}}
    runs = []
    for rank, pid in pids.items():
        path = f"ranks/{rank}/stacks/0.txt"
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(stack(pid))
        runs.append({"id": "stack.pyspy", "rank": rank, "pid": pid, "sample": 0, "begin_ns": time_ns, "path": path})
    (folder / "nodes/n1").mkdir(parents=True)
    (folder / "nodes/n1/collectors.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    (folder / "bundle.json").write_text(json.dumps(said))


def kept(folder: Path) -> tuple[set[int], list[str]]:
    """Processes of which stacks are left, and what was said to be left out."""
    with open_case([folder]) as case:
        said = case.execute("SELECT path || ': ' || message FROM ingest_warnings WHERE message LIKE 'left out%' ORDER BY ALL")
        messages = [text for (text,) in said.fetchall()]
        return {pid for (pid,) in case.execute("SELECT DISTINCT pid FROM stacks").fetchall()}, messages


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_of_bundles_of_two_runs_the_newest_is_meant(names: tuple[str, str], tmp_path: Path) -> None:
    former, present = names
    bundle(tmp_path / former, {0: 70, 1: 71}, NOW - 200 * HOUR)
    bundle(tmp_path / present, {0: 80, 1: 81}, NOW)
    why = f"left out: 2 ranks are other processes in {present}/, which is newer: another run"
    assert kept(tmp_path) == ({80, 81}, [f"{former}/: {why}"])


def test_a_bundle_beside_the_folder_of_a_former_one_keeps_its_own_files(tmp_path: Path) -> None:
    bundle(tmp_path, {0: 80, 1: 81}, NOW)
    bundle(tmp_path / "former", {0: 70, 1: 71}, NOW - HOUR)
    assert kept(tmp_path)[0] == {80, 81}


@pytest.mark.parametrize(
    "second",
    [{0: 80, 1: 81}, {2: 90, 3: 91}, {0: 80, 1: 95, 2: 90}],
    ids=["the same processes later", "another host", "one of three ranks was restarted"],
)
def test_bundles_of_one_run_are_one_case(second: Mapping[int, int], tmp_path: Path) -> None:
    bundle(tmp_path / "a", {0: 80, 1: 81, 2: 90} if 2 in second and 0 in second else {0: 80, 1: 81}, NOW - 300 * SECOND)
    bundle(tmp_path / "b", second, NOW)
    assert kept(tmp_path)[1] == []


def loose(folder: Path, pids: Mapping[int, int]) -> None:
    folder.mkdir(parents=True)
    for rank, pid in pids.items():
        (folder / f"rank{rank}.txt").write_text(stack(pid))


def test_folders_of_two_runs_that_nothing_dates_are_not_mixed(tmp_path: Path) -> None:
    loose(tmp_path / "old", {0: 70, 1: 71, 2: 72})
    loose(tmp_path / "now", {0: 80, 1: 81, 2: 82})
    pids, messages = kept(tmp_path)
    assert pids == set()
    assert [message.partition(":")[0] for message in messages] == ["now/", "old/"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("round1", {0: 70, 1: 71}), ("round2", {0: 70, 1: 71})),
        (("node1", {0: 70, 1: 71}), ("node2", {2: 70, 3: 71})),
        (("a", {0: 70, 1: 71, 2: 72}), ("b", {0: 79})),
    ],
    ids=["two rounds", "two hosts", "one rank only"],
)
def test_folders_of_one_run_are_read_together(
    first: tuple[str, Mapping[int, int]], second: tuple[str, Mapping[int, int]], tmp_path: Path
) -> None:
    for name, pids in (first, second):
        loose(tmp_path / name, pids)
    assert kept(tmp_path)[1] == []


def table(day: int, pids: Mapping[int, int]) -> str:
    """What torchrun prints when its ranks fail."""
    rows = "".join(
        f"[{rank}]:\n  time      : 2026-03-{day:02}_11:10:09\n  host      : n1\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : 1 (pid: {pid})\n"
        for rank, pid in pids.items()
    )
    return f"torch.distributed.elastic.multiprocessing.errors.ChildFailedError:\nFailures:\n{rows}"


def logs_left(folder: Path, logs: Mapping[str, str]) -> set[str]:
    """Logs whose ends are left."""
    for name, text in logs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with open_case([folder]) as case:
        left = case.execute("SELECT DISTINCT s.path FROM log_events JOIN sources s USING (source_id)").fetchall()
    return {path for (path,) in left}


def test_of_logs_of_two_runs_the_one_that_ended_last_is_meant(tmp_path: Path) -> None:
    former, present = table(3, {0: 70, 1: 71}), table(9, {0: 80, 1: 81})
    assert logs_left(tmp_path, {"slurm-9.out": present, "old/slurm-7.out": former}) == {"slurm-9.out"}


def test_processes_of_a_container_may_have_the_numbers_of_a_former_one(tmp_path: Path) -> None:
    pids = {0: 70, 1: 71}
    assert logs_left(tmp_path, {"new.log": table(9, pids), "old.log": table(3, pids)}) == {"new.log"}


@pytest.mark.parametrize(
    "other",
    [table(9, {2: 70, 3: 71}), table(9, {0: 80, 1: 71}), table(9, {0: 70, 1: 71}), table(3, {0: 70})],
    ids=["another node", "restarted in part", "the other node ended at once", "one rank"],
)
def test_logs_of_one_run_are_read_together(other: str, tmp_path: Path) -> None:
    assert logs_left(tmp_path, {"a.log": table(9, {0: 80, 1: 81}), "b.log": other}) == {"a.log", "b.log"}


def steps(day: int, hour: int, rest: str = "") -> str:
    """What a trainer prints."""
    return "".join(f"2026-03-{day:02} {hour:02}:1{n}:00 INFO step {10 * n} loss 2.{n}\n" for n in range(5)) + rest


def test_a_log_whose_ranks_had_ended_before_the_steps_of_another_is_of_another_run(tmp_path: Path) -> None:
    former = {"old/slurm-7.out": table(3, {0: 70, 1: 71}), "old/rank1.log": "[rank1]: ValueError: bad row\n"}
    assert logs_left(tmp_path, {"slurm-9.out": steps(3, 12), **former}) == set()


@pytest.mark.parametrize(
    "other",
    [
        steps(3, 10),
        steps(3, 11),
        steps(3, 12, "[rank1]: ValueError: bad row\n"),
        "step 1 loss 2.0\nstep 2 loss 1.9\nstep 3 loss 1.8\n",
        steps(3, 12)[:45],
    ],
    ids=["before", "at that time", "with an error of its own", "not dated", "one step"],
)
def test_a_log_of_which_nothing_shows_that_it_is_of_another_run_stays(other: str, tmp_path: Path) -> None:
    assert "a.log" in logs_left(tmp_path, {"a.log": table(3, {0: 70, 1: 71}), "b.log": other})


def test_logs_of_two_hosts_may_be_of_one_run_with_clocks_hours_apart(tmp_path: Path) -> None:
    logs = {"node-0/a.log": table(3, {0: 70, 1: 71}).replace("n1", "node-0"), "node-1/b.log": steps(3, 19)}
    assert "node-0/a.log" in logs_left(tmp_path, logs)


@pytest.mark.parametrize("year", ["9999", "0001"])
def test_dates_that_no_run_has_are_no_error(year: str, tmp_path: Path) -> None:
    logs = {"a.log": table(3, {0: 70, 1: 71}).replace("2026", year), "b.log": steps(3, 12).replace("2026", year)}
    assert logs_left(tmp_path, logs) <= {"a.log"}


@pytest.mark.parametrize(("days", "left"), [(1, set()), (0, {"slurm-7.out"})], ids=["the day before", "that day"])
def test_a_log_of_the_day_before_the_recorded_calls_is_of_another_run(days: int, left: set[str], tmp_path: Path) -> None:
    """Launchers write the time of their host, recorders UTC."""
    job = Job(2)
    job.steps(4)
    began = datetime.fromtimestamp(START_NS / SECOND, UTC) - timedelta(days=days, hours=1)
    loose_dumps(job, tmp_path)
    text = table(3, {0: 70, 1: 71}).replace("2026-03-03_11:10:09", f"{began:%Y-%m-%d_%H:%M:%S}")
    assert logs_left(tmp_path, {"slurm-7.out": text}) == left


ERROR = "[rank1]: ValueError: bad row\n"


def paced(hour: int, count: int, seconds: int, rest: str = "") -> str:
    """Steps 0, 10, 20, ... of a trainer, one line each so many seconds."""
    at = [divmod(seconds * number, 60) for number in range(count)]
    return "".join(f"2026-03-03 {hour:02}:{m:02}:{s:02} INFO step {10 * n} loss 2.{n}\n" for n, (m, s) in enumerate(at)) + rest


@pytest.mark.parametrize(
    "later",
    [paced(12, 20, 40), paced(12, 20, 40, ERROR), paced(12, 5, 90)],
    ids=["further", "further, and it fails too", "slower, and no error"],
)
def test_the_log_of_a_run_that_failed_before_the_steps_of_a_later_one_is_left_out(later: str, tmp_path: Path) -> None:
    assert "failed.log" not in logs_left(tmp_path, {"failed.log": paced(10, 9, 40, ERROR), "later.log": later})


@pytest.mark.parametrize(
    "other",
    [paced(12, 9, 40), paced(12, 10, 40, "[rank0]: OSError: lost\n"), paced(10, 20, 40), paced(9, 20, 40)],
    ids=["a peer, clocks two hours apart", "such a peer, one line ahead", "at that time", "a former one"],
)
def test_the_log_of_a_rank_that_failed_stays_beside_that_of_a_peer(other: str, tmp_path: Path) -> None:
    assert "failed.log" in logs_left(tmp_path, {"failed.log": paced(10, 9, 40, ERROR), "other.log": other})


def labelled(first: int, last: int, rest: str = "", ranks: tuple[int, ...] = (0, 1)) -> str:
    """Steps without dates, with the rank in front."""
    return "".join(f"[rank{rank}]: step {n} loss 2.{n}\n" for n in range(first, last + 1) for rank in ranks) + rest


@pytest.mark.parametrize(
    "later",
    [labelled(13, 40), labelled(11, 40), labelled(13, 40, ERROR)],
    ids=["right behind", "from a checkpoint", "it fails too"],
)
def test_an_undated_log_that_goes_on_with_the_steps_of_a_failed_one_is_of_a_later_start(later: str, tmp_path: Path) -> None:
    left = logs_left(tmp_path, {"failed.log": labelled(1, 12, ERROR), "later.log": later})
    assert "failed.log" not in left


@pytest.mark.parametrize(
    "other",
    [
        labelled(1, 40),
        labelled(11, 14),
        labelled(500, 560),
        labelled(13, 40, ranks=(2, 3)),
        labelled(13, 40).replace("step", "batch"),
        labelled(13, 14),
    ],
    ids=["from the first step on", "a peer a little ahead", "far ahead", "other ranks", "other words", "two steps"],
)
def test_a_failed_log_stays_beside_an_undated_one_that_does_not_go_on_with_it(other: str, tmp_path: Path) -> None:
    assert "failed.log" in logs_left(tmp_path, {"failed.log": labelled(1, 12, ERROR), "other.log": other})
