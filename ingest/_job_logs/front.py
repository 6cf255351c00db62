"""What stands in front of a line of a log: times, streams, levels, and labels of who wrote it.

Times come first or behind the labels, once or twice: a runtime of containers adds its own, and so does journald. The ISO forms
are read by `datetime.fromisoformat`; times without a zone are local to a host that is not known, monotonic ones have no date.
SkyPilot's `rank` in front of a line counts hosts.
Upstream: cmd/logs of kubernetes/kubectl, CRI's log format, syslog (RFC 3164), printk, Slurm's `--label`, torchrun's `--tee`,
sky/skylet/executor/slurm.py of skypilot-org/skypilot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime

import orjson

from forensics.ingest._shared.process_titles import server_title
from forensics.ingest._shared.values import rank_number

_LEVEL = "(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"
_ELEMENT = re.compile(
    r" {0,6}(?:"
    r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?(?P<server>(?: (?:[A-Z]{2,8}_)?[A-Z]{2,8}\d{1,5}){1,6})\]|"
    r"\[?(?P<date>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d)(?:[.,](?P<part>\d{1,9}))?"
    r"(?: ?(?P<zone>Z|UTC|[+-]\d\d:?\d\d))?(?!\w)\]?"
    rf"(?:[ |,-]{{1,3}}(?:[\w./-]{{1,80}}(?::\d{{1,6}})?)?[ \[|:-]{{0,4}}{_LEVEL}[ \]|:-]{{1,4}})?:?"
    r"|\[ {0,8}\d{1,9}\.\d{3,9}\]"
    # Since the begin: `+  612.400s`, `T+00:10:12.4`, `[t=12.4 s]`.
    r"|\[?(?:[Tt]?[+=] {0,8}\d{1,9}(?:\.\d{1,9})? ?s|[Tt]\+\d{1,4}(?::\d\d){1,2}(?:\.\d{1,9})?)\]?:?(?= )"
    r"|\[?\d{1,2}-[A-Z][a-z]{2}-\d{2,4} \d\d:\d\d:\d\d(?:[.,]\d{1,6})?\]?"
    rf"(?:[ |-]{{1,3}}{_LEVEL}[ \]|:-]{{1,4}})?(?= |$)"
    r"|(?:stdout|stderr) [FP](?= |$)|p=\d{1,7} u=[\w.-]{1,32} n=\w{1,32} \|(?= |$)"
    # vLLM's own logging, behind the label of its process.
    r"|(?<=\) )(?:DEBUG|INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]{1,80}:\d{1,6}\](?= |$)"
    r"|(?P<syslog>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)(?= )"
    r"|\[(?:\d{1,7},)?(?:mpirank:)?(?P<tagged>\d{1,7})(?:,[A-Za-z][\w.-]{0,62})?\]<std(?:err|out)>:"
    r"|\[rank(?P<rank>\d{1,7})\]:"
    r"|(?:[0-9a-f]{6,12} )?\[rank=(?P<ranked>\d{1,7})\] \|\|"
    r"|(?<!.)\[?[rR](?P<short>\d{1,5})\]? {0,2}\|(?= |$)"
    r"|\(VllmWorker rank=(?P<worker>\d{1,7}) pid=\d{1,9}\)"
    r"|\[(?P<tee>[A-Za-z_][\w-]{0,63}?\d{1,5})\]:"
    r"|\[pod/(?P<pod>[\w.-]{1,253})/[\w.-]{1,253}\]"
    r"|\((?P<actor>[\w.:-]{0,80}(?:\[rank=\d{1,7}\])?(?: [A-Z]{2,8}\d{1,5}){0,4} ?pid=\d{1,9}(?:, ip=[\w.:]{1,45})?)\)"
    r"|\((?P<node>head|worker\d{1,5}), rank=\d{1,7}, pid=\d{1,9}(?:, ip=[\w.:]{1,45})?\)"
    r"|(?P<task>\d{1,7})(?::(?=[ \[]|$)|\|(?= ))"
    r"|(?<!.)\[(?P<box>\d{1,4})\]:?(?= [^\s\[])"
    r"|[\[(](?P<local>(?:GPU|gpu|cuda|device|[Pp]roc|[Pp]rocess|[Ww]orker|[Tt]rainer)[ :_#-]?\d{1,5})[\])]:?(?= )"
    r"|<\w{0,10}> {1,10}(?=\[\d{4}-)|[0-9a-f]{6,12} \|\||[A-Za-z][\w.-]{0,62}/\d{1,5}(?= \[)"
    r"|(?<=\d )\d{1,3}(?:\.\d{1,3}){3} \[(?P<worker_of>\d{1,5})\](?= )"
    # stern: pod, container, and the time that kubelet noted.
    r"|(?<!.)(?P<stern>[a-z][a-z0-9.-]{0,240}-\d{1,5}) [a-z][a-z0-9-]{0,62}(?= \d{4}-\d\d-\d\dT\d)"
    # CloudWatch's stream of a host of SageMaker, behind its time.
    r"|(?<=\d )(?P<stream>(?=\S{1,255}/algo-)[\w.-]{1,128}/(?P<algo>algo-\d{1,4})-\d{10,13})(?= )"
    r"|(?P<service>[A-Za-z][\w.-]{0,62}-\d{1,5}) {1,40}\|(?= |$)"
    r") ?"
)
_OF_ACTOR = re.compile(r"\[rank=(\d{1,7})\]")
"""Of actors of Ray that call themselves by their rank in the job."""
_UNIT = re.compile(r"(?P<host>[\w.-]{1,255}) (?P<unit>[^\s:\[]{1,80}(?:\[\d{1,9}\]|(?<=kernel))): ?")
_RANKED = re.compile(r'"(?:global_)?rank": ?"?(\d{1,7})\b')
_LOGGED = re.compile(r'"(?:log|message|msg)": ?"((?:[^"\\]|\\.)*)')
_STAMP = re.compile(r'"(?:time|ts|timestamp)": ?"([^"]{10,40})"')
# A rank that a program's own logging puts in front, behind times, names, levels and places that are in brackets or set off by
# `|`, ` - ` or `:`. Words set off by nothing are text: somebody else may write of a rank.
_BEFORE = (
    r"(?:(?!rank)(?>\[[^\[\]]{1,80}\]|[A-Z]\d{4} \d\d:\d\d:\d\d\.\d{1,9} {1,4}\d{1,9} [\w./-]{1,80}:\d{1,6}\]"
    r"|\d\d-\d\d \d\d:\d\d:\d\d(?=[ .,])|\w{1,20}=[^\s=]{1,64}(?= )|(?-i:[A-Z]{4,8})(?= )|[\w.-]{1,80}(?= ?[|:]| - ))"
    r"[ |:-]{0,4}+){0,8}?"
)
_NAME = r"(?:global[ _-]?)?rank[ _:=#-]{0,2}"
_WRITER = re.compile(
    rf"[ |:-]{{0,6}}{_BEFORE}(?:"
    rf"[\[(<{{](?:[\w.-]{{1,64}}[:, ] ?)?{_NAME}(?P<inner>\d{{1,7}})(?:/\d{{1,7}})?(?:, ?[^\[\](){{}}<>]{{1,60}})?[\])>}}]"
    rf"|{_NAME}(?P<outer>\d{{1,7}})(?:/\d{{1,7}})?(?:\[[^\[\]]{{1,40}}\])*(?: {{0,2}}[|:]| - )"
    r"|(?:[\w.-]{1,64} )?(?:global_)?rank=(?P<equal>\d{1,7})(?:/\d{1,7})?(?=[ ,:])"
    r")",
    re.IGNORECASE,
)
_OF_GROUP = re.compile(r"\[Rank \d{1,7}\] (?:Watchdog|NCCL|Found|Timeout|Exception|Some|To avoid|Received|Observed|Future)")
"""torch before 2.2 writes the number within the group like this."""
_LABELS = ("task", "pod", "service", "unit", "actor", "tee", "box")
_ALIKE = ("server", "local", "node", "stream", "stern")
_OUTER = ("pod", "service", "unit")
_RANKS = ("rank", "ranked", "short", "tagged", "worker")
_MOST_ELEMENTS = 8
_LONGEST_FRONT = 256


@dataclass(frozen=True, slots=True)
class Front:
    """`labels` are kind and name of who wrote a line, `rank` a global rank that stands there.

    `bare` is the line without times, streams and levels, whose text begins at `text`, behind all labels; `process` is where
    that begins which the process itself wrote, behind labels of containers and units. `time_ns` is CLOCK_REALTIME, None without
    a zone.
    """

    bare: str
    text: int = 0
    rank: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    host: str | None = None
    time_ns: int | None = None
    process: int = 0


def front(line: str) -> Front:
    """Read the front of a line."""
    if line.startswith('{"') and (logged := _LOGGED.search(line)):
        return _unpacked(line, logged)
    kept, place, process = "", 0, 0
    rank = host = time_ns = None
    labels: dict[str, str] = {}
    for _ in range(_MOST_ELEMENTS):
        found = _ELEMENT.match(line, place)
        kind = found.lastgroup if found else None
        # A second label of one kind is text: `2: ` in a list of ranks.
        if found is None or (kind in _LABELS and kind in labels):
            break
        place = found.end()
        if found["date"] or found["syslog"]:
            time_ns = time_ns or _time(found)
            if "unit" not in labels and (said := _UNIT.match(line, place)):
                place, host, labels["unit"] = said.end(), said["host"], f"{said['host']} {said['unit']}"
                kept += said[0]
        elif kind in _RANKS:
            rank = rank_number(found[kind])
        elif kind == "server":
            labels["actor"] = server_title(found["server"])
        elif kind == "local":
            labels["tee"] = re.sub(r"\W", "", found["local"])
        elif kind == "worker_of":
            labels["task"] = found[kind]
        elif kind == "stern":
            labels["pod"] = found["stern"]
        elif kind == "stream":
            host = labels["pod"] = found["algo"]
        elif kind == "node":
            labels["service"] = found[kind]
        elif kind in _LABELS:
            labels[kind] = found[kind]
            own = _OF_ACTOR.search(found[kind]) if kind == "actor" else None
            rank = rank_number(own[1]) if own else rank
        kept += found[0] if kind in (*_LABELS, *_RANKS, *_ALIKE) else ""
        process = len(kept) if labels.keys() <= {*_OUTER} and rank is None else process
    rank = _writer(line, place) if rank is None else rank
    if not place:
        return Front(line, rank=rank)
    known = tuple((kind, labels[kind]) for kind in _LABELS if kind in labels)
    return Front(kept + line[place:], len(kept), rank, known, host, time_ns, process)


def _writer(line: str, place: int) -> int | None:
    """The rank in front of what a program logs, if one stands there; it stays a part of the text, which may list ranks so."""
    if "rank" not in line[place : place + _LONGEST_FRONT].lower():
        return None
    found = _WRITER.match(line, place, place + _LONGEST_FRONT)
    if found is None or _OF_GROUP.search(line, place, found.end() + 16):
        return None
    return rank_number(found[found.lastgroup or 0])


def _unpacked(line: str, logged: re.Match[str]) -> Front:
    """The line in a record of a runtime of containers, or of a shipper of logs."""
    try:
        text = str(orjson.loads(f'"{logged[1]}"')).rstrip()
    except orjson.JSONDecodeError:
        text = logged[1]
    inner, stamp, ranked = front(text), _STAMP.search(line), _RANKED.search(line)
    rank = rank_number(ranked[1]) if ranked and inner.rank is None else inner.rank
    return replace(inner, rank=rank, time_ns=inner.time_ns or (front(stamp[1]).time_ns if stamp else None))


def iso_time(line: str) -> int | None:
    """CLOCK_REALTIME in ns of a line that has an ISO time with a zone in front, behind labels of a launcher or not."""
    return front(line).time_ns


def _time(found: re.Match[str]) -> int | None:
    if found["zone"] is None:
        return None
    zone = "+00:00" if found["zone"] in ("Z", "UTC") else found["zone"]
    try:
        moment = datetime.fromisoformat(found["date"].replace("/", "-") + zone)
    except ValueError:
        return None
    return round(moment.timestamp()) * 1_000_000_000 + int((found["part"] or "0").ljust(9, "0"))
