"""Recorder dumps of several ranks as scripts of users print them: a line, a row of a table or an object of JSON for each call.

What counts is rank, number, kind and state of a call; each becomes an entry of the dump of its rank. A call that stands there
twice is one that a running job printed as it went on: such a text is no dump.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from typing import Any

import orjson

from forensics.bundle.artefact import Artefact
from forensics.case.log_records import parsed
from forensics.ingest import SNIFF_BYTES, choose
from forensics.ingest._job_logs.watchdog_lines import kind_of
from forensics.ingest._shared.stack_headings import heading_of

_WORDS = (b"started", b"scheduled", b"completed")
_ALL = "default_pg"
_IN_LINES = (*_WORDS, b"rank", b"Rank", b"RANK")
_OF_ONE = ("training_log", "flight_recorder")
_LEAST, _MOST, _DEEPEST, _LONGEST = 2, 1 << 16, 6, 1000
_MOST_BYTES = 1 << 20
_STATE = re.compile(r"(?<![A-Za-z_])(scheduled|started|completed)(?![A-Za-z_])")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9])(?:collective_)?(?:seq(?:uence)?(?:[ _]?(?:id|no|num(?:ber)?))?|op_id)[\"']?[ =:#]{1,3}(\d{1,18})\b", re.I
)
_KIND = re.compile(
    r"(?<![A-Za-z0-9])_?(?:all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast|barrier|reduce|gather|scatter)"
    r"(?:_(?:base|into_tensor|tensor|single|coalesced))*(?![A-Za-z0-9_])",
    re.I,
)
_RANK = re.compile(r"(?<![A-Za-z0-9.-])(?:global[ _]?)?rank[\"']?[ =:#_]{0,3}(\d{1,7})(?![\w.])", re.I)
_GROUP = re.compile(r"(?<![A-Za-z])(?:pg|process_group|group|pg_name)[\"']?[ =:]{1,3}[\"'(\[]{0,2}([\w.-]{1,64})", re.I)
_SIZE = re.compile(r"(?<![A-Za-z_])(?:size|world(?:_size)?|nranks)[\"']?[ =:]{1,3}(\d{1,7})\b", re.I)
_SHAPES = re.compile(r"\[\[[\d, ]{0,200}\](?:, ?\[[\d, ]{0,200}\]){0,8}\]")
_OF_RANK = re.compile(r"(?:global_?)?rank[ _-]?(\d{1,7})", re.I)
# What torch itself prints of calls has readers of its own.
_KNOWN = re.compile(r"Watchdog|ProcessGroup\w*\.cpp|NCCL (?:INFO|WARN)|Collective sequence number")
_CELLS = re.compile(r"\s{0,8}[,;|\t]\s{0,8}|\s{2,40}")
_COLUMNS = {"status": "state", "operation": "op", "collective": "op", "profiling_name": "op", "op_type": "op", "group": "pg"}
_NEEDED = ("rank", "state", "op")


@dataclass(frozen=True, slots=True)
class _Call:
    """One call of one rank, with the group and its size as far as they are printed."""

    rank: int
    group: str
    number: int
    kind: str
    state: str
    size: int | None
    shapes: str


def printed_dumps(artefact: Artefact, content: bytes) -> tuple[Artefact, ...]:
    """A dump for each rank of which calls are printed, behind the rest of the text.

    Nothing where not each call of several ranks stands there once, and of a file of another form.
    """
    if len(content) > _MOST_BYTES or not any(word in content for word in _WORDS):
        return ()
    known = choose(content[:SNIFF_BYTES], artefact.path)
    if known is not None and known.name not in _OF_ONE:
        return ()
    if content.lstrip()[:1] in (b"{", b"["):
        document = parsed(content)
        whole = _whole(document)
        parts = tuple(_part(artefact, rank, orjson.dumps(whole[rank])) for rank in sorted(whole))
        return parts or _dumps(artefact, list(_in_document(document, None, "", 0)))
    lines = content.splitlines(keepends=True)
    numbered = dict(_in_lines(lines))
    dumps = _dumps(artefact, list(numbered.values()))
    rest = b"".join(b"\n" if number in numbered else line for number, line in enumerate(lines))
    is_all = not dumps or not rest.strip(b"`~ \t\r\n")
    return dumps if is_all else (replace(artefact, open=partial(BytesIO, rest), stored_bytes=len(rest)), *dumps)


def _dumps(artefact: Artefact, calls: Sequence[_Call]) -> tuple[Artefact, ...]:
    by_rank: dict[int, list[_Call]] = defaultdict(list)
    for call in calls:
        by_rank[call.rank].append(call)
    once = len({(call.rank, call.group, call.number) for call in calls}) == len(calls) <= _MOST
    if len(by_rank) < _LEAST or not once or not _are_of_one_group(calls):
        return ()
    return tuple(_dump(artefact, rank, by_rank[rank]) for rank in sorted(by_rank))


def _are_of_one_group(calls: Sequence[_Call]) -> bool:
    """Whether calls of which no group is printed can be of one: alike, and but for one rank at one number."""
    last = {call.rank: call for call in sorted(calls, key=lambda call: call.number) if not call.group}
    numbers = Counter(call.number for call in last.values())
    return len({call.kind for call in last.values()}) <= 1 and sum(numbers.values()) - max(numbers.values(), default=0) <= 1


def _whole(value: Any) -> dict[int, Any]:
    """Whole dumps of several ranks in one document, by a key or a value that says whose they are."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found: dict[int, Any] = {}
    for key, each in items:
        if not (isinstance(each, dict) and isinstance(each.get("entries"), list)):
            return {}
        named = _OF_RANK.fullmatch(str(key)) if isinstance(value, dict) else None
        rank = int(named[1]) if named else each.get("rank")
        if not isinstance(rank, int) or rank in found:
            return {}
        found[rank] = each
    return found if len(found) >= _LEAST else {}


def _in_lines(lines: Sequence[bytes]) -> Iterator[tuple[int, _Call]]:
    """Calls with the numbers of their lines."""
    header: Sequence[str] = ()
    above: int | None = None
    for number, written in enumerate(lines):
        if len(written) > _LONGEST or not any(word in written for word in _IN_LINES):
            continue
        line = written.decode("utf-8", "replace").rstrip()
        cells = _CELLS.split(line.strip(" |\t"))
        if len(header) == len(cells) and _STATE.search(line):
            line = " ".join(f"{name}={cell}" for name, cell in zip(header, cells, strict=True))
        elif (names := _names(cells)) is not None:
            header = names
        if _KNOWN.search(line):
            continue
        if (call := _call(line, above)) is not None:
            yield number, call
        elif (heading := heading_of(line)) is not None:
            above = heading.rank


def _names(cells: Sequence[str]) -> Sequence[str] | None:
    """The columns of a table of calls."""
    found = [_COLUMNS.get(name := cell.strip(" *`\"'").lower(), name) for cell in cells]
    return found if all(name in found for name in _NEEDED) else None


def _call(line: str, above: int | None) -> _Call | None:
    state, number, kind = _STATE.findall(line), _NUMBER.search(line), _KIND.search(line)
    if len(state) != 1 or number is None or kind is None:
        return None
    said, size, group, shapes = _RANK.search(line), _SIZE.search(line), _GROUP.search(line), _SHAPES.search(line)
    rank = int(said[1]) if said else above
    if rank is None:
        return None
    stated = int(size[1]) if size else None
    return _Call(
        rank, group[1] if group else "", int(number[1]), kind_of(kind[0]), state[0], stated, shapes[0] if shapes else ""
    )


def _in_document(value: Any, rank: int | None, around: str, depth: int) -> Iterator[_Call]:
    """Calls in objects, below a key or beside a value that says whose they are; `around` is what stands beside them."""
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return
    if isinstance(value, list):
        for each in value[:_MOST]:
            yield from _in_document(each, rank, around, depth + 1)
        return
    own = value.get("rank", value.get("global_rank"))
    rank = own if isinstance(own, int) and not isinstance(own, bool) else rank
    said = " ".join(f"{name}={orjson.dumps(each).decode()}" for name, each in value.items() if not isinstance(each, dict))
    if (call := _call(f"{said[:_LONGEST]} {around[:_LONGEST]}", rank)) is not None:
        yield call
        return
    for key, each in value.items():
        named = _OF_RANK.fullmatch(key)
        yield from _in_document(each, int(named[1]) if named else rank, said, depth + 1)


def _dump(artefact: Artefact, rank: int, calls: Sequence[_Call]) -> Artefact:
    """The calls as torch writes a dump of one rank."""
    entries = [
        {
            "record_id": place,
            "process_group": [call.group or _ALL, call.group or _ALL],
            "collective_seq_id": call.number,
            "profiling_name": f"nccl:{call.kind}",
            "state": call.state,
            "input_sizes": orjson.loads(call.shapes or "[]"),
            "output_sizes": orjson.loads(call.shapes or "[]"),
            "frames": [],
        }
        for place, call in enumerate(sorted(calls, key=lambda call: (call.group, call.number)))
    ]
    size = max((call.size or 0 for call in calls if call.group in ("", _ALL)), default=0)
    groups = {_ALL: {"name": _ALL, "desc": _ALL, "ranks": str(list(range(size)))}} if 0 < size <= _MOST else {}
    return _part(artefact, rank, orjson.dumps({"version": "2.4", "pg_config": groups, "entries": entries}))


def _part(artefact: Artefact, rank: int, content: bytes) -> Artefact:
    return replace(
        artefact,
        path=f"{artefact.path}/rank_{rank}.json",
        open=partial(BytesIO, content),
        stored_bytes=len(content),
        sha256=None,
        rank=rank,
        rank_method="path",
    )
