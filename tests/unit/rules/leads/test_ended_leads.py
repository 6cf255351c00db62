"""What is said of jobs that ended, were interrupted or went on, where nobody can be named."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.model import Outcome
from tests.recordings.verdicts import unnamed, verdict_of

INTERRUPTED = (
    '[rank{0}]: Traceback (most recent call last):\n[rank{0}]:   File "t.py", line 9, in <module>\n'
    "[rank{0}]: KeyboardInterrupt\n"
)
FAILED = "step 4 loss 2.1\nsrun: error: Node failure on n0219\nsrun: error: n0214: tasks 0-7: Killed\n"
CANCELLED = "step 4\nslurmstepd: error: *** JOB 8 ON n0214 CANCELLED AT 2026-02-11T03:12:44 DUE TO NODE FAILURE, SEE LOG ***\n"
DIGEST = (
    "Megascale hang detected: Timed out waiting for 4 graphs to complete at launch_id 13650. Already completed: 100.\n"
    "E0618 04:11:09.1 1201 x.cc:512] Megascale detects a hang that is likely caused by bad TPU chips on the following hosts.\n"
    "    Potential culprit workers: {0}\n"
)


@pytest.mark.parametrize("text", [FAILED, CANCELLED])
def test_a_lost_node_ends_a_job(tmp_path: Path, text: str) -> None:
    verdict = unnamed(tmp_path, {"job.log": text})
    assert verdict.outcome is Outcome.FAILSTOP
    assert "a node of the job was lost, says job.log#line=2" in verdict.summary


@pytest.mark.parametrize("text", [FAILED, CANCELLED])
def test_a_job_that_was_started_again_has_not_ended(tmp_path: Path, text: str) -> None:
    verdict = unnamed(tmp_path, {"job.log": text + "".join(f"step {n} loss 1.9\n" for n in range(4, 30))})
    assert verdict.outcome is not Outcome.FAILSTOP
    assert not [each for each in verdict.would_change if each.startswith("console")]


def test_a_hang_of_megascale_below_which_steps_go_on_is_over(tmp_path: Path) -> None:
    steps = "".join(f"2026-06-18 05:{n}:01 completed step: {n}, seconds: 3.1, loss: 2.{n}\n" for n in range(10, 30))
    assert unnamed(tmp_path, {"a.log": DIGEST.format("ft/3:tpu-w7")}).outcome is Outcome.HANG
    assert unnamed(tmp_path, {"a.log": DIGEST.format("ft/3:tpu-w7") + steps}).outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize(("above", "is_said"), [("step 4 loss 2.1\n", True), ("[rank1]: OSError: lost\n", False)])
def test_a_job_that_somebody_interrupted_and_that_had_no_error(tmp_path: Path, above: str, is_said: bool) -> None:
    (tmp_path / "job.log").write_text(above + "".join(map(INTERRUPTED.format, range(2))))
    assert ("somebody interrupted the job" in verdict_of(tmp_path).summary) == is_said


RAISED = 'Traceback (most recent call last):\n  File "fit.py", line 5, in <module>\n    load_ops()\n{0}\n'
NO_LIBRARY = "ImportError: /cache/ops/shm.so: cannot open shared object file: No such file or directory"
LAUNCHED = "[2026-11-29 08:26:52,470] [ERROR] [launch.py:259:sigkill_handler] ['python', 'fit.py'] exits with return code = 1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (RAISED.format(NO_LIBRARY), f"the error {NO_LIBRARY} (job.log#line=4): no line"),
        (RAISED.format(NO_LIBRARY) * 2, "which stands there again: no line"),
        (RAISED.format(NO_LIBRARY) + RAISED.format("ValueError: no such option"), None),
        (RAISED.format("RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:43243"), None),
        (RAISED.format("RuntimeError: Horovod detected that one or more processes exited with non-zero status"), None),
    ],
)
def test_the_only_error_of_a_log_that_no_rank_is_known_of(text: str, said: str | None, tmp_path: Path) -> None:
    """Of two errors it is not known which was first, and the loss of a peer is not the error that ended the job."""
    (tmp_path / "job.log").write_text(text + LAUNCHED)
    verdict = verdict_of(tmp_path)
    assert not verdict.suspects
    first = verdict.would_change[0]
    assert said in first if said else "no line" not in first
