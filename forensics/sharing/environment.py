"""The saved environment of a process without the values that do not configure the training; their names stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from forensics.bundle.kept_variables import is_kept
from forensics.bundle.redaction import REDACTED, pieces
from forensics.sharing.scrub import Scrub

_ENTRY = re.compile(r"([\n\0])")
# With what `ps e`, `grep -r` and the shell put in front of a variable.
_VARIABLE = re.compile(
    r"(?P<front>(?:[^=\n]{0,80}[\s:])?(?:export |declare -x )?)(?P<name>[A-Za-z_][A-Za-z0-9_]{0,127})=(?P<value>.*)"
)


def redact_environment(chunks: Iterable[bytes], scrub: Scrub) -> Iterator[bytes]:
    """The same entries, lines or closed by zero bytes; a line that goes on a withheld value is withheld with it."""
    withheld = False
    for piece in pieces(chunks):
        made: list[str] = []
        for entry in _ENTRY.split(piece.decode("utf-8", "surrogateescape")):
            if entry in ("\n", "\0"):
                made.append(entry)
                continue
            kept, withheld = _entry(entry, withheld, scrub)
            made.append(kept)
        yield "".join(made).encode("utf-8", "surrogateescape")


def _entry(entry: str, withheld: bool, scrub: Scrub) -> tuple[str, bool]:
    match = _VARIABLE.fullmatch(entry)
    if match is None:
        if withheld and entry.strip() and not entry.lstrip().startswith(("=", "#", "/proc/")):
            scrub.found("environment")
            return REDACTED, True
        return scrub.text(entry), withheld and not entry.strip()
    if is_kept(match["name"]) or not match["value"].strip("\"'"):
        return scrub.text(entry), False
    scrub.found("environment")
    return f"{scrub.text(match['front'])}{match['name']}={REDACTED}", True
