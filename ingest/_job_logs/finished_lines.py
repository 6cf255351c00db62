"""Lines by which a trainer says that it has trained to its end.

Upstream: `speed_metrics` of transformers/trainer_utils.py (the summary that `Trainer.train` prints last) and its closing words,
lightning/pytorch/loops/fit_loop.py, torchtitan/train.py, megatron/training/training.py
(`print_datetime('after training is done')`), python/ray/train (`Training completed after`), verl/trainer/ppo/ray_trainer.py
(`Final validation metrics`, which it prints after its last step alone), mlperf_logging/mllog/constants.py (`run_stop`).
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

KIND = "job_finished"
# Not "done", which programs say of an epoch before they validate.
PATTERNS = (
    pattern(KIND, r"\{'train_runtime': '?(?P<seconds>\d[\d.,]{0,15})'?, 'train_samples_per_second': ", "in {seconds} s"),
    pattern(KIND, r"`?Trainer\.fit`? stopped: `?(?P<what>max_(?:epochs|steps|time)=[^`]{1,40})` reached\.", "{what}"),
    pattern(KIND, r"\[after training is done\] datetime: ", ""),
    pattern(KIND, r":::MLLOG \{.{0,200}\"key\": \"run_stop\", .{0,200}\"status\": \"success\"", ""),
    pattern(KIND, r"[\"']Final validation metrics: (?:\{|None\b)", ""),
    pattern(
        KIND,
        r"(?<![\w\"'/] )(?<![\w\"'/])Training (?:is )?(?:completed|finished|complete)(?:$|[.!]| in \d| after \d)",
        "",
        ("Training c", "Training f", "Training is "),
    ),
)
# Lines of many steps begin with "Training".
WORDS = (
    *("'train_runtime'", '"run_stop"', "Trainer.fit", "after training is done", "Final validation metrics: "),
    *("Training complete", "Training finished", "Training is complete", "Training is finished"),
)
