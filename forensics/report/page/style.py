"""How the page looks: light or dark as the reader's system is, and black on white on paper with everything unfolded."""

from __future__ import annotations

from forensics.report.drawing import DARK, LIGHT, style

_LAYOUT = """
*{box-sizing:border-box}
body{margin:0 auto;max-width:78rem;padding:1rem 1.5rem 3rem;font:15px/1.45 system-ui,sans-serif;
  background:var(--paper);color:var(--ink)}
h1{font-size:1.35rem;margin:.4rem 0;white-space:pre-wrap}h2{font-size:1.05rem;margin:0 0 .5rem}
section,header{border-top:1px solid var(--line);padding:.9rem 0}
header{border-top:.4rem solid var(--mark)}
.outcome{color:var(--mark);font-weight:700}
.head p{margin:.25rem 0}
.meta,.note,nav{color:var(--soft);font-size:.87rem}nav a{color:inherit;margin-right:.9rem;white-space:nowrap}
table{border-collapse:collapse;width:100%}td,th{padding:.16rem .6rem .16rem 0;vertical-align:top;text-align:left}
th{font-weight:600;color:var(--soft);white-space:nowrap}tr+tr td{border-top:1px solid var(--line)}
td,th,h1,p{overflow-wrap:anywhere;unicode-bidi:isolate}
.marker{color:var(--soft);min-width:2.5rem;max-width:19rem}.short{white-space:pre}.share{white-space:nowrap}
.wide{width:100%}
code,.source,.frames{font-family:ui-monospace,monospace;font-size:.86em}.source{color:var(--soft)}
.frames{white-space:pre-wrap}.accused td{background:var(--accused)}
.bar{display:inline-block;width:7rem;height:.7rem;border:1px solid var(--line);background:var(--absent)}
.bar i{display:block;float:left;height:100%;background:var(--present)}.bar i.partial{background:var(--partial)}
figure{margin:.4rem 0;overflow-x:auto}svg{max-width:100%;height:auto}
summary{cursor:pointer;color:var(--soft)}details>h2{margin-top:.6rem}
:target{scroll-margin-top:1rem}
"""
_PAPER = """
@media print{body{max-width:none;padding:0;font-size:10pt}nav,summary{display:none}a{color:inherit;text-decoration:none}
details::details-content{content-visibility:visible;display:block;height:auto}section{break-inside:auto}
h2{break-after:avoid}tr,figure{break-inside:avoid}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
@page{margin:14mm}
"""
_LIGHT = {
    "paper": LIGHT["paper"],
    "ink": LIGHT["ink"],
    "soft": "#595959",
    "line": "#dcdcdc",
    "accused": "#fdeae7",
    "present": "#5b9a62",
    "partial": "#d9a72c",
    "absent": "#ececec",
}
_DARK = {
    "paper": DARK["paper"],
    "ink": DARK["ink"],
    "soft": "#a9adb4",
    "line": "#363a41",
    "accused": "#43201b",
    "present": "#5b9a62",
    "partial": "#b98d1f",
    "absent": "#2a2d33",
}
_MARKS = {
    "hang": ("#b3261e", "#ff8a7a"),
    "failstop": ("#b3261e", "#ff8a7a"),
    "slowdown": ("#8a5a00", "#f2c14e"),
    "inconclusive": ("#8a5a00", "#f2c14e"),
    "healthy": ("#1f6b2c", "#7fcf8b"),
}


def sheet(outcome: str) -> str:
    """The style sheet of the page of a verdict with this outcome."""
    light, dark = _MARKS[outcome]
    bright = f":root{{color-scheme:light dark;{_named(_LIGHT | {'mark': light})}}}{style(LIGHT)}"
    night = f"@media screen and (prefers-color-scheme:dark){{:root{{{_named(_DARK | {'mark': dark})}}}{style(DARK)}}}"
    return bright + _LAYOUT + night + _PAPER


def _named(colours: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in colours.items())
