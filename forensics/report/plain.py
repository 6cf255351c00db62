"""Makes a string that came out of evidence safe to show: one line, no control, format or bidirectional characters.

Frame names, host names and log lines are written by whoever wrote the job; a terminal escape in them must not repaint the
report, and a newline must not forge a line of it.
"""

from __future__ import annotations


def plain(text: str) -> str:
    r"""The text with every character that is not printable as a visible escape: `\x1b`, `\n`, `\u202e`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def brief(text: str, limit: int) -> str:
    """The plain text, shortened to `limit` characters with `...`; the full text stands elsewhere, or in the JSON document."""
    shown = plain(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 3] + "..."
