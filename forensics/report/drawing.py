"""Drawings in SVG that are coloured by class: a file of its own, or part of a page that is light or dark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from forensics.report.markup import Attribute, Markup, join, tag

LIGHT: Mapping[str, str] = {
    "paper": "#ffffff",
    "ink": "#1a1a1a",
    "faint": "#d4d4d4",
    "forward": "#9ec5e8",
    "backward": "#a8d5a2",
    "late": "#e05a47",
    "absorbed": "#f2c14e",
    "suspect": "#e05a47",
    "waits": "#9ec5e8",
    "heat": "#e0301e",
    "send": "#1f6fb4",
    "recv": "#c26a00",
    "unknown": "#bbbbbb",
}
"""Colours by name; text on any of them is legible in `ink`."""
DARK: Mapping[str, str] = {
    "paper": "#16181c",
    "ink": "#e8e8e8",
    "faint": "#44484f",
    "forward": "#2c5f8a",
    "backward": "#33683a",
    "late": "#b03a2a",
    "absorbed": "#86651a",
    "suspect": "#b03a2a",
    "waits": "#2c5f8a",
    "heat": "#ff5a45",
    "send": "#6db3f2",
    "recv": "#f0a04b",
    "unknown": "#666b73",
}
_FILLED = ("forward", "backward", "late", "absorbed", "suspect", "waits", "heat", "unknown")
_DRAWN = ("send", "recv")


@dataclass(frozen=True, slots=True)
class Drawing:
    """What is drawn (elements of SVG), on `width` by `height` pixels; `says` is its content in one sentence."""

    width: int
    height: int
    says: str
    body: tuple[str, ...]


def style(colours: Mapping[str, str]) -> str:
    """CSS of the classes that drawings use."""
    filled = "".join(f"svg .{name}{{fill:{colours[name]}}}" for name in _FILLED)
    drawn = "".join(
        f"svg .{name}{{stroke:{colours[name]};fill:none}}svg text.{name}{{fill:{colours[name]};stroke:none}}" for name in _DRAWN
    )
    ink, faint = colours["ink"], colours["faint"]
    lines = f"svg line,svg .edge{{stroke:{ink}}}svg .faint{{stroke:{faint}}}svg rect{{stroke:{faint};stroke-width:.5}}"
    marked = f"svg .marked{{stroke:{ink};stroke-width:2}}"
    return f"svg text{{fill:{ink}}}{filled}{drawn}{lines}{marked}svg .paper{{fill:{colours['paper']};stroke:none}}"


def inline(drawing: Drawing) -> Markup:
    """The drawing inside a page, which colours it and makes it as narrow as it has to be."""
    return _svg(drawing, join(map(Markup, drawing.body), "\n"))


def alone(drawing: Drawing) -> str:
    """The drawing as a file of its own, light."""
    paper = tag("rect", class_="paper", width="100%", height="100%")
    head = (Markup(f"<style>{style(LIGHT)}</style>"), paper)
    return _svg(drawing, join((*head, *map(Markup, drawing.body)), "\n")) + "\n"


def _svg(drawing: Drawing, body: Markup) -> Markup:
    box = f"0 0 {drawing.width} {drawing.height}"
    size: dict[str, Attribute] = {"width": drawing.width, "height": drawing.height, "viewBox": box}
    fonts: dict[str, Attribute] = {"font_family": "sans-serif", "font_size": 11}
    return tag("svg", body, xmlns="http://www.w3.org/2000/svg", role="img", aria_label=drawing.says, **size, **fonts)
