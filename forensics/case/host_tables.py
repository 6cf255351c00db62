"""Tables of devices that somebody took on several hosts and pasted into one text: each is of the host that stands above it.

A loop over hosts, clush and dshbak print a heading, a shell its prompt, and pdsh the host in front of each line. Read as one
table, devices of one name are those of whichever host stands last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from hashlib import sha256
from io import BytesIO
from typing import NamedTuple

from forensics.bundle.artefact import Artefact
from forensics.case.plain_text import unstamped
from forensics.ingest import SNIFF_BYTES, choose, without_colours
from forensics.ingest._shared.prompts import command_host, is_command
from forensics.ingest._shared.stack_headings import below_rule, heading_of, host_before, is_rule

_MARKS = (
    b"| NVIDIA-SMI ",
    b"==NVSMI LOG==",
    b"MiB / ",
    b"CA '",
    b"ounters: Lid ",
    b" ROCm System Management Interface ",
    b"index, ",
    b" %, ",
    b" ==> ",
    b"physical_state ",
    b" TOTAL_UNCORRECTABLE_COUNT: ",
    b" GFX_CLK ",
    b" Link 0: ",
    b"Mb/s",
    b"LnkSta:",
    b" | Asserted",
)
"""One of these stands in every such table, also where its head was cut off."""
_ALONE = b"Unable to determine the device handle"
"""A loop over hosts prints a line for each, and this one for the host whose GPU is lost."""
_FORMS = frozenset({"nvidia_smi", "rocm_smi", "ib_counters", "gpu_table", "system_event_log"})
_FENCE = "```"
_OF_PERFQUERY = "# Port "
_LEAST, _MOST_HOSTS = 2, 64


class _Span(NamedTuple):
    """Lines from a command, a heading or the fence of a block on, those before `end`, and the host that is named there.

    `first` is the line below the heading: a table that all of its lines show is one without it.
    """

    host: str | None
    begin: int
    end: int
    first: int


def host_tables(artefact: Artefact, content: bytes) -> tuple[Artefact, list[Artefact]]:
    """The text without its tables, and these; the text as it is where it does not hold two of them."""
    if b"\0" in content or (_ALONE not in content and sum(content.count(mark) for mark in _MARKS) < _LEAST):
        return artefact, []
    whole = without_colours(content).replace(b"\r\n", b"\n")
    lines, own = unstamped(whole).splitlines(keepends=True), whole.splitlines(keepends=True)
    texts = [line.decode("utf-8", "replace").rstrip() for line in lines]
    if labelled := _labelled(artefact, texts):
        return replace(artefact, open=partial(BytesIO, b""), stored_bytes=0), labelled
    spans = [span for span in _spans(texts) if _is_table(b"".join(lines[span.first : span.end]), artefact.path)]
    inside = {number for span in spans for number in range(span.begin, span.end)}
    rest = b"".join(b"\n" if number in inside else line for number, line in enumerate(own))
    # What is left of a table whose head was cut off would be taken for that of the next host.
    is_cut = bool(spans) and any(mark in rest for mark in _MARKS) and _is_table(content, artefact.path)
    is_lost = len(spans) == 1 and spans[0].host is not None and _ALONE in content
    if len(spans) < _LEAST and not is_cut and not is_lost:
        return artefact, []
    if not any(text.strip() and not is_command(text) for number, text in enumerate(texts) if number not in inside):
        rest = b""
    tables = [_part(artefact, b"".join(lines[span.first : span.end]), span.first, span.host) for span in spans]
    return replace(artefact, stored_bytes=len(rest), open=partial(BytesIO, rest), sha256=None), tables


def _is_table(text: bytes, path: str) -> bool:
    form = choose(text.lstrip()[:SNIFF_BYTES], path)
    return form is not None and form.name in _FORMS


def _spans(texts: list[str]) -> Iterator[_Span]:
    begins: list[tuple[int, str | None, int]] = [(0, None, 0)]
    headed: str | None = None
    for number, text in enumerate(texts):
        above = texts[number - 1] if number else ""
        if is_command(text) and not text.startswith(_OF_PERFQUERY):
            # Below a heading a command that names no host is one of that host.
            host = command_host(text)
            headed = None if host else headed
            begins.append((number, host or headed, number + 1))
        elif text.startswith(_FENCE):
            # A block right below a command or a heading is what it tells of.
            begins += [] if begins[-1][0] == number - 1 and number > 1 else [(number, None, number)]
        elif is_rule(above) and is_rule(texts[number + 1] if number + 1 < len(texts) else "") and (said := below_rule(text)):
            headed = said.host
            begins.append((number - 1, headed, number + 2))
        elif (heading := heading_of(text)) and heading.host:
            headed = heading.host
            begins.append((number, headed, number + 1))
    for (begin, host, first), end in zip(begins, [*(begin for begin, *_ in begins[1:]), len(texts)], strict=True):
        yield _Span(host, begin, end, first)


def _labelled(artefact: Artefact, texts: list[str]) -> list[Artefact]:
    """The lines of each host where it stands in front of nearly all, and what each of them wrote begins as such a table."""
    found = [host_before(text) for text in texts]
    hosts = sorted({said[0] for said in found if said})
    if not _LEAST <= len(hosts) <= _MOST_HOSTS or 5 * sum(map(bool, found)) < 4 * sum(map(bool, texts)):
        return []
    parts = []
    for host in hosts:
        first = next(number for number, said in enumerate(found) if said and said[0] == host)
        own = (f"{said[1]}\n".encode() if said and said[0] == host else b"\n" for said in found[first:])
        parts.append(_part(artefact, b"".join(own), first, host))
    return parts if all(_is_table(part.begin(SNIFF_BYTES), part.path) for part in parts) else []


def _part(artefact: Artefact, content: bytes, begin: int, host: str | None) -> Artefact:
    """A table as an artefact; a copy of the text holds copies of its tables, which the digest shows."""
    placed = replace(artefact, host=host) if host is not None and artefact.host is None else artefact
    digest = sha256(content).hexdigest()
    return replace(placed, stored_bytes=len(content), open=partial(BytesIO, content), sha256=digest, lines_before=begin)
