"""A watch beside a real job collects by itself once the job hangs, and the bundle is enough for a verdict."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

from tests.live import inputs
from tests.live.commands import diagnose
from tests.live.harness import Job, launch

pytestmark = [pytest.mark.live, pytest.mark.alone]


@contextmanager
def watched(job: Job, into: Path) -> Iterator[Iterator[dict[str, Any]]]:
    """Events of a watch with short times, until the block ends."""
    options = ["--interval=0.5", "--stuck-after=4", "--most=1", f"--job=127.0.0.1:{job.port}", f"--into={into}"]
    command = [sys.executable, "-m", "forensics", "watch", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield map(json.loads, process.stdout)
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_a_watch_collects_once_the_job_hangs(tmp_path: Path) -> None:
    """Rank 0 opens a snapshot that nobody reads, and the others wait for it in a barrier."""
    arguments = ["--output", str(tmp_path), "--save-every", "100"]
    with launch("train_vit.py", arguments, world=2) as job, watched(job, tmp_path) as events:
        moving = (event for event in events if event["event"] == "reading" and event["sampled"][0]["completed"])
        for _ in range(6):
            assert next(moving)["living"] == 2
        inputs.blocked_file(tmp_path / f"model-{(job.lines(0) // 100 + 3) * 100:06d}.pt")
        before_bundle = takewhile(lambda event: event["event"] != "bundle", events)
        (alarm,) = (event for event in before_bundle if event["event"] == "alarm")
    assert alarm["kind"] == "standstill"
    (bundle,) = tmp_path.glob("forensics-*.tar")
    verdict = diagnose(bundle)
    assert verdict["outcome"] == "hang" and verdict["suspects"][0]["ranks"] == [0], verdict["summary"]
