"""Who holds the lock of a file that another rank waits for, as the kernel states it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.collection import pid_of, process_sample, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import Place
from tests.recordings.verdicts import verdict_of

WAITING, HOLDER, STRANGER = 0, 2, 77
LOCK: Place = (("refresh", "/srv/job/cache.py", 11), ("<module>", "/srv/job/train.py", 30))


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize(("pid", "named"), [(pid_of(HOLDER), HOLDER), (STRANGER, WAITING)], ids=["another rank", "no rank"])
def test_the_rank_that_holds_a_lock_is_named_and_not_who_waits_for_it(
    tmp_path: Path, pid: int, named: int, recorded: bool
) -> None:
    job = Job(4)
    job.steps(12)
    job.hang({WAITING})
    found = whole(job, {WAITING: LOCK}, dumps=int(recorded))
    for number in range(3):
        wchan, at_ns = "locks_lock_inode_wait", found.at_ns + 2 * number * SECOND
        document = json.loads(process_sample(WAITING, at_ns, wchan=wchan, switches=40))
        document["processes"][0]["threads"][0]["waits_on"] = [f"12 -> /data/cache.lock locked by pid {pid}"]
        found.members[f"ranks/{WAITING}/proc/{number}.json"] = json.dumps(document).encode()
    verdict = verdict_of(found.write(tmp_path))
    assert [suspect.ranks for suspect in verdict.suspects] == [(named,)]
    assert "/data/cache.lock" in " ".join(item.statement for item in verdict.suspects[0].evidence)
