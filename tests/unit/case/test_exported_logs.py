"""Logs as stores of logs export them give what the log itself gives; other JSON and CSV is left alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forensics.case.build import open_case
from forensics.case.exported_logs import lines_of_export
from tests.recordings.commands import Command
from tests.recordings.verdicts import named, verdict_of

WATCHDOG = (
    "[rank{rank}]:[E1126 03:22:05.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=512, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, Timeout(ms)=600000) ran for "
    "600012 milliseconds before timing out."
)
LINES = [
    *(f"[rank{rank}]: step 100 loss 2.31" for rank in range(4)),
    "[rank2]: Traceback (most recent call last):",
    '[rank2]:   File "/app/train.py", line 88, in main',
    "[rank2]:     loss = model(batch).loss",
    "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    *(WATCHDOG.format(rank=rank) for rank in (0, 1, 3)),
]
START_S = 1_795_662_721


def at(number: int) -> datetime:
    return datetime.fromtimestamp(START_S + number, UTC)


def iso(number: int) -> str:
    return f"{at(number):%Y-%m-%dT%H:%M:%S}.5Z"


def numbered(lines: Sequence[str]) -> list[tuple[int, str]]:
    return list(enumerate(lines))


def newest_first(lines: Sequence[str]) -> list[tuple[int, str]]:
    return numbered(lines)[::-1]


def json_lines(records: Sequence[object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def table(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


FORMS: dict[str, Callable[[Sequence[str]], str]] = {
    "runtime": lambda lines: json_lines(
        [{"log": f"{line}\n", "stream": "stderr", "time": iso(n)} for n, line in numbered(lines)]
    ),
    "shipper": lambda lines: json_lines(
        [
            {"@timestamp": iso(n), "kubernetes": {"pod_name": "t-0", "host": "g1"}, "message": line}
            for n, line in numbered(lines)
        ]
    ),
    "loki lines": lambda lines: json_lines(
        [{"line": line, "timestamp": iso(n), "fields": {"pod": "t-0"}} for n, line in newest_first(lines)]
    ),
    "loki query": lambda lines: json.dumps(
        {
            "status": "success",
            "data": {
                "resultType": "streams",
                "result": [
                    {
                        "stream": {"pod": "t-0"},
                        "values": [[str((START_S + n) * 10**9), line] for n, line in newest_first(lines)],
                    }
                ],
            },
        }
    ),
    "cloud logging": lambda lines: json.dumps(
        [
            {"insertId": f"x{n}", "textPayload": line, "timestamp": iso(n), "resource": {"labels": {"pod_name": "t-0"}}}
            for n, line in newest_first(lines)
        ],
        indent=2,
    ),
    "cloudwatch": lambda lines: json.dumps(
        {"events": [{"timestamp": (START_S + n) * 1000, "message": line} for n, line in numbered(lines)]}, indent=4
    ),
    "insights": lambda lines: json.dumps(
        {
            "results": [
                [{"field": "@timestamp", "value": f"{at(n):%Y-%m-%d %H:%M:%S}.000"}, {"field": "@message", "value": line}]
                for n, line in newest_first(lines)
            ]
        }
    ),
    "elasticsearch": lambda lines: json.dumps(
        {
            "hits": {
                "hits": [{"_id": "a", "_source": {"@timestamp": iso(n), "message": line}} for n, line in newest_first(lines)]
            }
        }
    ),
    "datadog": lambda lines: json.dumps(
        {"data": [{"id": "a", "attributes": {"timestamp": iso(n), "message": line}} for n, line in newest_first(lines)]}
    ),
    "journal": lambda lines: json_lines(
        [
            {
                "__REALTIME_TIMESTAMP": str((START_S + n) * 10**6),
                "SYSLOG_IDENTIFIER": "torchrun",
                "_PID": "812",
                "MESSAGE": line,
            }
            for n, line in numbered(lines)
        ]
    ),
    "table": lambda lines: table([["timestamp", "message"], *([(START_S + n) * 1000, line] for n, line in numbered(lines))]),
    "kibana": lambda lines: table(
        [["@timestamp", "message"], *([f"{at(n):%b %d, %Y @ %H:%M:%S}.500", line] for n, line in newest_first(lines))]
    ),
    "in a record": lambda lines: json_lines(
        [{"log": json.dumps({"message": line, "level": "info"}) + "\n", "time": iso(n)} for n, line in numbered(lines)]
    ),
}


@pytest.mark.first(2)
@pytest.mark.parametrize("form", FORMS)
def test_an_export_has_the_verdict_of_the_log(form: str, tmp_path: Path) -> None:
    log, export = tmp_path / "train.log", tmp_path / "export"
    log.write_text("".join(f"{line}\n" for line in LINES))
    export.write_text(FORMS[form](LINES))
    plain, found = verdict_of(log), verdict_of(export)
    assert (found.outcome, named(found)) == (plain.outcome, named(plain)) == ("failstop", {2})


@pytest.mark.parametrize("form", FORMS)
def test_lines_are_in_the_order_in_which_they_were_logged(form: str) -> None:
    text = lines_of_export(FORMS[form](LINES).encode())
    assert text is not None
    lines = text.decode().splitlines()
    assert len(lines) == len(LINES)
    assert all(line.endswith(logged) for line, logged in zip(lines, LINES, strict=True))


@pytest.mark.parametrize(("name", "rank"), [("exc_info", "rank"), ("exc", "rank"), ("error.stack_trace", "world_rank")])
def test_a_record_of_several_lines_keeps_its_traceback_and_its_rank(name: str, rank: str) -> None:
    raised = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nValueError: x'
    records: list[dict[str, object]] = [{"asctime": f"2026-11-26 03:12:0{n},5", rank: n, "message": "step"} for n in range(3)]
    records.append({"asctime": "2026-11-26 03:12:04,5", rank: 1, "message": "failed", name: raised})
    text = lines_of_export(json_lines(records).encode())
    assert text is not None
    assert text.decode().splitlines()[3:] == [
        "2026-11-26 03:12:04,5 [rank1]: failed",
        "2026-11-26 03:12:04,5 [rank1]: Traceback (most recent call last):",
        '2026-11-26 03:12:04,5 [rank1]:   File "a.py", line 3, in f',
        "2026-11-26 03:12:04,5 [rank1]: ValueError: x",
    ]


def test_events_of_structlog_are_their_text_with_the_step_behind_it() -> None:
    records: list[dict[str, object]] = [
        {"event": "trained", "level": "info", "rank": n, "step": 40, "timestamp": iso(n)} for n in range(3)
    ]
    text = lines_of_export(json_lines(records).encode())
    assert text is not None
    assert text.decode().splitlines()[1].endswith("[rank1]: trained step=40")
    assert lines_of_export(json_lines([{"event": "click", "user": n, "timestamp": iso(n)} for n in range(3)]).encode()) is None


def test_lines_of_several_pods_and_hosts_say_whose_they_are() -> None:
    pods = [{"ts": START_S + n, "msg": "up", "kubernetes": {"pod": {"name": f"t-{n}"}}} for n in range(3)]
    units = [
        {"__REALTIME_TIMESTAMP": f"{START_S + n}000000", "_HOSTNAME": f"g{n}", "_PID": "7", "MESSAGE": "up"} for n in range(3)
    ]
    of_pods, of_hosts = (lines_of_export(json_lines(records).encode()) for records in (pods, units))
    assert of_pods is not None and of_hosts is not None
    assert of_pods.decode().splitlines()[1].startswith("[pod/t-1/main] 2026-11-26T")
    assert [line.split(" ", 1)[1] for line in of_hosts.decode().splitlines()] == [f"g{n} log[7]: up" for n in range(3)]


@pytest.mark.parametrize(
    ("stream", "front"),
    [
        ("job/rank-2", "[rank2]: "),
        ("Global_Rank_2", "[rank2]: "),
        ("node-1/rank-2", ""),
        ("job/local_rank-2", ""),
        ("tp/r2", ""),
    ],
)
def test_a_stream_that_is_called_by_a_rank(stream: str, front: str) -> None:
    """Below a node it may be the number there."""
    rows = [
        ("@timestamp", "@logStream", "@message"),
        *((iso(number), stream, f"step {number} loss 2.3") for number in range(4)),
    ]
    lines = lines_of_export(table(rows).encode())
    assert lines is not None and (f" {front}step 2 loss" in lines.decode()) and (b"[rank" in lines) is bool(front)


def test_streams_of_several_pods_are_put_together_by_time() -> None:
    streams = [
        {"stream": {"pod": f"t-{pod}"}, "values": [[str((START_S + 2 * n + pod) * 10**9), f"{2 * n + pod}"] for n in (2, 1, 0)]}
        for pod in range(2)
    ]
    text = lines_of_export(json.dumps({"data": {"result": streams}}).encode())
    assert text is not None
    assert [line.rsplit(" ", 1)[1] for line in text.decode().splitlines()] == ["0", "1", "2", "3", "4", "5"]


@pytest.mark.parametrize(
    "content",
    [
        json_lines([{"step": n, "loss": 2.5, "time": iso(n)} for n in range(9)]),
        json.dumps([{"pid": 4, "thread_id": 5, "frames": [{"name": "f", "filename": "a.py", "line": n}]} for n in range(9)]),
        json.dumps({"items": [{"message": "Evicted", "lastTimestamp": iso(n), "metadata": {"name": "x"}} for n in range(9)]}),
        json.dumps({"message": {"message": "RuntimeError: x", "timestamp": "1"}}),
        "step,data_ms,message_ms\n1,2,3\n4,5,6\n7,8,9\n",
        "[rank0]: " + '{"message": "one record in a line of text"}\n' * 3,
        "[" * 100_000 + '"',
        '{"log": "' + "x" * 100,
        '[{"message": "a", "time": "2026-11-26T03:12:00Z"}, 3, 4, 5]',
        json_lines([{"message": "a", "time": 10**18 * 10}] * 2),
        "",
    ],
)
def test_what_is_no_export_is_left_as_it_is(content: str) -> None:
    assert lines_of_export(content.encode()) is None


def test_times_that_are_none_keep_the_order() -> None:
    text = lines_of_export(
        json_lines([{"message": f"m{n}", "time": time} for n, time in enumerate(("9" * 30, "soon", "", -1))]).encode()
    )
    assert text == b"m0\nm1\nm2\nm3\n"


def test_the_source_of_a_line_can_be_shown(forensics: Command, tmp_path: Path) -> None:
    export = tmp_path / "export.json"
    export.write_text(FORMS["elasticsearch"](LINES[-4:]))
    with open_case([export]) as case:
        ((path, locator),) = case.execute(
            "SELECT path, locator FROM log_events JOIN sources USING (source_id) LIMIT 1"
        ).fetchall()
    assert path == "export.json/records.log"
    shown = forensics("show", export, f"{path}#line={locator}")
    assert "[rank2]" in shown.out


KILLED = (
    "E1003 11:02:41.1 1 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -9) local_rank: 1 (pid: 83)"
)


@pytest.mark.parametrize("where", [{"labels": {"pod": "sft-0"}}, {"logStreamName": "prod/algo-1-17"}, {"hostname": "hx-1"}])
def test_two_records_with_their_place_are_an_export(tmp_path: Path, where: dict[str, object]) -> None:
    records = [{"timestamp": iso(n), "line": line, **where} for n, line in enumerate((KILLED, "ChildFailedError: "))]
    (tmp_path / "export.json").write_text(json.dumps(records, indent=1))
    assert named(verdict_of(tmp_path)) == {1}


def test_two_records_without_a_place_may_be_anything() -> None:
    assert lines_of_export(json.dumps([{"time": iso(n), "message": "done"} for n in (1, 2)]).encode()) is None


def of_ray(number: int, text: str, process: int, node: str = "b1") -> dict[str, object]:
    stamps = {"asctime": "2026-11-26 03:22:05,000", "timestamp_ns": (START_S + number) * 10**9}
    return {**stamps, "levelname": "INFO", "message": text, "job_id": "02", "node_id": node, "process": process}


RAISED = 'failed\nTraceback (most recent call last):\n  File "/app/loop.py", line 61, in fit\n    go()\nKeyError: 7'


@pytest.mark.parametrize("nodes", [("b1",) * 4, ("b1", "b1", "c-2", "c-2")])
def test_a_process_of_ray_in_records_is_the_rank_that_it_states(tmp_path: Path, nodes: Sequence[str]) -> None:
    """Its error is where to begin: nothing shows whether the program passed it. Numbers of processes are those of a node."""
    groups = [
        of_ray(
            n,
            f"Setting up process group for: env:// [rank={n}, world_size=4]",
            50 + n % 2 if len({*nodes}) > 1 else 50 + n,
            node,
        )
        for n, node in enumerate(nodes)
    ]
    steps = [of_ray(10 + n, f"step {20 + n}/900 loss 2.1", 50) for n in range(3)]
    last = {**groups[2], "message": RAISED, "timestamp_ns": (START_S + 30) * 10**9}
    (tmp_path / "ray-train-app.log").write_text(json_lines([*groups, *steps, last]))
    verdict = verdict_of(tmp_path)
    assert not named(verdict)
    assert verdict.leads[0].startswith("the error of rank 2: ")


def test_an_error_below_which_a_job_goes_on_is_no_lead(tmp_path: Path) -> None:
    steps = "".join(f"[rank0]: step {at}/900 loss 2.1\n" for at in range(20, 30))
    (tmp_path / "job.log").write_text(f"[rank1]: ERROR {RAISED.replace(chr(10), chr(10) + '[rank1]: ')}\n{steps}")
    assert not any("the error of rank" in lead for lead in verdict_of(tmp_path).leads)
