"""A rank that waits for the answer to a remote call is held up by the thread that handles it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recordings.collection import Collection, pid_of, py_spy, whole
from tests.recordings.job import Job
from tests.recordings.places import SITE, Place
from tests.recordings.verdicts import named, verdict_of

API = f"{SITE}torch/distributed/rpc/api.py"
CALLER: Place = (("rpc_sync", API, 842), ("ask", "/srv/job/reward.py", 18), ("<module>", "/srv/job/reward.py", 30))
HANDLER: Place = (("reward", "/srv/job/reward.py", 11), ("_run_function", f"{SITE}torch/distributed/rpc/internal.py", 200))
PASSED_ON: Place = (("rpc_sync", API, 842), *HANDLER)


FUTURE: Place = CALLER[1:]


def collected(handlers: dict[int, tuple[Place, ...]], caller: Place = CALLER) -> Collection:
    """Rank 0 asks; the others wait for it in an all_reduce, and threads of theirs were at these places."""
    job = Job(4)
    job.steps(12)
    job.hang({0})
    found = whole(job, {0: caller})
    found.samples(0, wchan="futex_do_wait")
    for rank, places in handlers.items():
        for number, place in enumerate(places):
            path = f"ranks/{rank}/stacks/{number}.json"
            (thread,) = json.loads(py_spy(place, pid_of(rank)))
            found.members[path] = json.dumps([*json.loads(found.members[path]), thread | {"os_thread_id": 5123}]).encode()
    return found


@pytest.mark.parametrize(
    ("handlers", "ranks"),
    [
        ({2: (HANDLER,) * 3}, {2}),
        ({1: (PASSED_ON,) * 3, 2: (HANDLER,) * 3}, {2}),
        ({1: (HANDLER,) * 3, 2: (HANDLER,) * 3}, set()),
        ({2: (HANDLER,)}, set()),
        ({}, set()),
    ],
    ids=["one", "one that asks on", "two", "seen once", "none"],
)
def test_the_rank_whose_thread_handles_the_call_is_named(
    tmp_path: Path, handlers: dict[int, tuple[Place, ...]], ranks: set[int]
) -> None:
    assert named(verdict_of(collected(handlers).write(tmp_path))) == ranks


@pytest.mark.parametrize(("handlers", "ranks"), [({2: (HANDLER,) * 3}, {2}), ({}, {0})], ids=["handled", "a lock of its own"])
def test_a_future_leaves_no_frame(tmp_path: Path, handlers: dict[int, tuple[Place, ...]], ranks: set[int]) -> None:
    assert named(verdict_of(collected(handlers, FUTURE).write(tmp_path))) == ranks
