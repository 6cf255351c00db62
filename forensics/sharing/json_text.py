"""JSON without secrets and names, streamed: only texts that hold one are written anew, everything else keeps its bytes.

Works on one document, lines of documents, and documents that are cut. What turns out not to be JSON is treated as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from forensics.bundle.redaction import REDACTED, is_flag, is_no_secret, is_secret_name, may_hold_secret
from forensics.sharing.scrub import Scrub

# An unterminated text matches too, up to the end: else each quote in it would be tried anew.
_LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)', re.DOTALL)
_BYTES_LITERAL = re.compile(_LITERAL.pattern.encode(), re.DOTALL)
_BETWEEN = re.compile(r"[\s\[\]{},:\d.+\-eE]*(?:(?:true|false|null|NaN|Infinity)[\s\[\]{},:\d.+\-eE]*)*")
_OF_KEY = re.compile(r":\s*\[?")
_SCALAR = re.compile(r"(\s*:\s*)(-?[\d.eE+-]{4,})")
_PIECE = 1 << 20
_LONGEST = 32 << 20
_MOST_CLEAN = 1 << 17


def is_json(head: bytes) -> bool:
    """Whether the first bytes of a file are JSON: outside of its texts there is nothing but marks and numbers."""
    text = head.decode("utf-8", "surrogateescape").lstrip("\ufeff \t\r\n")
    if text[:1] not in ("{", "["):
        return False
    outside = _LITERAL.sub("", text)
    return _BETWEEN.fullmatch(re.sub(r"[a-zA-Z]+$", "", outside)) is not None and ('"' in text or ":" not in text)


def redact_json(chunks: Iterable[bytes], scrub: Scrub) -> Iterator[bytes]:
    """The same document with texts replaced, in pieces of about 1 MiB."""
    reader = _Reader(scrub)
    for piece in _whole_texts(chunks):
        yield reader.piece(piece).encode("utf-8", "surrogateescape")


def _whole_texts(chunks: Iterable[bytes]) -> Iterator[str]:
    """Pieces that are cut in front of a text, so that a key and its value, and a flag and its word, meet in the next one."""
    rest, due = bytearray(), _PIECE
    for chunk in chunks:
        rest += chunk
        if len(rest) < due:
            continue
        cut = _last_text(rest)
        due = _PIECE if cut else len(rest) + _PIECE
        if cut or len(rest) > _LONGEST:
            cut = cut or len(rest)
            yield rest[:cut].decode("utf-8", "surrogateescape")
            del rest[:cut]
    yield rest.decode("utf-8", "surrogateescape")


def _last_text(content: bytearray) -> int:
    """Where the last complete text begins, 0 when there is none."""
    last = 0
    for match in _BYTES_LITERAL.finditer(content):
        last = match.start() if match[1].endswith(b'"') else last
    return last


class _Reader:
    """Goes through the texts of one document; what the last ones were decides what the next one is."""

    def __init__(self, scrub: Scrub) -> None:
        self._scrub = scrub
        self._clean: set[str] = set()
        self._last = ""
        self._named = ""
        self._in_secrets = False
        self._is_near_secret = True

    def piece(self, source: str) -> str:
        """One piece of the document; one without any mark of a secret, behind another such one, stays as it is."""
        was_near = self._is_near_secret
        self._is_near_secret = "\\u" in source or "\\/" in source or may_hold_secret(source.lower())
        if not (was_near or self._is_near_secret or self._scrub.pseudonyms.kinds):
            self._last, self._named, self._in_secrets = "", "", False
            return source
        made: list[str] = []
        at = 0
        for match in _LITERAL.finditer(source):
            if not match[1].endswith('"'):
                break
            between = source[at : match.start()]
            if not _BETWEEN.fullmatch(between):
                return self._scrub.text(source)
            made += (self._number(between), self._literal(match[0], between))
            at = match.end()
        return "".join([*made, self._rest(source[at:])])

    def _rest(self, rest: str) -> str:
        """What stands behind the last whole text: marks, or the begin of a text that was cut."""
        between, mark, begun = rest.partition('"')
        if not mark or not _BETWEEN.fullmatch(between):
            return self._number(rest) if _BETWEEN.fullmatch(rest) else self._scrub.text(rest)
        if self._is_secret(between):
            self._scrub.found("named_secret")
            return f"{self._number(between)}{mark}{REDACTED}"
        return f"{self._number(between)}{mark}{self._scrub.text(begun)}"

    def _number(self, between: str) -> str:
        """What stands between two texts, without a number that a secret's name was given."""
        if ":" not in between or not is_secret_name(self._last):
            return between
        shown = _SCALAR.sub(rf'\1"{REDACTED}"', between, count=1)
        if shown != between and not is_no_secret(self._last, between.strip(" :,\n}]")):
            self._scrub.found("named_secret")
            return shown
        return between

    def _literal(self, literal: str, between: str) -> str:
        secret = self._is_secret(between)
        value = _value(literal)
        if not secret and literal in self._clean:
            self._remember(value, between)
            return literal
        kept = self._secret(value) if secret else self._scrub.text(value)
        self._remember(value, between)
        if kept == value:
            if len(self._clean) >= _MOST_CLEAN:
                self._clean.clear()
            if not secret:
                self._clean.add(literal)
            return literal
        return json.dumps(kept)

    def _secret(self, value: str) -> str:
        if is_no_secret(self._last, value):
            return self._scrub.text(value)
        self._scrub.found("named_secret")
        return REDACTED

    def _is_secret(self, between: str) -> bool:
        """Whether the next text is the value of a name that says secret: of a key, of an option, of a list of pairs."""
        mark = between.strip()
        if "]" in mark or "{" in mark:
            self._in_secrets = False
        if _OF_KEY.fullmatch(mark):
            self._in_secrets = is_secret_name(self._last) and mark.endswith("[")
            return is_secret_name(self._last) or (self._last == "value" and is_secret_name(self._named))
        return self._in_secrets or (mark == "," and is_flag(self._last))

    def _remember(self, value: str, between: str) -> None:
        if self._last == "name" and between.strip() == ":":
            self._named = value
        self._last = value if not self._in_secrets else self._last


def _value(literal: str) -> str:
    """The text that a literal means; as it stands when its escapes are broken."""
    if "\\" not in literal:
        return literal[1:-1]
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        return literal[1:-1]
    return value if isinstance(value, str) else literal[1:-1]
