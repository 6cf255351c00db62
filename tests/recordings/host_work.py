"""A rank that works or waits on its host, whose others wait for it: its collection, its samples, what is said of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from forensics.model import Suspect
from tests.recordings.collection import Collection, pid_of, process_sample, whole
from tests.recordings.job import SECOND, Job
from tests.recordings.places import Place
from tests.recordings.verdicts import verdict_of

BEHIND = 2
# Number of the second thread that every sample of its process has.
OTHER = 5123
MAIN: Place = (("main", "/srv/job/train.py", 88), ("<module>", "/srv/job/train.py", 97))


def loop(line: int) -> Place:
    """A place in a loop of the job's own code."""
    return (("Packer.fill", "/srv/job/packer.py", line), *MAIN)


def collected(place: Place, silence_s: int = 60, rank: int = BEHIND) -> Collection:
    """Four ranks of which `rank` is at `place` since `silence_s`, and the others wait for it."""
    job = Job(4)
    job.steps(12)
    job.hang({rank})
    return whole(job, {rank: place}, silence_ns=silence_s * SECOND)


def sampled(
    found: Collection,
    *,
    state: str | None = None,
    wchan: str | None = None,
    busy: float = 0.0,
    child: str | None = None,
    child_busy: float = 0.0,
    rank: int = BEHIND,
) -> None:
    """Three samples, two seconds apart: `busy` shares of a CPU, a child process of that name."""
    for number in range(3):
        time_ns = found.at_ns + 2 * number * SECOND
        document: dict[str, Any] = json.loads(process_sample(rank, time_ns, wchan=wchan, state=state or ("R" if busy else "S")))
        main = document["processes"][0]
        main["threads"][0]["utime_ticks"] = 300 + int(200 * number * busy)
        main["threads"] += [main["threads"][0] | {"tid": tid} for tid in (OTHER,)]
        if child:
            thread = main["threads"][0] | {"tid": 9001, "name": child, "utime_ticks": int(200 * number * child_busy)}
            document["processes"].append(
                {"pid": 9001, "ppid": pid_of(rank), "is_child": True, "threads": [thread], "errors": []}
            )
        found.members[f"ranks/{rank}/proc/{number}.json"] = json.dumps(document).encode()


def first_of(found: Collection, tmp_path: Path) -> Suspect:
    """The first suspect of the verdict, which has one fault, of rank `BEHIND`."""
    verdict = verdict_of(found.write(tmp_path))
    assert verdict.suspects[0].ranks == (BEHIND,)
    assert len({suspect.fault for suspect in verdict.suspects}) == 1
    return verdict.suspects[0]


def statements_of(suspect: Suspect) -> str:
    """What the evidence of a suspect states, a line each."""
    return "\n".join(item.statement for item in suspect.evidence)
