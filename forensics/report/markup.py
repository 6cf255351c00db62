"""HTML that is safe by its type: a `Markup` is markup, every other string is text and is escaped where it enters an element.

Host names, frames and log lines come from strangers. What is not printable (controls, bidirectional overrides, lone halves of
surrogates) is shown as a visible escape, as in every other report.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from forensics.report.plain import brief, plain

LONGEST = 2_000
"""Characters of one text; a name made to fill a page may have millions."""

Attribute = str | float | None
"""Value of an attribute; None leaves it out."""

_EMPTY_ELEMENTS = {"meta", "br", "rect", "line", "path", "polyline"}


class Markup(str):
    """A string that is HTML or SVG already; only this module and renderers of drawings make one."""

    __slots__ = ()


def text(raw: str, limit: int = LONGEST) -> Markup:
    """The string as text on one line, quotes included, so that it may also stand in an attribute."""
    return raw if isinstance(raw, Markup) else Markup(escape(brief(raw, limit)))


def tag(element: str, /, *children: str, **attributes: Attribute) -> Markup:
    """An element. Attributes that are None are left out, none is shortened; `_` in a name is a hyphen, at its end dropped."""
    head = "".join(f' {_named(key)}="{escape(plain(str(value)))}"' for key, value in attributes.items() if value is not None)
    if element in _EMPTY_ELEMENTS and not children:
        return Markup(f"<{element}{head}/>")
    return Markup(f"<{element}{head}>{join(children)}</{element}>")


def join(parts: Iterable[str], between: str = "") -> Markup:
    """The parts one after the other, those that are no markup escaped."""
    return Markup(text(between).join(text(part) for part in parts))


def _named(key: str) -> str:
    return key.removesuffix("_").replace("_", "-")
