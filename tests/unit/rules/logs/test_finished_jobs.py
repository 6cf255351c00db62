"""Jobs whose trainer says that it is done, errors that such a job survived, and words of an end that prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted, verdict_of

HF = "{'train_runtime': 912.4, 'train_samples_per_second': 33.1, 'train_steps_per_second': 0.4, 'epoch': 2.0}\n"
ENDS = (
    HF,
    HF.replace("912.4", "'912.4'"),
    "`Trainer.fit` stopped: `max_epochs=3` reached.\n",
    "2026-05-02 10:00:00 - root - INFO - Training completed\n",
    "[after training is done] datetime: 2026-05-02 10:00:00 \n",
    "[INFO] Training finished in 3h 12m\n",
    "\"Final validation metrics: {'val-core/math/acc': 0.61}\"\n",
)
RAISED = """[rank2]: Traceback (most recent call last):
[rank2]:   File "/srv/fit/io.py", line 40, in fetch
[rank2]: {error}
"""
LOST = RAISED.format(error="OSError: [Errno 5] Input/output error")


WORKER = "RuntimeError: DataLoader worker (pid 881) is killed by signal: Bus error.\n"


def steps(first: int = 1, last: int = 30) -> str:
    return "".join(f"step {number}/30 loss 2.{number:02d}\n" for number in range(first, last + 1))


@pytest.mark.parametrize("end", ENDS)
def test_a_job_that_trained_to_its_end_is_sound(tmp_path: Path, end: str) -> None:
    verdict = pasted(tmp_path, steps() + end)
    assert (verdict.outcome, named(verdict)) == (Outcome.HEALTHY, set())
    assert "job.log#line=31" in verdict.summary


@pytest.mark.parametrize(
    "text",
    [steps(1, 12) + LOST + steps(13) + HF, LOST + steps() + HF, steps(1, 12) + WORKER + steps(12) + HF],
    ids=["amid", "before all steps", "a worker of a loader"],
)
def test_an_error_that_the_job_survived(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert (verdict.outcome, named(verdict)) == (Outcome.HEALTHY, set())


@pytest.mark.parametrize(
    "text",
    [
        steps(1, 12) + LOST + steps(13),
        steps(1, 12) + WORKER + steps(13),
        steps() + HF + LOST,
        steps(1, 12) + LOST + steps(1, 12) + HF,
        LOST + HF,
        steps(1, 12) + LOST + HF.replace("'train_samples_per_second': 33.1, ", ""),
    ],
    ids=["printed late, no end", "a worker, no end", "after the end", "of another run", "no steps", "no summary"],
)
def test_errors_that_ended_a_rank(tmp_path: Path, text: str) -> None:
    assert pasted(tmp_path, text).outcome is Outcome.FAILSTOP


TIMEOUT = (
    "[rank1]:[E502 10:00:00.1 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=88, OpType=BARRIER, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds\n"
)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (steps() + HF + TIMEOUT, Outcome.HANG),
        (steps() + HF + steps(1, 9), Outcome.INCONCLUSIVE),
        (steps() + "Training finished iteration 3 at 2026-05-02 10:00:00.\n", Outcome.INCONCLUSIVE),
        (steps() + 'print("Training completed")\n', Outcome.INCONCLUSIVE),
        (steps() + "waiting until Training is complete\n", Outcome.INCONCLUSIVE),
        (steps() + "[INFO] Training done, validating\n", Outcome.INCONCLUSIVE),
        (steps() + "{'train_runtime': 0.0}\n", Outcome.INCONCLUSIVE),
        (steps(), Outcome.INCONCLUSIVE),
    ],
    ids=["hung behind it", "trains again", "an iteration", "a program", "a wish", "an epoch", "no figures", "nothing"],
)
def test_words_of_an_end_that_prove_nothing(tmp_path: Path, text: str, outcome: Outcome) -> None:
    assert pasted(tmp_path, text).outcome is outcome


def test_one_of_two_logs_goes_on(tmp_path: Path) -> None:
    (tmp_path / "node-a.log").write_text(steps() + HF)
    (tmp_path / "node-b.log").write_text(steps(1, 17))
    assert verdict_of(tmp_path).outcome is Outcome.INCONCLUSIVE


def test_a_log_of_another_run_that_failed_is_no_sound_job(tmp_path: Path) -> None:
    (tmp_path / "result_1.txt").write_text(steps() + HF)
    (tmp_path / "result_2.txt").write_text("loading\n" + LOST.replace("[rank2]: ", ""))
    verdict = verdict_of(tmp_path)
    assert (verdict.outcome, named(verdict)) == (Outcome.INCONCLUSIVE, set())
    assert any("result_2.txt" in lead for lead in verdict.leads)
