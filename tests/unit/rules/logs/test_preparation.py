"""A rank that prepares its data while the others wait for it: in processes of its own, or before its first call."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forensics.model import Confidence, Outcome, Verdict
from tests.recordings.collection import Collection, loose, pid_of, process_sample, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import JOB, Place
from tests.recordings.verdicts import leaders, named, verdict_of

THREADING, POOL = "/usr/lib/python3.11/threading.py", "/usr/lib/python3.11/multiprocessing/pool.py"
MAPS: Place = (("wait", THREADING, 327), ("next", POOL, 861), ("prepare", JOB, 19), ("main", JOB, 31), ("<module>", JOB, 97))
BEHIND, WORKER = 0, 9001


def prepared(folder: Path, busy: float, silence_s: int, *, state: str = "S") -> Verdict:
    """Three ranks wait for one whose main thread waits for a pool; a process of it has `busy` of a CPU."""
    job = Job(4)
    job.steps(12)
    job.hang({BEHIND}, kind="barrier")
    found: Collection = whole(job, {BEHIND: MAPS}, silence_ns=silence_s * SECOND)
    for number in range(3):
        look = process_sample(BEHIND, found.at_ns + 2 * number * SECOND, wchan="futex_do_wait")
        document: dict[str, Any] = json.loads(look)
        thread = document["processes"][0]["threads"][0] | {
            "tid": WORKER,
            "state": state,
            "utime_ticks": int(200 * number * busy),
        }
        worker = {"pid": WORKER, "ppid": pid_of(BEHIND), "is_child": True, "threads": [thread], "errors": []}
        document["processes"].append(worker)
        found.members[f"ranks/{BEHIND}/proc/{number}.json"] = json.dumps(document).encode()
    return verdict_of(found.write(folder))


@pytest.mark.parametrize(("busy", "state"), [(0.9, "S"), (0.2, "R")], ids=["a CPU", "a host short of CPU"])
def test_a_rank_whose_processes_work_for_it_hangs_nobody_for_a_minute(tmp_path: Path, busy: float, state: str) -> None:
    assert prepared(tmp_path, busy, 60, state=state).outcome is Outcome.INCONCLUSIVE


def test_work_of_its_processes_that_lasts_for_minutes_is_named_and_never_confirmed(tmp_path: Path) -> None:
    (first,) = leaders(prepared(tmp_path, 0.9, 400))
    assert (first.ranks, first.confidence) == ((BEHIND,), Confidence.LIKELY)


def test_a_rank_whose_processes_sleep_holds_up_the_others(tmp_path: Path) -> None:
    verdict = prepared(tmp_path, 0.0, 60)
    assert (verdict.outcome, named(verdict)) == (Outcome.HANG, {BEHIND})


def test_a_record_without_a_call_is_that_of_a_rank_that_has_not_begun(tmp_path: Path) -> None:
    job = Job(4)
    job.hang({BEHIND}, kind="barrier")
    assert verdict_of(loose(job, tmp_path)).outcome is Outcome.INCONCLUSIVE


def test_a_rank_without_a_record_in_a_later_call_is_missing(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(12)
    job.hang({BEHIND})
    verdict = verdict_of(loose(job, tmp_path, [1, 2, 3]))
    assert named(verdict) == {BEHIND}
