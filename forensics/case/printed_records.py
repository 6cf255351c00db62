"""Records of logs as tools of stores print them for people: lines of logcli (Loki), entries of `gcloud logging read`.

Upstream: pkg/logcli/output/default.go of grafana/loki; the default format of gcloud is YAML, an entry each below `---`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.case.log_records import Record, record_of

_LINE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)) "
    r"\{(?P<labels>(?:\w{1,64}=\"[^\"\n]{0,400}\"(?:, ?)?){0,40})\} {1,40}(?P<text>.*)"
)
_LABEL = re.compile(r'(\w{1,64})="([^"\n]{0,400})"')
_OF_LOGCLI = re.compile(rb'(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\S{2,20} \{\w{1,64}="')
_OF_GCLOUD = re.compile(rb"(?:---\r?\n)?insertId: \S")
_ENTRY = re.compile(r"(?m)^---$")
_VALUE = re.compile(r"(?m)^(?P<indent> {0,8})(?P<name>\w{1,40}): (?P<value>.*(?:\n(?P=indent) +.*)*)")
_TEXTS = ("textPayload", "message")
_PLACES = ("timestamp", "pod_name", "container_name", "node_name")
_MOST_OTHERS = 0.2


def may_be_printed(head: bytes) -> bool:
    """Whether a file begins as one of these does."""
    return _OF_GCLOUD.match(head) is not None or _OF_LOGCLI.search(head) is not None


def printed_records(content: bytes) -> list[Record]:
    """The records in their order; nothing for anything else."""
    text = content.decode("utf-8", "replace")
    return [*_entries(text)] if _OF_GCLOUD.match(content) else _lines(text)


def _lines(text: str) -> list[Record]:
    """Lines of logcli; others among them, such as its command and labels that all share, are left out if they are few."""
    written = [line for line in text.splitlines() if line.strip()]
    found = [said for line in written if (said := _LINE.fullmatch(line))]
    if len(written) - len(found) > max(3, _MOST_OTHERS * len(written)):
        return []
    records = (
        record_of({**dict(_LABEL.findall(said["labels"])), "line": said["text"], "time": said["time"]}) for said in found
    )
    return [record for record in records if record is not None]


def _entries(text: str) -> Iterator[Record]:
    for entry in _ENTRY.split(text.replace("\r\n", "\n")):
        values: dict[str, str] = {}
        for said in _nested(entry):
            values.setdefault(said["name"], _scalar(said["value"]))
        logged = next((values[name] for name in _TEXTS if name in values), None)
        record = record_of({"line": logged, **{name: values[name] for name in _PLACES if name in values}}) if logged else None
        if record is not None:
            yield record


def _nested(entry: str) -> Iterator[re.Match[str]]:
    """Names with a value of their own, at any depth; what goes on in further lines is of the name above it."""
    place = 0
    while said := _VALUE.search(entry, place):
        place = said.end()
        yield said


def _scalar(value: str) -> str:
    """A scalar of YAML: a block, quoted over several lines, or plain."""
    first, _, rest = value.partition("\n")
    if first[:1] == "|":
        lines = rest.split("\n")
        indent = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
        return "\n".join(line[indent:] for line in lines)
    joined = " ".join(line.strip() for line in value.split("\n"))
    if joined[:1] == joined[-1:] == "'":
        return joined[1:-1].replace("''", "'")
    return joined[1:-1].replace('\\"', '"').replace("\\n", "\n") if joined[:1] == joined[-1:] == '"' else joined
