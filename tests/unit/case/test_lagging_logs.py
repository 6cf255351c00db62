"""Logs of a job that was ended, of which one lacks what all others wrote last, and nodes whose ranks alone are silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recordings.verdicts import named, unnamed, verdict_of

STOPPED = "slurmstepd: error: *** JOB 8812 ON wn-0 CANCELLED AT 2026-12-01T03:20:01 ***\n"
NAMES = ("alder.txt", "birch.txt", "cedar.txt", "dogwood.txt", "elder.txt")
PHASES = ("batch loaded", "forward done", "backward done")


def log(rank: int, steps: int, phases: int = 2, own: str = "", head: str = "rank={} world_size=5") -> str:
    """The log of one rank up to a phase of its last step, with a line of its own at the end."""
    said = [f"2026-12-01 02:00:0{rank},100 INFO {head.format(rank)}"]
    for step in range(40, 40 + steps):
        last = phases if step == 39 + steps else len(PHASES)
        said += [f"2026-12-01 02:{step}:1{rank},3{rank}0 INFO step {step} {phase}" for phase in PHASES[:last]]
    return "\n".join([*said, *([own] if own else []), ""])


def logs(behind: int | None, **options: int) -> dict[str, str]:
    """Logs of five ranks under names that hold none, the first of which says that the job was cancelled."""
    given = {"steps": 6, "phases": 2} | options
    found = {name: log(rank, 6) for rank, name in enumerate(NAMES)}
    if behind is not None:
        found[NAMES[behind]] = log(behind, given["steps"], given["phases"], own="INFO asks shard 9")
    return found | {NAMES[0]: found[NAMES[0]] + STOPPED}


def leads(folder: Path, files: dict[str, str]) -> str:
    return " ".join(lead for lead in unnamed(folder, files).leads if "its last line is" in lead)


@pytest.mark.parametrize(
    "options", [{"phases": 1}, {"steps": 5, "phases": 3}, {"steps": 3}], ids=["a phase", "a step", "steps"]
)
def test_the_log_that_lacks_what_all_others_wrote_last(tmp_path: Path, options: dict[str, int]) -> None:
    said = leads(tmp_path, logs(3, **options))
    assert said.startswith("stack and log of rank 3: its last line is dogwood.txt#line=")
    assert 'the 4 others wrote "step 45 forward done" since' in said


def test_a_log_of_no_known_rank_is_called_by_its_name(tmp_path: Path) -> None:
    said = leads(tmp_path, {name: text.replace("world_size", "seed") for name, text in logs(3, phases=1).items()})
    assert "whoever wrote that log: its last line is dogwood.txt" in said or "rank 3: its last line is dogwood.txt" in said


def alike() -> dict[str, str]:
    return logs(None)


@pytest.mark.parametrize(
    "files",
    [
        alike(),
        {name: text.replace(STOPPED, "") for name, text in logs(3, phases=1).items()},
        logs(3, phases=1) | {"birch.txt": log(1, steps=6, phases=1)},
        logs(3, phases=1) | {"elder.txt": log(4, steps=6) + "Training completed\n"},
        alike() | {"alder.txt": log(0, steps=6, own="INFO writes a summary") + STOPPED},
        alike() | {"elder.txt": "2026-12-01 02:00:00,100 INFO launcher of 5 ranks\n"},
    ],
    ids=["all alike", "nothing ended it", "two behind", "it finished", "lines of the first rank", "a log of another kind"],
)
def test_logs_that_show_nobody_behind(tmp_path: Path, files: dict[str, str]) -> None:
    assert not leads(tmp_path, files)


UP = "".join(f"{rank}: hello from rank {rank} of 8 on gx-{rank // 2}\n" for rank in range(8))
WAITS = (
    "[rank{0}]:[E1201 03:14:20.1 ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=801, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600011 milliseconds\n"
)
DOWN = (
    "NodeName={0} Arch=x86_64 CoresPerSocket=48\n   State=DOWN*+NOT_RESPONDING ThreadsPerCore=1\n"
    "   Reason=Not responding [slurm@2026-12-01T02:58:11]\n"
)


def waiting(*silent: int) -> str:
    return UP + "".join(WAITS.format(rank) for rank in range(8) if rank not in silent)


def test_ranks_of_the_node_that_is_down_and_alone_silent(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(waiting(2, 3))
    (tmp_path / "nodes.txt").write_text(DOWN.format("gx-1"))
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {2, 3}
    assert verdict.suspects[0].hosts == ("gx-1",)


@pytest.mark.parametrize(
    ("log", "nodes"),
    [
        (waiting(2), DOWN.format("gx-1")),
        (waiting(2, 3, 4), DOWN.format("gx-1")),
        (waiting(2, 3), DOWN.format("gx-9")),
        (waiting(2, 3, 4, 5), DOWN.format("gx-1") + "\n" + DOWN.format("gx-2")),
        (UP, DOWN.format("gx-1")),
    ],
    ids=["a rank of it waits", "another rank is silent", "a node of another job", "two nodes", "nobody waits"],
)
def test_a_node_that_is_down_explains_no_other_silence(tmp_path: Path, log: str, nodes: str) -> None:
    (tmp_path / "train.log").write_text(log)
    (tmp_path / "nodes.txt").write_text(nodes)
    assert not named(verdict_of(tmp_path)) - {2, 3} and not any(s.hosts for s in verdict_of(tmp_path).suspects)


def milestones(*lines: str) -> str:
    said = ("building the model", "loading the checkpoint of step 700", *lines)
    return "".join(f"[titan] 2026-12-01 08:0{place}:40,002 - root - INFO - {line}\n" for place, line in enumerate(said))


LOGS = [name.replace(".txt", ".log") for name in NAMES]
LOADED = "loaded the checkpoint of step 700", "training starts at step 701"
ROWS = [milestones(*LOADED)] * 3 + [milestones()] + [milestones(*LOADED)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (ROWS, True),
        ([*ROWS[:3], milestones(LOADED[0], "my own line 3"), ROWS[4]], False),  # it may be elsewhere in the program
        ([*ROWS[:2], milestones(), *ROWS[3:]], False),  # two are behind
        ([*ROWS[:3], milestones(*LOADED), milestones(*LOADED, "evaluation 1 of 9")], False),  # one writes more than all others
    ],
)
def test_the_log_without_the_last_line_of_all_others(tmp_path: Path, rows: list[str], expected: bool) -> None:
    said = leads(tmp_path, dict(zip(LOGS, rows, strict=True)))
    assert ("dogwood.log#line=2" in said) == expected
    assert ('wrote "[titan]' in said and "training starts at step 701" in said) == expected


def test_of_steps_that_go_on_one_log_may_always_be_behind(tmp_path: Path) -> None:
    rows = [milestones(*(f"step {step} done" for step in range(1, 9 - (place == 3)))) for place in range(5)]
    assert leads(tmp_path, dict(zip(LOGS, rows, strict=True))) == ""


@pytest.mark.parametrize(("step", "expected"), [(1, True), (2, False)], ids=["one after the other", "mixed"])
def test_ranks_that_stand_one_below_the_other_in_one_log(tmp_path: Path, step: int, expected: bool) -> None:
    lines = [f"[rank{rank}]: {line}" for rank, row in enumerate(ROWS) for line in row.splitlines()]
    mixed = [*lines[::step], *(lines[1::step] if step > 1 else ())]
    verdict = unnamed(tmp_path, {"job.log": "\n".join(mixed) + "\n"})
    assert any(lead.startswith("stack and log of rank 3: its last line is job.log") for lead in verdict.leads) == expected
