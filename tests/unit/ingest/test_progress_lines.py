"""Lines of trainers that count steps, in the forms that each prints, and lines that only look like it."""

from __future__ import annotations

import pytest

from tests.unit.ingest.reading import read

FORMS = {
    "tqdm of transformers": "\r  0%|          | {}0/5000 [00:3{}<3:55:00,  2.83s/it]",
    "Lightning": "\rEpoch 0:   1%|1| {}0/1000 [00:2{}<12:21,  1.31it/s, v_num=3, loss=2.1]",
    "Lightning's rich bar": "Epoch 0/9 ━━━━━╺ {}0/938 0:00:0{} • 0:01:32 9.98it/s v_num: 0",
    "NeMo's bar": "Epoch 0: :   0%|   | {}0/100000 [00:5{}<..., reduced_train_loss=10.9, train_step_timing in s=5.3]",
    "NeMo's lines": "Training epoch 0, iteration {0}0/999 | lr: 1e-05 | global_step: {0}0 | train_step_timing in s: 7.4",
    "Composer": "[batch={0}0/1000]:\n\t Train time/epoch: 0\n\t Train loss/train/total: 3.1",
    "Composer's bar": "\rtrain          Epoch   0:   2%|1| {}0/1000 [00:1{}<08:20,  1.92ba/s, loss/train/total=3.1]",
    "accelerate": "03/14/2026 09:2{0}:11 - INFO - __main__ - Steps: {0}0",
    "torchtitan": "[rank0]:2026-03-14 09:26:5{0},123 - root - INFO - step: {0}0  loss:  8.1  grad_norm: 1.2  tps: 8,123",
    "torchtitan's first": "[titan] 2026-03-14 09:26:5{0},123 - root - INFO - \x1b[31mstep:  {0}  \x1b[32mloss:  8.1\x1b[39m",
    "Megatron-LM": " iteration       {0}0/   50000 | consumed samples:  80 | elapsed time per iteration (ms): 1234.5 |",
    "DeepSpeed": "[2026-03-14 09:26:5{0},123] [INFO] [logging.py:96:log_dist] [Rank 0] step={0}0, skipped=0, lr=[1e-05]",
    "nanoGPT": "iter {}0: loss 10.9, time 310.1ms, mfu 33%",
    "build-nanogpt": "step    {0}0 | loss: 6.129914 | lr 6.0000e-04 | norm: 0.9 | dt: 339.53ms | tok/sec: 154415.10",
    "own words": "[rank0] step {0}0 loss 2.3 time 0.046s",
    "own words in ms": "rank=0 step={0}0 loss=4.0 step_time=165.8ms",
    "a column": "Rank 0 | step {0}0 | loss 0.9 |   880.1 ms",
    "a short word": "it {}0 | loss 2.31 | 0.41 s",
    "a short word in prose": "rank 0 epoch 1 it {}0 loss 2.31",
    "verl": "(TaskRunner pid=77) step:{}0 - actor/pg_loss:0.1 - timing_s/step:81.1",
}


@pytest.mark.parametrize("name", FORMS)
def test_steps_of_trainers(name: str) -> None:
    form = FORMS[name] + ("\n" if not FORMS[name].startswith("\r") else "")
    text = "starting\n" * 3 + "".join(form.format(number, number) for number in range(1, 6)) + "\n"
    rows = read(text.encode(), "job.log").rows("log_progress")
    unit = 1 if name == "torchtitan's first" else 10
    assert [row["step"] for row in rows] == [unit * number for number in range(1, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("lines", [60, 60_000])
def test_the_last_of_many_ranks_may_be_the_one_that_counts(lines: int) -> None:
    """Megatron-LM prints on the last rank; of long files of so many ranks a part is read."""
    line = " iteration {0:8}/ 90000 | consumed samples: {0:8} | elapsed time per iteration (ms): 1234.5 |\n"
    text = "".join(line.format(number) for number in range(1, lines + 1))
    steps = [row["step"] for row in read(text.encode(), "rank_1023.log").rows("log_progress")]
    assert steps[0] == 1 and len(steps) >= 10 and steps == sorted(steps)


def test_reports_that_name_an_epoch_and_no_step_are_counted_in_each_run() -> None:
    """transformers writes numbers in quotes since version 5."""
    report = "{{'loss': '2.1', 'grad_norm': '1.2', 'learning_rate': '1e-05', 'epoch': '{}'}}\n"
    evaluation = "{'eval_loss': 2.2, 'eval_runtime': 3.1, 'epoch': 0.02}\n"
    text = "".join(report.format(epoch) for epoch in (0.01, 0.01, 0.02)) + evaluation + report.format(0.01) * 2
    rows = read(text.encode(), "job.log").rows("log_progress")
    assert [(row["part"], row["step"]) for row in rows] == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("NeMo's lines", 7.4),
        ("verl", 81.1),
        ("Megatron-LM", 1.2345),
        ("Lightning", None),
        ("build-nanogpt", 0.33953),
        ("own words", 0.046),
        ("a column", 0.8801),
        ("own words in ms", 0.1658),
    ],
)
def test_how_long_a_step_took_where_the_line_states_it(name: str, seconds: float | None) -> None:
    text = "".join(FORMS[name].format(number, number) + "\n" for number in range(1, 4))
    assert {row["stated_s"] for row in read(text.encode(), "job.log").rows("log_progress")} == {seconds}


def test_what_a_rich_bar_says_has_elapsed() -> None:
    text = "".join(FORMS["Lightning's rich bar"].format(number, number) + "\n" for number in range(1, 4))
    rows = read(text.encode(), "job.log").rows("log_progress")
    assert [(row["clock"], row["at_s"], row["total"]) for row in rows] == [("bar", float(at), 938) for at in (1, 2, 3)]


@pytest.mark.parametrize(
    "line",
    [
        "   ━━━━━━━━━━ 5.{}/9.2 MB 10.1 MB/s eta 0:00:0{}",
        "see the notes of 0:00:0{} • 0:01:32 for more",
        "retrying 1{}/938 0:00:0{} • 0:01:32",
        "{{'eval': 'https://a.b/{}'}}",
    ],
)
def test_what_counts_no_work(line: str) -> None:
    text = "[rank0]: x\n" + "".join(line.format(number, number) + "\n" for number in range(1, 6))
    assert read(text.encode(), "job.log").rows("log_progress") == []
