"""Times of stages that every rank prints: who is slow, who only waits, and where nobody may be named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from forensics.model import Cause, Outcome, StageName, Verdict
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

Times = Callable[[int, int], dict[str, float]]
"""Seconds by name, of a rank in a step."""


def lines(times: Times, ranks: int = 4, steps: int = 12, form: str = "[rank {rank}] step {step} {pairs}") -> str:
    said = []
    for step in range(100, 100 + steps):
        for rank in sorted(range(ranks), key=lambda rank: (rank * 7 + step) % ranks):
            pairs = " ".join(f"{name}={value:.3f}s" for name, value in times(rank, step).items())
            said.append(form.format(rank=rank, step=step, pairs=pairs))
    return "\n".join([*said, ""])


def usual(rank: int, step: int) -> dict[str, float]:
    return {"data": 0.03 + 0.01 * ((rank + step) % 3), "fwd": 0.4, "bwd": 0.8, "allreduce_wait": 0.1, "opt": 0.05}


def slow(stage: str, by: float = 2.0, of: int = 2) -> Times:
    def times(rank: int, step: int) -> dict[str, float]:
        own = usual(rank, step)
        late = rank == of
        return own | ({stage: own[stage] + by} if late else {"allreduce_wait": own["allreduce_wait"] + by})

    return times


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "train.log").write_text(text)
    return verdict_of(tmp_path)


@pytest.mark.parametrize(
    "form", ["[rank {rank}] step {step} {pairs}", "[rank{rank}]: iter {step}: {pairs}", "{pairs} step {step} rank {rank}"]
)
def test_the_rank_that_loads_while_the_others_wait(tmp_path: Path, form: str) -> None:
    verdict = judged(tmp_path, lines(slow("data"), form=form))
    assert (verdict.outcome, named(verdict)) == (Outcome.SLOWDOWN, {2})
    assert (verdict.suspects[0].stage.name, verdict.suspects[0].cause) == (StageName.DATA, Cause.DATALOADER_STALL)


def test_the_rank_that_computes_longer(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lines(slow("fwd", of=1)))
    assert (named(verdict), verdict.suspects[0].stage.name) == ({1}, StageName.FORWARD)


def test_files_of_the_ranks_are_compared(tmp_path: Path) -> None:
    for rank in range(3):
        pairs = [" ".join(f"{name}={value:.3f}s" for name, value in slow("data")(rank, step).items()) for step in range(12)]
        text = "".join(f"step {step} {said}\n" for step, said in enumerate(pairs))
        (tmp_path / f"rank_{rank}.log").write_text(text)
    assert named(verdict_of(tmp_path)) == {2}


def test_the_rest_of_a_whole_step_is_waiting(tmp_path: Path) -> None:
    said = [
        f"[rank{rank}]: Epoch: [0][ {step:3}/500]\tTime  4.10 ( 4.02)\tData  {3.2 if rank == 3 else 0.01:.3f} ( 0.2)\tLoss 6.9"
        for step in range(10)
        for rank in range(4)
    ]
    assert named(judged(tmp_path, "\n".join(said))) == {3}


def in_backward(rank: int, step: int) -> dict[str, float]:
    """Rank 2 is longer in the forward pass, and the others wait for it where gradients are reduced."""
    return {"data": 0.03, "fwd": 1.1 if rank == 2 else 0.4, "bwd": 0.8 if rank == 2 else 1.5, "opt": 0.05}


def filling(rank: int, step: int) -> dict[str, float]:
    """Stages of a pipeline: the later, the longer it waits in its first forward pass."""
    return {"data": 0.03, "fwd": 0.4 + 0.35 * rank, "bwd": 1.85 - 0.35 * rank, "opt": 0.05}


def shorter(rank: int, step: int) -> dict[str, float]:
    """Rank 2 has less to compute, and waits for the others in its backward pass."""
    return {"data": 0.03, "fwd": 0.4 if rank == 2 else 1.1, "bwd": 1.5 if rank == 2 else 0.8, "opt": 0.05}


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("times", "ranks", "right"),
    [(in_backward, 4, {2}), (in_backward, 3, set()), (filling, 4, set()), (shorter, 4, set())],
    ids=["late in forward", "three ranks", "a pipeline that fills", "one with less to do"],
)
def test_who_is_awaited_in_the_backward_pass(tmp_path: Path, times: Times, ranks: int, right: set[int], whole: bool) -> None:
    def stated(rank: int, step: int) -> dict[str, float]:
        own = times(rank, step)
        return own | ({"step_time": sum(own.values()) + 0.01} if whole else {})

    assert named(judged(tmp_path, lines(stated, ranks=ranks))) == right


@pytest.mark.parametrize("late", [5, None])
@pytest.mark.parametrize(
    "heading",
    [
        "Schritt;Rang;Daten_s;Rechnen_s;Warten_s",
        "Zeitstempel;Schritt;Rang;Datenzeit (s);Rechenzeit (s);Wartezeit (s)",
        "étape;rang;données (s);calcul (s);attente (s)",
        "步骤;卡号;数据加载耗时（秒）;前向计算耗时（秒）;通信等待（秒）",
        "步数,rank,数据耗时/秒,前向耗时/秒,等待耗时/秒",
        "step;rank;data_s;fwd_s;wait_s",
    ],
)
def test_a_table_with_columns_in_other_languages(tmp_path: Path, heading: str, late: int | None) -> None:
    rows = []
    for step in range(12):
        for rank in range(6):
            times = (1.9, 0.61, 0.05) if rank == late else (0.031, 0.612, 1.92 if late else 0.06)
            cells = [str(step), str(rank), *(f"{time + 0.002 * ((rank + step) % 3):.3f}" for time in times)]
            stamped = ["2026-12-01 03:00:00", *cells] if heading.startswith("Zeit") else cells
            rows.append(",".join(stamped) if "," in heading else ";".join(stamped).replace(".", ","))
    (tmp_path / "zeiten.csv").write_text("\n".join([heading, *rows, ""]))
    assert named(verdict_of(tmp_path)) == ({late} if late else set())


def test_what_a_pass_took_without_the_wait_in_it(tmp_path: Path) -> None:
    """DeepSpeed's `bwd` holds the reduction of gradients, `bwd_inner` does not."""
    form = (
        "[INFO] [logging.py:107:log_dist] [Rank {}] time (ms) | fwd_microstep: {:.2f} | bwd_microstep: 401.{} | "
        "bwd_inner_microstep: {:.2f} | bwd_allreduce_microstep: {:.2f} | step_microstep: 9.1"
    )
    late, others = (171.0, 380.0, 3.0), (88.0, 197.0, 190.0)
    text = ""
    for step in range(12):
        for rank in range(4):
            forward, inner, wait = (each + 0.1 * ((rank + step) % 4) for each in (late if rank == 1 else others))
            text += form.format(rank, forward, step, inner, wait) + "\n"
    assert named(judged(tmp_path, text)) == {1}
    assert not named(judged(tmp_path, text.replace("171.", "88.").replace("380.", "197.")))


def test_a_table_of_ranks(tmp_path: Path) -> None:
    rows = [f"{rank:5}   {3.1 if rank == 4 else 0.02:.3f}   {0.2 if rank == 4 else 3.3:.3f}" for rank in range(8)]
    verdict = judged(tmp_path, "\n".join(["step 90 of train.log", " rank  data_time  wait_time", *rows, "done"]))
    assert named(verdict) == {4}


def test_lists_of_ranks_under_each_name() -> None:
    text = "times across ranks (ms):\n"
    for name, values in (("forward-compute", (120.5, 240.25)), ("grads-all-reduce", (130.0, 10.0))):
        text += "\n".join([f"  {name}:", *(f"     rank {rank:2}: {value:.2f}" for rank, value in enumerate(values)), ""])
    rows = read(text.encode(), "train.log").rows("log_stage_times")
    assert [(row["rank"], row["kind"], row["ms"]) for row in rows] == [
        (0, "forward", 120.5), (0, "wait", 130.0), (1, "forward", 240.25), (1, "wait", 10.0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "times",
    [
        pytest.param(usual, id="a sound job"),
        pytest.param(lambda rank, step: slow("data", of=step % 4)(rank, step), id="ranks that take turns"),
        pytest.param(slow("data", by=0.1), id="too little to matter for a step"),
        pytest.param(
            lambda rank, step: usual(rank, step) | {"bwd": 0.8 + 2 * (rank == 2)}, id="longer, and nobody waits for it"
        ),
        pytest.param(
            lambda rank, step: {"fwd": 0.4, "bwd": 2.8 if rank == 2 else 0.8}, id="waiting may hide in the backward pass"
        ),
        pytest.param(lambda rank, step: usual(rank, step) | {"data": 2.0 if rank in (1, 2) else 0.1}, id="two alike"),
        pytest.param(
            lambda rank, step: usual(rank, step) | {"data": 2.0 if rank == 2 and step < 105 else 0.1}, id="some steps"
        ),
        pytest.param(lambda rank, step: slow("fwd")(rank, step) | {"recv": 0.3}, id="a longer stage of a pipeline"),
        pytest.param(lambda rank, step: slow("allreduce_wait")(rank, step), id="the one that waits"),
    ],
)
def test_who_is_not_named(tmp_path: Path, times: Times) -> None:
    assert not judged(tmp_path, lines(times)).suspects


@pytest.mark.parametrize(
    "line",
    [
        "[rank {rank}] step {step} loss 2.{rank}1 step_time 4.81s",
        "[rank {rank}] step {step} data 1.2 fwd 9.{rank}",
        "[rank {rank}] step {step} forward_loss: {rank}.5 backward_norm: 2.5 time: 1.0",
        "[rank {rank}] data=/mnt/a fwd=3 bwd=4 time 2s",
        "[rank {rank}]: in forward 12.0 {step}",
    ],
)
def test_what_is_no_time_of_a_stage(line: str) -> None:
    text = "\n".join(line.format(rank=rank, step=step) for step in range(9) for rank in range(2))
    assert not read(text.encode(), "train.log").rows("log_stage_times")


def test_a_hang_is_not_blamed_on_the_slow_rank(tmp_path: Path) -> None:
    gave_up = "".join(
        f"[rank{rank}]:[E ProcessGroupNCCL.cpp:828] [Rank {rank}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600007 milliseconds before timing out.\n"
        for rank in (0, 1, 2)
    )
    verdict = judged(tmp_path, lines(slow("data", of=1)) + gave_up)
    assert not {1} & named(verdict)


def metrics(rank: int, step: int) -> dict[str, float]:
    own = 0.613 if rank == 2 else 0.39
    return {"compute": own, "wait_allreduce": 0.625 - own, "loader": 0.002 + 0.001 * (step % 3)}


@pytest.mark.parametrize(("shuffle", "expected"), [(False, {2}), (True, set())])
def test_compute_of_both_passes_beside_the_wait(tmp_path: Path, shuffle: bool, expected: set[int]) -> None:
    """A file of each rank; where all ranks are slow in turn nobody is named."""
    for rank in range(4):
        steps = (metrics((rank + step * shuffle) % 4, step) for step in range(12))
        text = "".join(
            f"2025-06-19 13:10:{n:02} step={100 + n} "
            + " ".join(f"{name}_ms={1000 * ms:.1f}" for name, ms in step.items())
            + "\n"
            for n, step in enumerate(steps)
        )
        (tmp_path / f"rank{rank}.log").write_text(text)
    verdict = verdict_of(tmp_path)
    assert named(verdict) == expected


def test_a_short_rank_and_no_unit_where_both_passes_are_stated(tmp_path: Path) -> None:
    text = "".join(
        f"15:00:{step:02} r{rank} it{200 + step} data {2.8 if rank == 3 else 0.01:.3f} fwd 0.401 bwd 0.711 sync "
        f"{0.04 if rank == 3 else 2.83:.3f}\n"
        for step in range(12)
        for rank in range(4)
    )
    verdict = judged(tmp_path, text)
    assert named(verdict) == {3} and verdict.suspects[0].cause is Cause.DATALOADER_STALL


def table(times: Times, separator: str, ranks: int = 4, steps: int = 12) -> str:
    """What somebody exported of each step and rank, in ms, with a column of something else."""
    rows = [separator.join(["step", "rank", "data_ms", "fwd_bwd_ms", "note", "comm_wait_ms"])]
    for step in range(900, 900 + steps):
        for rank in range(ranks):
            own = times(rank, step)
            cells = (step, rank, own["data"] * 1e3, own["bwd"] * 1e3, "ok", own["allreduce_wait"] * 1e3)
            rows.append(separator.join(f"{cell:.0f}" if isinstance(cell, float) else str(cell) for cell in cells))
    return "\n".join([*rows, ""])


@pytest.mark.parametrize("separator", [",", "\t", ";"])
@pytest.mark.parametrize("name", ["steps.csv", "breakdown.txt"])
def test_a_table_of_steps_and_ranks(name: str, separator: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(table(slow("bwd"), separator))
    verdict = verdict_of(tmp_path)
    assert (verdict.outcome, named(verdict)) == (Outcome.SLOWDOWN, {2})
    assert verdict.suspects[0].evidence[0].source == f"{name}#line=4"


def test_a_date_and_a_host_may_stand_in_front_of_the_rank(tmp_path: Path) -> None:
    header, *rows = table(slow("bwd"), ",").splitlines()
    lines = [f"timestamp,host,{header}", *(f"{1764000000 + n},gpu-1,{row}" for n, row in enumerate(rows))]
    (tmp_path / "steps.csv").write_text("\n".join([*lines, ""]))
    assert named(verdict_of(tmp_path)) == {2}


def test_a_table_in_which_nobody_is_late(tmp_path: Path) -> None:
    (tmp_path / "steps.csv").write_text(table(usual, ","))
    assert named(verdict_of(tmp_path)) == set()


@pytest.mark.parametrize(
    "header", ["step,rank,loss,lr,grad_norm", "name,rank,data_ms,fwd_ms", "step,local_rank,data_ms,fwd_ms", "step,rank,data"]
)
def test_a_table_of_something_else(header: str) -> None:
    text = "\n".join([header, *(f"{step},{rank},1,{9 if rank else 1},3" for step in range(9) for rank in range(4)), ""])
    assert read(text.encode(), "job.log").rows("log_stage_times") == []


def test_rows_that_are_cut_or_broken_end_the_table_there() -> None:
    text = "step,rank,data_ms,fwd_ms\n1,0,5,40\n1,1,5,x\n1,2,5,41\n"
    rows = read(text.encode(), "job.log").rows("log_stage_times")
    assert {row["rank"] for row in rows} == {0}


def files(folder: Path, times: Times, steps: int = 40, name: str = "rank{:02d}.csv", separator: str = ",") -> None:
    """A table without a column for the rank, one file each."""
    names = ("data", "fwd", "bwd", "allreduce_wait", "opt")
    for rank in range(4):
        rows = [separator.join(("iter", *(f"{each}_ms" for each in names)))]
        for step in range(steps):
            own = times(rank, step)
            rows.append(separator.join((str(step), *(f"{1000 * own[each]:.1f}" for each in names))))
        (folder / name.format(rank)).write_text("\n".join([*rows, ""]))


def begins(times: Times, at: int, to: int = 1000) -> Times:
    return lambda rank, step: times(rank, step) if at <= step < to else usual(rank, step)


@pytest.mark.parametrize(("name", "separator"), [("rank{:02d}.csv", ","), ("rank_{}/times.tsv", "\t")])
def test_tables_of_one_rank_each(tmp_path: Path, name: str, separator: str) -> None:
    for rank in range(4):
        (tmp_path / name.format(rank)).parent.mkdir(exist_ok=True)
    files(tmp_path, slow("bwd", of=3), name=name, separator=separator)
    verdict = verdict_of(tmp_path)
    assert (named(verdict), verdict.outcome) == ({3}, Outcome.SLOWDOWN)


def test_a_rank_that_became_slow_and_stays_so(tmp_path: Path) -> None:
    files(tmp_path, begins(slow("bwd", of=1), 60), steps=100)
    verdict = verdict_of(tmp_path)
    assert named(verdict) == {1}
    assert "40 of the last 40 steps" in verdict.suspects[0].evidence[0].statement


@pytest.mark.parametrize(
    "times",
    [begins(slow("bwd", of=1), 60, 95), begins(slow("bwd", of=1), 85), begins(slow("bwd", 0.1, of=1), 60), usual],
    ids=["it was over", "too short", "too little", "nobody"],
)
def test_ranks_that_were_slow_for_a_while(tmp_path: Path, times: Times) -> None:
    files(tmp_path, times, steps=100)
    assert not named(verdict_of(tmp_path))


def test_tables_of_which_nothing_tells_the_rank(tmp_path: Path) -> None:
    files(tmp_path, slow("bwd", of=3), name="run-{}x.csv")
    assert not named(verdict_of(tmp_path))


@pytest.mark.parametrize("header", ["step,data,forward,backward", "step data_ms fwd_ms bwd_ms", "step,loss_ms,lr_ms,grad_ms"])
def test_headers_without_a_rank_that_are_no_table_of_times(header: str) -> None:
    rows = "".join(f"{step},1.0,2.0,3.0\n" for step in range(9))
    assert not read(f"{header}\n{rows}".encode(), "out.log").rows("log_stage_times")


def together(late: set[int], waits: float = 0.5) -> Times:
    def times(rank: int, step: int) -> dict[str, float]:
        own = usual(rank, step)
        return own | ({"fwd": own["fwd"] + 0.5} if rank in late else {"allreduce_wait": own["allreduce_wait"] + waits})

    return times


def test_ranks_in_a_row_that_compute_longer_together(tmp_path: Path) -> None:
    verdict = judged(tmp_path, lines(together({8, 9, 10}), ranks=16))
    assert (verdict.outcome, named(verdict), verdict.suspects[0].stage.name) == (
        Outcome.SLOWDOWN,
        {8, 9, 10},
        StageName.FORWARD,
    )


@pytest.mark.parametrize(
    ("times", "more"),
    [
        (together({3, 9}), ""),
        (together({8, 9, 10, 11, 12}), ""),
        (together({8, 9, 10}, waits=0.0), ""),
        (together({12, 13, 14, 15}), "pipeline_model_parallel_size ........................... 4\n"),
    ],
    ids=["apart", "a third of all", "nobody waits", "a stage of a pipeline"],
)
def test_ranks_that_may_do_other_work(tmp_path: Path, times: Times, more: str) -> None:
    options = "------------------------ arguments ------------------------\n" + more if more else ""
    assert named(judged(tmp_path, options + lines(times, ranks=16))) == set()


def test_whole_numbers_count_where_their_name_states_the_unit(tmp_path: Path) -> None:
    record = '{{"step": {}, "rank": {}, "fwd_ms": {}, "bwd_ms": 420, "allreduce_ms": {}}}\n'
    said = [
        record.format(step, rank, 305 if rank == 2 else 210, 12 if rank == 2 else 107)
        for step in range(12)
        for rank in range(4)
    ]
    (tmp_path / "parts.jsonl").write_text("".join(said))
    assert "rank 2: its forward takes 305 ms a step" in verdict_of(tmp_path).would_change[0]
    assert not read(("begin\n" + "".join(said).replace("_ms", "")).encode(), "job.log").rows("log_stage_times")
