"""Lines of trainers: a job that became slower than it was, and pauses, warm-ups and loads that only look like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import named, pasted

START = datetime(2026, 3, 21, 2, 4, 11)
ONSET = [2.0] * 20 + [5.0] * 20


def titan(lengths: Sequence[float], every: int = 10, front: str = "[rank0]:[titan] ") -> str:
    """torchtitan: a line every so many steps, with the time in front."""
    lines, now = [], START
    for index, length in enumerate(lengths):
        now += timedelta(seconds=every * length)
        stamp = f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}"
        lines.append(f"{front}{stamp} - root - INFO - step: {every * (index + 1)}  loss: 7.1  tps: {8000 / length:,.0f}\n")
    return "".join(lines)


def megatron(lengths: Sequence[float], sizes: Sequence[int] = ()) -> str:
    """Megatron-LM states how long a step took."""
    return "".join(
        f" iteration {step:8}/   60000 | consumed samples: {512 * step:12} | elapsed time per iteration "
        f"(ms): {1000 * length:.1f} | global batch size: {sizes[step] if sizes else 512:5} | lm loss: 2.8E+00 |\n"
        for step, length in enumerate(lengths)
    )


def nano(lengths: Sequence[float]) -> str:
    return "".join(f"iter {step}: loss 5.4012, time {1000 * length:.2f}ms, mfu 41.20%\n" for step, length in enumerate(lengths))


def tqdm(lengths: Sequence[float]) -> str:
    """A bar of transformers, redrawn every ten steps."""
    elapsed, text = 0.0, ""
    for index, length in enumerate(lengths):
        elapsed += 10 * length
        text += f"\r  1%|#  | {10 * index + 10}/9000 [{elapsed // 60:02.0f}:{elapsed % 60:02.0f}<2:00:00,  2.01s/it]"
    return text + "\n"


def deepspeed(lengths: Sequence[float]) -> str:
    """The average over all steps so far follows only slowly."""
    lines, now = [], START
    for index, length in enumerate(lengths):
        now += timedelta(seconds=10 * length)
        stamp = f"[{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03}]"
        lines.append(f"{stamp} [INFO] [logging.py:96:log_dist] [Rank 0] step={10 * index + 10}, skipped=0, lr=[1e-05]\n")
    return "".join(lines)


def reports(lengths: Sequence[float], dated: bool = True, begin: datetime = START) -> str:
    """transformers without bars: an epoch and no step; only what stands in front shows a time."""
    lines, now = [], begin
    for index, length in enumerate(lengths):
        now += timedelta(seconds=10 * length)
        front = f"{now:%Y-%m-%dT%H:%M:%S}.{now.microsecond:06}Z " if dated else ""
        said = f"'loss': 2.{index:03}, 'grad_norm': 1.2, 'learning_rate': 2e-05, 'epoch': {index // 20 * 0.01:.2f}"
        lines.append(f"{front}{{{said}}}\n")
    return "".join(lines)


def test_reports_without_a_step_are_counted(tmp_path: Path) -> None:
    verdict = pasted(tmp_path, reports(ONSET))
    assert (named(verdict), verdict.outcome) == (set(), Outcome.SLOWDOWN)
    assert "50000 ms a report since report 21, 2.5 times the 20000 ms before" in verdict.summary


@pytest.mark.parametrize("form", [titan, megatron, nano, tqdm, deepspeed])
def test_a_whole_job_that_became_slower(tmp_path: Path, form: Callable[[Sequence[float]], str]) -> None:
    verdict = pasted(tmp_path, form(ONSET))
    assert (named(verdict), verdict.outcome) == (set(), Outcome.SLOWDOWN)
    assert "2.5 times the 2000 ms before" in verdict.summary


def test_the_step_since_which_it_is_slower(tmp_path: Path) -> None:
    assert "5000 ms a step since step 210" in pasted(tmp_path, titan(ONSET)).summary


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(titan([2.0] * 40), id="steady"),
        pytest.param(titan([9.0, 6.0, 4.0] + [2.0] * 30), id="warm-up"),
        pytest.param(titan([5.0] * 20 + [2.0] * 20), id="it became faster"),
        pytest.param(titan([2.0] * 9 + [9.0] + [2.0] * 9 + [9.0] + [2.0] * 9 + [9.0]), id="pauses for checkpoints"),
        pytest.param(titan([2.0, 2.0, 4.0, 3.0, 2.5] * 8), id="sequences of different length"),
        pytest.param(titan([2.0, 2.0, 2.0, 5.0, 5.0]), id="only the last steps"),
        pytest.param(titan([2.0] * 30 + [9.0, 9.0]), id="two long steps in the end"),
        pytest.param(megatron(ONSET, [256] * 20 + [640] * 20), id="larger batches"),
        pytest.param(tqdm(ONSET).replace("  1%|", "Tokenizing:  1%|"), id="a bar of something else"),
        pytest.param(reports(ONSET, dated=False), id="reports without times"),
        pytest.param(reports([2.0] * 40), id="steady reports"),
        pytest.param(reports(ONSET[:20]) + reports([5.0] * 3, begin=START + timedelta(hours=1)), id="reports of a restart"),
        pytest.param(nano([2.0] * 20) + nano([5.0] * 3), id="a restart of which little is seen"),
        pytest.param(
            titan(ONSET).replace("step:", "uploaded chunk").replace("loss", "size").replace("tps", "rate"), id="no steps"
        ),
    ],
)
def test_what_is_no_slowdown(tmp_path: Path, text: str) -> None:
    verdict = pasted(tmp_path, text)
    assert (named(verdict), verdict.outcome) == (set(), Outcome.INCONCLUSIVE)


def test_a_job_that_stood_still_in_the_end_is_a_hang(tmp_path: Path) -> None:
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=60) ran for 61 ms"
    verdict = pasted(tmp_path, titan(ONSET) + f"[rank1]:[E321 02:07:08.4 ProcessGroupNCCL.cpp:683] [Rank 1] {said}\n")
    assert verdict.outcome is Outcome.HANG


def test_times_since_the_start_are_no_lengths_of_steps(tmp_path: Path) -> None:
    """They only grow, as no length of a step does for long."""
    text = "".join(f"step {step} loss 2.3 time {0.5 * step + 0.1:.1f}s\n" for step in range(200))
    assert pasted(tmp_path, text).outcome is not Outcome.SLOWDOWN


def test_a_length_with_its_unit_in_the_job_s_own_words(tmp_path: Path) -> None:
    lengths = [0.05 + 0.001 * (step % 7) for step in range(40)] + [2.4 + 0.1 * (step % 5) for step in range(20)]
    text = "".join(f"[rank0] step {step} loss 2.3 time {length:.3f}s\n" for step, length in enumerate(lengths))
    verdict = pasted(tmp_path, text)
    assert verdict.outcome is Outcome.SLOWDOWN and not named(verdict)
