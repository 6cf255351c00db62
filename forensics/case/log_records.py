"""One record of a log as a store of logs keeps it: what was logged, when and by whom, under whatever names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson

_DEEPEST = 3
# structlog: what happened, and what belongs to it under names of its own.
_EVENT, _WITH_EVENT = "event", ("step", "global_step", "iteration")
# Names in the order in which they are asked for; nested ones are looked for in the objects of a record.
TEXTS = (
    "log", "message", "msg", "MESSAGE", "textPayload", "@message", "line", "Line", "Message", "content", "Content", "body",
    "_raw",
)  # fmt: skip
"""Of what was logged."""
TIMES = (
    "time", "timestamp", "@timestamp", "ts", "Time", "Timestamp", "timestamp_ns", "asctime", "__REALTIME_TIMESTAMP",
    "eventTime", "date", "Date", "datetime", "tsNs", "_time",
)  # fmt: skip
"""Of when: in ISO 8601, as Kibana prints it, or as a number since 1970 in any unit."""
_TRACEBACKS = (
    *("exc_info", "exc_text", "exc", "exception", "stack_trace", "stacktrace", "traceback"),
    *("error.stack_trace", "error.stack", "exception.stacktrace"),
)
_PODS = ("pod_name", "pod", "podName", "kubernetes.pod_name", "kubernetes.pod.name")
_CONTAINERS = ("container_name", "container", "containerName", "kubernetes.container_name", "kubernetes.container.name")
_HOSTS = ("_HOSTNAME", "hostname", "host", "Host", "host.name", "node_name", "node")
# CloudWatch keeps one stream for each host or container, whose name ends with that of it.
_STREAMS = ("@logStream", "logStreamName", "logStream")
# A stream that is called by a rank, and not by one of a node.
_OF_RANK = re.compile(r"(?:(?!.*(?:node|host|pod|worker|gpu)[-_]?\d).*/)?(?:global[-_]?)?rank[-_]?(\d{1,7})", re.IGNORECASE)
_PROGRAMS, _PIDS = ("SYSLOG_IDENTIFIER", "_COMM"), ("_PID", "SYSLOG_PID")
# Ray's records: the number of a process beside the job and the node that it is of.
_PROCESS, _OF_RAY, _NODE = "process", ("job_id", "worker_id"), "node_id"
_RANKS = ("rank", "global_rank", "world_rank", "RANK")
_NAME = re.compile(r"\w[\w.-]{0,252}")
_OF_KIBANA = "%b %d, %Y @ %H:%M:%S.%f"
_ISO = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")
_NUMBER = re.compile(r"\d{9,19}(?:\.\d{1,9})?")
# A digit more is a unit smaller: seconds, milliseconds, microseconds, nanoseconds since 1970 have 10, 13, 16 and 19.
_UNITS_OF_TIME = ((11, 1_000_000_000), (14, 1_000_000), (17, 1_000), (20, 1))


@dataclass(frozen=True, slots=True)
class Record:
    """What was logged, when (as it is written, and in ns), by whom; `actor` is the number of a process of Ray on `node`."""

    text: str
    stamp: str | None = None
    time_ns: int | None = None
    pod: str | None = None
    container: str | None = None
    host: str | None = None
    program: str | None = None
    rank: int | None = None
    actor: str | None = None
    node: str | None = None


def parsed(text: bytes | str) -> Any:
    """The value of a JSON text; None where it is none."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


def record_of(value: Mapping[str, Any]) -> Record | None:
    """The record, or the one that it carries as its text; None where it has no text."""
    flat = list(_objects(value, 0))
    text = _first(flat, TEXTS)
    text = _event(value) if text is None else text
    if text is None:
        return None
    inner = parsed(text) if text[:2] == '{"' else None
    logged = record_of(inner) if isinstance(inner, dict) else None
    raised = "\n".join(found for name in _TRACEBACKS if (found := _first(flat, (name,))) and "\n" in found)
    stated = Record(
        text=f"{text}\n{raised}" if raised and raised not in text else text,
        pod=_name(flat, _PODS),
        container=_name(flat, _CONTAINERS),
        host=_name(flat, _HOSTS) or _of_stream(flat),
        program=_program(flat),
        rank=_rank(flat),
        actor=_actor(value),
        node=_first([value], (_NODE,)),
        **when(_first(flat, TIMES, str | int | float)),
    )
    return (
        stated
        if logged is None
        else replace(stated, text=logged.text, rank=logged.rank if stated.rank is None else stated.rank)
    )


def _event(value: Mapping[str, Any]) -> str | None:
    """The event of a record without a text, with its step behind it; a bare name beside other fields may be anything."""
    event = value.get(_EVENT)
    if not isinstance(event, str) or not ({"level", "log_level", "severity", "logger"} & value.keys()):
        return None
    return event + "".join(f" {name}={value[name]}" for name in _WITH_EVENT if isinstance(value.get(name), int))


def _objects(value: Mapping[str, Any], depth: int) -> Iterator[Mapping[str, Any]]:
    """A record and the objects in it, the outer ones first."""
    yield value
    if depth < _DEEPEST:
        for each in value.values():
            if isinstance(each, dict):
                yield from _objects(each, depth + 1)


def _first(objects: Sequence[Mapping[str, Any]], names: Iterable[str], kind: Any = str) -> Any:
    found = (each[name] for name in names for each in objects if isinstance(each.get(name), kind))
    return next(found, None)


def _name(objects: Sequence[Mapping[str, Any]], names: Iterable[str]) -> str | None:
    """A name, or that of an object which has one."""
    found = _first(objects, names, str | dict)
    found = found.get("name") if isinstance(found, dict) else found
    return found if isinstance(found, str) and _NAME.fullmatch(found) else None


def _of_stream(objects: Sequence[Mapping[str, Any]]) -> str | None:
    stream = _first(objects, _STREAMS)
    name = stream.rpartition("/")[2] if stream else ""
    return name if _NAME.fullmatch(name) else None


def _program(objects: Sequence[Mapping[str, Any]]) -> str | None:
    """As the journal names it, with the number of its process; the kernel has none."""
    name, pid = _name(objects, _PROGRAMS), _first(objects, _PIDS)
    return name if name == "kernel" else f"{name or 'log'}[{pid}]" if pid and pid.isdecimal() else None


def _actor(value: Mapping[str, Any]) -> str | None:
    number = value.get(_PROCESS)
    is_one = isinstance(number, int) and 0 < number < 1 << 31 and any(isinstance(value.get(name), str) for name in _OF_RAY)
    return str(number) if is_one else None


def _rank(objects: Sequence[Mapping[str, Any]]) -> int | None:
    found = _first(objects, _RANKS, str | int)
    named = _OF_RANK.fullmatch(_first(objects, _STREAMS) or "") if found is None else None
    found = named[1] if named else found
    return int(found) if re.fullmatch(r"\d{1,7}", str(found)) else None


def when(value: Any) -> dict[str, Any]:
    """`stamp` and `time_ns` of a time in one of the ways in which records have it."""
    text = str(value)
    if _NUMBER.fullmatch(text):
        whole, _, part = text.partition(".")
        unit = next(unit for digits, unit in _UNITS_OF_TIME if len(whole) < digits)
        time_ns = int(whole) * unit + (int(part.ljust(9, "0")) * unit // 1_000_000_000 if part else 0)
        moment = datetime.fromtimestamp(time_ns // 1_000_000_000, UTC)
        return {"stamp": f"{moment:%Y-%m-%dT%H:%M:%S}.{time_ns % 1_000_000_000:09}Z", "time_ns": time_ns}
    try:
        if " @ " in text:
            text = datetime.strptime(text, _OF_KIBANA).isoformat(timespec="milliseconds")
        if not _ISO.fullmatch(text):
            return {}
        moment = datetime.fromisoformat(text.replace(" UTC", "Z").replace(" Z", "Z"))
    except ValueError:
        return {}
    seconds = int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())
    behind = re.search(r"[.,](\d+)", text)
    return {"stamp": text, "time_ns": seconds * 1_000_000_000 + (int(behind[1].ljust(9, "0")) if behind else 0)}
