"""The log of events that HTCondor keeps of a job: whose process was lost, and what shows nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.ingest import choose
from tests.recordings.verdicts import named, verdict_of
from tests.unit.ingest.reading import read

SUBMITTED = "000 (71.000.000) 2026-01-05 08:00:00 Job submitted from host: <10.2.0.4:9618?alias=submit1.example>\n...\n"
RUNS = "014 (71.000.00{0}) 2026-01-05 08:01:00 Node {0} executing on host: <10.2.1.{0}:9618?addrs=x&alias=n{0}.example>\n...\n"
RUNS_ALONE = "001 (71.00{0}.000) 01/05 08:01:00 Job executing on host: <10.2.1.{0}:9618>\n...\n"
ENDS = (
    "015 (71.000.00{0}) 2026-01-05 09:01:00 Node {0} terminated.\n\t({2}) {1}\n\t\tUsr 0 00:01:02  -  Run Remote Usage\n...\n"
)
KILLED = "Abnormal termination (signal 9)"
FAILED, FINISHED = "Normal termination (return value 1)", "Normal termination (return value 0)"
HELD = (
    "012 (71.00{0}.000) 01/05 09:00:00 Job was held.\n\tError from slot1@n{0}: memory usage exceeded request_memory\n"
    "\tCode 34\n...\n"
)
REMOVED = "009 (71.000.000) 2026-01-05 09:30:00 Job was aborted by the user.\n\tvia condor_rm (by user jo)\n...\n"
ALL = SUBMITTED + "".join(map(RUNS.format, range(3)))


def lost(text: str) -> list[str]:
    result = read(text.encode(), "job.log")
    assert result.ingester == "scheduler_log"
    return [row["subject"] for row in result.rows("log_events")]


def test_a_node_that_a_signal_ended(tmp_path: Path) -> None:
    text = ALL + ENDS.format(2, KILLED, 0) + ENDS.format(0, FAILED, 1) + ENDS.format(1, FAILED, 1)
    assert lost(text) == ["process 71.0, node 2, of HTCondor on n2.example (signal 9)"]
    (tmp_path / "cluster.log").write_text(text)
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert "process 71.0, node 2, of HTCondor on n2.example" in verdict.would_change[0]


def test_a_process_that_was_held() -> None:
    text = SUBMITTED + "".join(map(RUNS_ALONE.format, range(3))) + HELD.format(1)
    assert lost(text) == [
        "process 71.1, of HTCondor on 10.2.1.1 (held: Error from slot1@n1: memory usage exceeded request_memory)"
    ]


@pytest.mark.parametrize(
    "text",
    [
        ALL + "".join(ENDS.format(node, FINISHED, 1) for node in range(3)),
        ALL + "".join(ENDS.format(node, FAILED, 1) for node in range(3)),  # none of them is known to be the first
        ALL + ENDS.format(2, KILLED, 0) + RUNS.format(2),  # it was started again
        ALL + ENDS.format(2, "Abnormal termination (signal 15)", 0),  # it was asked to end
        ALL + ENDS.format(2, KILLED, 0) + REMOVED,
        ALL + "022 (71.000.002) 2026-01-05 09:00:00 Job disconnected, attempting to reconnect\n    Socket closed\n...\n"
        "023 (71.000.002) 2026-01-05 09:02:00 Job reconnected to slot1@n2\n    startd address: <10.2.1.2:9618>\n...\n",
    ],
    ids=["finished", "all failed", "again", "asked to end", "removed", "reconnected"],
)
def test_what_shows_nobody(text: str) -> None:
    assert lost(text) == []


def test_several_are_no_lead(tmp_path: Path) -> None:
    (tmp_path / "cluster.log").write_text(ALL + ENDS.format(2, KILLED, 0) + ENDS.format(1, KILLED, 0))
    assert not any("HTCondor" in each for each in verdict_of(tmp_path).would_change)


def test_cut_and_hostile_events() -> None:
    text = SUBMITTED + "015 (71.000.002) 2026-01-05 09:01:00 Node 2 termi" + "x" * 5_000_000
    assert lost(text) == []
    assert choose(b"000 (71.0) something else\n", "notes.log") is not None
