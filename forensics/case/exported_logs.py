"""Logs as a store of logs exports them, in records of JSON or CSV: the lines that were logged, in the order of their times.

Loki, CloudWatch, Cloud Logging, Elasticsearch, Datadog, the journal and runtimes of containers each have names of their own for
text, time and origin. A record becomes its text behind what kubectl or the journal would have put in front of it. Newest first,
as most of them export, is put right.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from forensics.case.fired_alerts import MARKS as ALERTS
from forensics.case.fired_alerts import lines_of_alerts
from forensics.case.log_records import TEXTS, TIMES, Record, parsed, record_of, when
from forensics.case.printed_records import may_be_printed, printed_records

MOST_BYTES = 1 << 26
_LEAST, _MOST_OTHERS = 3, 0.2
_DEEPEST = 8
# A message of Slack is dated by this number, which is its name as well.
_BLOCK = "\n```\n"
_MESSAGE = b'"message"'
_OF_CHAT = re.compile(rb'"type": ?"message"')
_SECOND = re.compile(r"algo-(?!1\b)\d{1,3}\b")
_NUMBERED = re.compile(r"-[1-9]\d{0,3}$")
_NO_ADDRESS, _LONGEST_ADDRESS = re.compile(r"[^\w.:]"), 45
_OF_A_MESSAGE = re.compile(r"\d{10}\.\d{1,6}")
_BEGIN = re.compile(rb'(?:[\[{]\s{0,200})+"')


def may_be_exported(head: bytes) -> bool:
    """Whether a file begins as an export does."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    return _BEGIN.match(start) is not None or _header(start.split(b"\n", 1)[0]) is not None or may_be_printed(start)


def is_chat(head: bytes) -> bool:
    """Whether a file begins as an exported channel does: what its messages quote is of any form."""
    return _BEGIN.match(head.lstrip(b"\xef\xbb\xbf \t\r\n")) is not None and _OF_CHAT.search(head) is not None


def lines_of_export(content: bytes) -> bytes | None:
    """The lines of an export; None for anything else."""
    start = content.lstrip(b"\xef\xbb\xbf \t\r\n")
    if _MESSAGE in start and (chat := _of_chat(parsed(start))):
        return chat
    if any(mark in start for mark in ALERTS) and (fired := lines_of_alerts(parsed(start))):
        return fired
    records = _of_lines(start) or _of_document(start) if _BEGIN.match(start) else _of_table(start) or printed_records(start)
    return _written(_in_order(records)) if len(records) >= _LEAST or _is_stated(records) else None


def _is_stated(records: Sequence[Record]) -> bool:
    """Whether fewer records than make an export by their number each say when and where something was logged."""
    return bool(records) and all(each.stamp and each.text.strip() and (each.pod or each.host or each.actor) for each in records)


def _of_chat(value: Any) -> bytes | None:
    """What people wrote in a channel of Slack, in its order: a text with blocks, as somebody would copy it."""
    messages = value.get("messages") if isinstance(value, dict) else value
    if not isinstance(messages, list) or not messages or not all(map(_is_message, messages)):
        return None
    texts = (each["text"] for each in sorted(messages, key=lambda each: float(each["ts"])))
    return "".join(f"{html.unescape(text).replace('```', _BLOCK)}\n" for text in texts).encode("utf-8", "replace")


def _is_message(value: Any) -> bool:
    known = isinstance(value, dict) and value.get("type") == "message" and isinstance(value.get("text"), str)
    return known and isinstance(stamp := value.get("ts"), str) and _OF_A_MESSAGE.fullmatch(stamp) is not None


def _of_lines(content: bytes) -> list[Record]:
    """Records of a file with one on each line; among them may be lines that something else wrote."""
    found: list[Record] = []
    others = 0
    for line in filter(None, map(bytes.strip, content.splitlines())):
        value = parsed(line) if line[:1] == b"{" else None
        record = record_of(value) if isinstance(value, dict) else None
        if record is None:
            others += 1
            record = Record(line.decode("utf-8", "replace"), *(_place(found[-1]) if found else ()))
        found.append(record)
        if others > _MOST_OTHERS * len(found) and len(found) > _LEAST:
            return []
    return found if len(found) - others >= _LEAST or not others else []


def _place(before: Record) -> tuple[str | None, int | None]:
    return before.stamp, before.time_ns


def _of_document(content: bytes) -> list[Record]:
    value = parsed(content)
    return [record for each in _lists(value, 0) for record in _of_list(each)] if value is not None else []


def _lists(value: Any, depth: int) -> Iterator[list[Any]]:
    """Lists of a document that hold records, the outermost ones."""
    if depth > _DEEPEST:
        return
    if isinstance(value, list) and _of_list(value[:_LEAST]):
        yield value
    elif isinstance(value, list | dict):
        for each in value if isinstance(value, list) else value.values():
            if isinstance(each, list | dict):
                yield from _lists(each, depth + 1)


def _of_list(values: Sequence[Any]) -> list[Record]:
    """Records of a list of objects, of streams, or of rows of fields; nothing where one is something else."""
    found: list[Record] = []
    for value in values:
        if isinstance(value, dict) and isinstance(value.get("values"), list):
            found += _of_stream(value)
            continue
        named = _fields(value)
        record = record_of(named) if named else None
        if record is None or record.stamp is None:
            return []
        found.append(record)
    return found


def _of_stream(stream: Mapping[str, Any]) -> Iterator[Record]:
    """Loki: times and lines of one set of labels."""
    origin = record_of({**(labels if isinstance(labels := stream.get("stream"), dict) else {}), "line": ""})
    for pair in stream["values"]:
        if origin and isinstance(pair, list) and len(pair) >= 2 and isinstance(pair[1], str):
            yield replace(origin, text=pair[1], **when(pair[0]))


def _fields(value: Any) -> Mapping[str, Any] | None:
    """An object; CloudWatch Insights has a list of names and values instead."""
    if isinstance(value, list):
        pairs = [(each.get("field"), each.get("value")) for each in value if isinstance(each, dict)]
        return {name: text for name, text in pairs if isinstance(name, str)}
    # What tells of an object of Kubernetes is no line of a log.
    return value if isinstance(value, dict) and "metadata" not in value else None


def _of_table(content: bytes) -> list[Record]:
    """Rows of a table in CSV with a column of texts and one of times."""
    if _header(content.split(b"\n", 1)[0]) is None:
        return []
    try:
        rows = csv.DictReader(io.StringIO(content.decode("utf-8", "replace"), newline=""))
        found = [record_of({name: text for name, text in row.items() if isinstance(name, str)}) for row in rows]
    except csv.Error:
        return []
    return [record for record in found if record is not None]


def _header(line: bytes) -> list[str] | None:
    """Names of the columns of a table that may be an export of a log."""
    names = [name.strip().strip('"') for name in line.decode("utf-8", "replace").split(",")]
    is_one = 2 <= len(names) <= 64 and any(name in TEXTS for name in names) and any(name in TIMES for name in names)
    return names if is_one else None


def _in_order(records: Sequence[Record]) -> Sequence[Record]:
    """By time where all have one; records of one time stay as they were written, which may be backwards."""
    times = [record.time_ns for record in records if record.time_ns is not None]
    if len(times) < len(records):
        return records
    falls = sum(after < before for before, after in pairwise(times))
    rises = sum(after > before for before, after in pairwise(times))
    return sorted(records[::-1] if falls > rises else records, key=lambda record: record.time_ns or 0)


def _written(records: Sequence[Record]) -> bytes:
    """The lines, with what shows who wrote them in front where several did."""
    pods, hosts, nodes = ({getattr(record, name) for record in records} for name in ("pod", "host", "node"))
    # A pod with a number is one of several, whether records of the others are here or not.
    is_of_several = len(pods) > 1 or any(pod and _NUMBERED.search(pod) for pod in pods)
    is_of_hosts = len(hosts) > 1 or any(host and _SECOND.match(host) for host in hosts)
    lines = (line for record in records for line in _lines(record, is_of_several, is_of_hosts, len(nodes) > 1))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _lines(record: Record, several_pods: bool, several_hosts: bool, several_nodes: bool) -> Iterator[str]:
    """The lines of one record behind the labels of kubectl, of the journal, or of Ray."""
    front = f"[pod/{record.pod}/{record.container or 'main'}] " if several_pods and record.pod else ""
    front += f"{record.stamp} " if record.stamp else ""
    if record.stamp and record.host and not record.pod and (record.program or several_hosts):
        front += f"{record.host} {record.program or 'log[0]'}: "
    if record.actor and not record.pod:
        # A node stands where Ray has its address: numbers of processes are those of a node.
        front += f"(worker pid={record.actor}{f', ip={_short(record.node)}' if several_nodes and record.node else ''}) "
    for line in record.text.rstrip().split("\n"):
        is_named = record.rank is None or line.startswith("[rank")
        yield front + ("" if is_named else f"[rank{record.rank}]: ") + line.rstrip("\r")


def _short(node: str) -> str:
    """As much of the name of a node as an address may be long."""
    return _NO_ADDRESS.sub("", node)[:_LONGEST_ADDRESS]
