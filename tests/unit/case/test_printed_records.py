"""Records of logs as tools of stores print them: logcli, gcloud, and tables of Splunk."""

from __future__ import annotations

from pathlib import Path

import pytest

from forensics.case.exported_logs import lines_of_export
from tests.recordings.verdicts import named, verdict_of

LOGCLI = '2026-03-04T10:{:02d}:00Z {{container="main", namespace="ml", pod="enc-{}"}} {}\n'
ENTRY = (
    "---\ninsertId: a1\nlogName: projects/p/logs/stderr\nresource:\n  labels:\n    container_name: main\n"
    "    pod_name: enc-{1}\n  type: k8s_container\ntextPayload: {2}\ntimestamp: '2026-03-04T10:{0:02d}:00Z'\n"
)


def lines(text: str) -> list[str]:
    return (lines_of_export(text.encode()) or b"").decode().splitlines()


def test_lines_of_logcli() -> None:
    text = "$ logcli query x\n" + "".join(LOGCLI.format(at, at % 2, f"step {at}") for at in (3, 2, 1))
    assert lines(text) == [f"[pod/enc-{at % 2}/main] 2026-03-04T10:{at:02d}:00Z step {at}" for at in (1, 2, 3)]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ("step 1", ["step 1"]),
        ("'OSError: ''/a'' is\n  gone'", ["OSError: '/a' is gone"]),
        ('"a: \\"b\\""', ['a: "b"']),
        ("|-\n  Traceback (most recent call last):\n    File x\n  ValueError", None),
    ],
    ids=["plain", "quoted over two lines", "in double quotes", "a block"],
)
def test_entries_of_gcloud(payload: str, said: list[str] | None) -> None:
    found = lines("".join(ENTRY.format(at, at % 2, payload) for at in (1, 2, 3)))
    expected = said or ["Traceback (most recent call last):", "  File x", "ValueError"]
    assert found[: len(expected)] == [f"[pod/enc-1/main] 2026-03-04T10:01:00Z {line}" for line in expected]


def test_entries_of_gcloud_with_a_message_in_an_object() -> None:
    entry = ENTRY.replace("textPayload: {2}", "jsonPayload:\n  level: info\n  message: {2}")
    assert lines("".join(entry.format(at, 0, "step") for at in (1, 2, 3)))[0].endswith(" step")


def test_a_table_of_splunk_newest_first() -> None:
    rows = [f'"2026-03-04T10:0{at}:00.000+0000","gx-{at % 2}","step {at}"' for at in (3, 2, 1)]
    assert [line.split(": ")[1] for line in lines("\n".join(["_time,host,_raw", *rows]))] == ["step 1", "step 2", "step 3"]


@pytest.mark.parametrize("text", ["insertId: 3\nname: x\n", "2026-03-04T10:00:00Z {a} step\n" * 5, LOGCLI.format(1, 1, "x")])
def test_what_is_no_such_text(text: str) -> None:
    assert lines_of_export(text.encode()) is None or len(lines(text)) == 1


def test_an_error_that_was_survived_is_no_lead(tmp_path: Path) -> None:
    error = LOGCLI.format(0, 2, "ValueError: could not connect, will retry")
    steps = [LOGCLI.format(at, at % 4, f"step {at * 10} loss 2.{at}") for at in range(1, 50)]
    for count, is_lead in ((3, True), (49, False)):
        (tmp_path / "logs.txt").write_text(error + "".join(steps[:count]))
        verdict = verdict_of(tmp_path)
        assert not named(verdict)
        assert bool(verdict.leads) is is_lead
