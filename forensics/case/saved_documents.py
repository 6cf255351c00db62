"""Texts inside documents that programs save: mails with their parts, notebooks, documents of Word, recordings of terminals.

A mail is its text, or what its page shows, with the texts that are attached to it below their names; a notebook is the outputs
of its cells in the order in which these ran. What a reply says above a quoted log of something that is over is no evidence.

Upstream: RFC 5322 and 2045 to 2047, nbformat 4 of Jupyter.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from forensics.case.log_records import parsed

MOST_BYTES = 1 << 26
_HEADER = re.compile(rb"(?:[A-Z][\w-]{1,40}: [^\n]{0,2000}\r?\n(?:[ \t][^\n]{0,2000}\r?\n){0,40}){2,80}")
_OF_MAIL = re.compile(rb"(?mi)^(?:MIME-Version|Content-Transfer-Encoding): ")
_NOTEBOOK = re.compile(rb'\s{0,64}\{\s{0,64}"(?:cells|metadata|nbformat)"')
# The part of a document of Word (ECMA-376) that holds its text, and a recording of asciinema, versions 2 and 3.
_DOCUMENT = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,64}(?:<\?xml [^<>]{0,200}>\s{0,64})?<w:document[\s>]")
_RECORDING = re.compile(rb'\{"version": ?[23], ?"[^\n]{2,4000}\}\r?\n\[\d')
_PARAGRAPH, _RUN = re.compile(rb"</w:p>|<w:br ?/?>"), re.compile(rb"<w:t(?: [^<>]{0,80})?>([^<]{0,65536})</w:t>|(<w:tab ?/>)")
_TEXTS = re.compile(r"\.(?:log|txt|out|err|md|json|csv|ya?ml)(?:\.\d{1,3})?$", re.IGNORECASE)
_COMMANDS = ("!", "%%bash", "%%sh")
_LONGEST = 1 << 24
_QUOTED = re.compile(r"[ \t]{0,3}(?:>|On .{4,200} wrote:\s*$)")
_LEAST_QUOTED = 3
# What somebody says of what is over, and what such a sentence says where it is not.
_OVER = re.compile(
    r"\bclos(?:ing|ed) (?:this|it|the (?:ticket|case|issue|incident))\b"
    r"|\b(?:has been|have been|is|was|are|were) (?:now )?(?:resolved|fixed|solved|closed|repaired|replaced)\b"
    r"|\b(?:resolved|solved|fixed)(?:[.!:]| now\b| by\b| after\b| last\b)|\bran through\b|\bworks (?:again|now|fine)\b"
    r"|\bno longer (?:happens|hangs|fails|crashes)\b",
    re.IGNORECASE,
)
_OPEN = re.compile(
    r"\?|\b(?:below|following|still|but|however|came back|not|reopen\w*)\b"
    r"|\b(?:(?:happen\w*|h[au]ngs?|stuck|fail\w*|die[sd]|crash\w*) again)\b",
    re.IGNORECASE,
)


def may_be_saved(head: bytes) -> bool:
    """Whether a file begins as a mail, a notebook, the text of a document of Word or a recording of a terminal does."""
    return any(known.match(head) for known in (_NOTEBOOK, _DOCUMENT, _RECORDING)) or _is_mail(head)


def document_text(content: bytes) -> tuple[str, bytes] | None:
    """What to call the text of such a file, and the text; None for anything else."""
    if _DOCUMENT.match(content):
        return "text.txt", _of_paragraphs(content)
    if _RECORDING.match(content):
        return "terminal.log", b"".join(_of_terminal(content))
    if _NOTEBOOK.match(content):
        outputs = _of_notebook(parsed(content))
        return None if outputs is None else ("outputs.log", outputs)
    return ("mail.txt", _of_mail(content)) if _is_mail(content) else None


def _is_mail(head: bytes) -> bool:
    header = _HEADER.match(head)
    return header is not None and _OF_MAIL.search(header[0]) is not None


def without_settled(content: bytes) -> bytes:
    """The text of a reply without what it quotes, where all that it says itself is that this is over."""
    if b"\n>" not in content:
        return content
    lines = content.decode("utf-8", "replace").split("\n")
    own = [line for line in lines if not _QUOTED.match(line)]
    said = "\n".join(own)
    if len(lines) - len(own) < _LEAST_QUOTED or not _OVER.search(said) or _OPEN.search(said):
        return content
    return "\n".join("" if _QUOTED.match(line) else line for line in lines).encode("utf-8", "replace")


def _of_mail(content: bytes) -> bytes:
    """Its text first, then each text that is attached to it, as `head` prints several files."""
    message = message_from_bytes(content, policy=policy.default)
    body = message.get_body(preferencelist=("plain", "html")) if isinstance(message, EmailMessage) else None
    attached = [(part.get_filename() or "", part) for part in message.walk() if part.get_filename()]
    texts = [f"==> {name} <==\n{_decoded(part)}" for name, part in attached if _TEXTS.search(name)]
    return "\n".join([_decoded(body) if body is not None else "", *texts]).encode("utf-8", "replace")


def _decoded(part: Any) -> str:
    """A part as text; what cannot be decoded is left out."""
    try:
        payload = part.get_payload(decode=True)
    except (ValueError, LookupError):
        return ""
    return payload[:_LONGEST].decode("utf-8", "replace") if isinstance(payload, bytes) else ""


def _of_paragraphs(content: bytes) -> bytes:
    """Each paragraph a line."""
    lines = (b"".join(b"\t" if tab else text for text, tab in _RUN.findall(each)) for each in _PARAGRAPH.split(content))
    return html.unescape(b"\n".join(lines).decode("utf-8", "replace")).encode("utf-8", "replace") + b"\n"


def _of_terminal(content: bytes) -> Iterator[bytes]:
    """What was shown, in its order; what was typed is left out."""
    for line in content.splitlines()[1:]:
        event = parsed(line)
        if isinstance(event, list) and len(event) == 3 and event[1] == "o" and isinstance(event[2], str):
            yield event[2].encode("utf-8", "replace")


def _of_notebook(value: Any) -> bytes | None:
    cells = value.get("cells") if isinstance(value, dict) else None
    if not isinstance(cells, list) or "nbformat" not in value:
        return None
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code" and cell.get("outputs")]
    return "".join(text for cell in sorted(code, key=_ran) for text in _printed(cell)).encode("utf-8", "replace")


def _ran(cell: Mapping[str, Any]) -> tuple[bool, int]:
    """When a cell ran; what ran last, or is running, has no number."""
    number = cell.get("execution_count")
    return (not isinstance(number, int), number if isinstance(number, int) else 0)


def _printed(cell: Mapping[str, Any]) -> Iterator[str]:
    """The commands of a cell as at a prompt, and all that it printed."""
    source = _joined(cell.get("source"))
    if source.lstrip().startswith(_COMMANDS):
        commands = source.lstrip().removeprefix("%%bash").removeprefix("%%sh").splitlines()
        yield from (f"$ {line.removeprefix('!').strip()}\n" for line in commands if line.strip())
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else ():
        data = output.get("data") if isinstance(output, dict) else None
        texts = (
            [output.get("text"), data.get("text/plain") if isinstance(data, dict) else None] if isinstance(output, dict) else []
        )
        yield from (_whole(_joined(text)) for text in texts if text)
        if isinstance(output, dict) and isinstance(traceback := output.get("traceback"), list):
            yield from (_whole(line) for line in traceback if isinstance(line, str))


def _joined(text: Any) -> str:
    return "".join(line for line in text if isinstance(line, str)) if isinstance(text, Sequence) else ""


def _whole(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
