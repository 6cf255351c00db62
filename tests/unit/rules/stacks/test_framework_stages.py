"""Stages of call paths through training frameworks, as their releases write them (innermost first)."""

from __future__ import annotations

import pytest

from forensics.model import StageName
from forensics.rules.reductions.stacks.activity import activity
from tests.unit.rules.stacks.test_activity import SITE, TRAIN, path

ALL_REDUCE = f"all_reduce@{SITE}torch/distributed/distributed_c10d.py"
BARRIER = f"barrier@{SITE}torch/distributed/distributed_c10d.py"
GATHER = f"all_gather@{SITE}torch/distributed/distributed_c10d.py"
BACKWARD = (
    f"_engine_run_backward@{SITE}torch/autograd/graph.py",
    f"backward@{SITE}torch/autograd/__init__.py",
    f"Tensor.backward@{SITE}torch/_tensor.py",
)
HF = f"{SITE}transformers/trainer.py"
LIGHTNING = f"{SITE}lightning/pytorch/"
HOOKS = f"_call_callback_hooks@{LIGHTNING}trainer/call.py"
FIT = (
    f"_FitLoop.run@{LIGHTNING}loops/fit_loop.py",
    f"_SubprocessScriptLauncher.launch@{LIGHTNING}strategies/launchers/subprocess_script.py",
    f"_call_and_handle_interrupt@{LIGHTNING}trainer/call.py",
    f"Trainer.fit@{LIGHTNING}trainer/trainer.py",
)


@pytest.mark.parametrize(
    ("frames", "stage"),
    [
        ((ALL_REDUCE, f"_TrainingEpochLoop.advance@{LIGHTNING}loops/training_epoch_loop.py", *FIT), StageName.UNKNOWN),
        ((BARRIER, "Best.on_train_batch_end@/job/fit.py", HOOKS, *FIT), StageName.CALLBACKS),
        (
            (
                f"DDPStrategy.barrier@{LIGHTNING}strategies/ddp.py",
                f"Trainer.save_checkpoint@{LIGHTNING}trainer/trainer.py",
                "Best.on_train_batch_end@/job/fit.py",
                HOOKS,
                *FIT,
            ),
            StageName.CHECKPOINT,
        ),
        (
            (
                *BACKWARD,
                f"Strategy.backward@{LIGHTNING}strategies/strategy.py",
                f"Closure.closure@{LIGHTNING}loops/optimization/automatic.py",
                f"AdamW.step@{SITE}torch/optim/adamw.py",
                f"DDPStrategy.optimizer_step@{LIGHTNING}strategies/ddp.py",
                *FIT,
            ),
            StageName.BACKWARD,
        ),
        ((*BACKWARD, f"AdamW.step@{SITE}torch/optim/adamw.py"), StageName.OPTIMIZER),
        ((f"_PrefetchDataFetcher.__next__@{LIGHTNING}loops/fetchers.py", *FIT), StageName.DATA),
        ((BARRIER, f"Fabric.save@{SITE}lightning/fabric/fabric.py"), StageName.CHECKPOINT),
        ((GATHER, f"Accelerator.gather@{SITE}accelerate/accelerator.py", f"Trainer.get_batch_samples@{HF}"), StageName.DATA),
        ((GATHER, f"nested_gather@{HF}", f"Trainer._maybe_log_save_evaluate@{HF}"), StageName.CALLBACKS),
        ((GATHER, f"Trainer.evaluate@{HF}", f"Trainer._maybe_log_save_evaluate@{HF}"), StageName.EVAL),
        ((f"_save@{HF}", f"Trainer._save_checkpoint@{HF}", f"Trainer._maybe_log_save_evaluate@{HF}"), StageName.CHECKPOINT),
        ((f"build_shm_op@{SITE}deepspeed/comm/torch.py", f"init_distributed@{SITE}deepspeed/comm/comm.py"), StageName.INIT),
        ((f"PipelineEngine._exec_optimizer_step@{SITE}deepspeed/runtime/pipe/engine.py",), StageName.OPTIMIZER),
        ((ALL_REDUCE, f"Accelerator.prepare@{SITE}accelerate/accelerator.py"), StageName.INIT),
        ((BARRIER, f"PartialState.wait_for_everyone@{SITE}accelerate/state.py"), StageName.UNKNOWN),
        ((ALL_REDUCE, "Model.on_train_epoch_end@/job/fit.py", *FIT), StageName.CALLBACKS),
        ((ALL_REDUCE, "Model.on_validation_epoch_end@/job/fit.py", *FIT), StageName.EVAL),
        # It generates there, by a server or by itself, where the trainer that it is made of fetches a batch.
        (("generate@trl/extras/vllm_client.py", "_prepare_inputs@trl/trainer/grpo_trainer.py"), StageName.UNKNOWN),
        (("_prepare_inputs@/job/grpo_trainer.py",), StageName.DATA),
    ],
)  # fmt: skip
def test_the_stage_is_that_of_the_part_of_the_framework(frames: tuple[str, ...], stage: StageName) -> None:
    assert activity(path(*frames, *TRAIN)).stage is stage
