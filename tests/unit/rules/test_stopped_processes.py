"""Where to begin by one process of a table that is stopped, and by a worker that Ray ended for the memory of its node."""

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
