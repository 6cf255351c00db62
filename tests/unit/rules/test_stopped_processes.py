"""Where to begin by one process that is stopped or keeps a core, by a table of steps, and by what Ray says below a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted, verdict_of

TABLE = "$ ps -eo pid,stat,wchan:22,args | grep fit.py\n"
ROW = "  330{0} {1:4} {2:22} python fit.py --local-rank={0}\n"
RAY = (
    "(raylet, ip=10.9.1.{0}) [2026-05-01 11:02:00,117 E 1 1] (raylet) node_manager.cc:3069: "
    "{1} Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons "
    "at node (ID: 351e, IP: 10.9.1.{0}) over the last time period.\n"
)
STEPS = "".join(f"(TaskRunner pid=411) step:{at} - loss:0.{at}\n" for at in range(20, 40))


def table(*states: str) -> str:
    channels = {"T": "do_signal_stop", "S": "futex_wait_queue"}
    return TABLE + "".join(ROW.format(at, f"{state}l", channels.get(state, "-")) for at, state in enumerate(states))


@pytest.mark.parametrize(
    ("states", "pid"), [("SSTS", 3302), ("RRRT", 3303), ("STTS", None), ("ST", None), ("SSSS", None), ("TTTT", None)]
)
def test_the_one_process_that_is_stopped(tmp_path: Path, states: str, pid: int | None) -> None:
    (tmp_path / "ps.txt").write_text(table(*states))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert [f"who stopped process {pid}" in lead for lead in verdict.leads] == ([] if pid is None else [True])


@pytest.mark.parametrize(
    ("text", "is_lead"),
    [
        (RAY.format(4, 1), True),
        (RAY.format(4, 12), True),
        (RAY.format(4, 0), False),
        (RAY.format(4, 1) + RAY.format(5, 1), False),
        (RAY.format(4, 1) + STEPS, False),
    ],
    ids=["one", "twelve", "none", "of two nodes", "the job went on"],
)
def test_the_node_whose_memory_ran_out(tmp_path: Path, text: str, is_lead: bool) -> None:
    verdict = pasted(tmp_path, "ray started\n" + text)
    assert not named(verdict)
    assert any("worker of Ray on 10.9.1.4" in lead for lead in verdict.leads) is is_lead


def test_of_processes_with_a_local_rank_only_these_count(tmp_path: Path) -> None:
    (tmp_path / "ps.txt").write_text(table(*"SSSS") + " 9000 Tl   do_signal_stop         python notebook.py\n")
    assert not verdict_of(tmp_path).leads


LOCKED = "[881200.101011] watchdog: BUG: soft lockup - CPU#12 stuck for {}s! [python3:4412]\n"


def test_the_host_a_core_of_which_was_kept(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(LOCKED.format(82) + LOCKED.format(108))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "process 4412 kept a core for 108 s" in verdict.leads[0]


@pytest.mark.parametrize("behind", [True, False])
@pytest.mark.parametrize("name", ["heartbeat.csv", "heartbeat.tsv"])
def test_a_table_of_steps_under_any_name(name: str, behind: bool, tmp_path: Path) -> None:
    rows = [f"{rank},gx-{rank // 4},{7 if behind and rank == 6 else 9},x" for rank in range(8)]
    text = "\n".join(["rank,host,step,seen", *rows]) + "\n"
    (tmp_path / name).write_text(text.replace(",", "\t") if name.endswith("tsv") else text)
    assert [f"rank {6}" in lead for lead in verdict_of(tmp_path).leads] == ([True] if behind else [])


ENGINE = "(EngineCore_DP0 pid=901) ERROR 06-30 09:20:44 [core.py:710] "
PLACED = (
    "(RayWorkerWrapper pid=512, ip=10.1.0.2) INFO 06-30 08:12:02 [parallel_state.py:1208] "
    "rank 9 in world size 16 is assigned as DP rank 0\n"
)
DIED = ("ray.exceptions.ActorDiedError: The actor died unexpectedly.", "\tclass_name: W", "\tpid: 512", "\tip: 10.1.0.2")


@pytest.mark.parametrize("front", [ENGINE, ""])
def test_what_ray_says_below_the_label_of_a_server(front: str, tmp_path: Path) -> None:
    verdict = pasted(tmp_path, PLACED + "".join(f"{front}{line}\n" for line in DIED))
    assert named(verdict) == {9}
