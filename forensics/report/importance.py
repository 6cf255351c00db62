"""Which parts of a report matter more: the order of the page, and what a ticket keeps longest."""

from __future__ import annotations

_FIRST = (
    *("EVIDENCE", "NEXT STEPS", "WHY NOT THE NEXT BEST", "CAVEATS", "WHAT WOULD CHANGE THIS VERDICT", "KNOWN DEFECTS"),
    *(
        "DETAILS",
        "LAST LOG LINES",
        "WHO WAITS FOR WHOM",
        "WAITING",
        "WHERE EVERYONE IS",
        "GROUPS",
        "CRITICAL PATH",
        "INCOMPLETE GRAPH",
    ),
    *("STAGES", "NIC RATES", "TIMELINE", "CLOCKS OF HOSTS", "COVERAGE", "COULD NOT BE READ"),
)
REASSURING = ("RULED OUT", "ALTERNATIVES", "OBSERVED", "HYPOTHESES")
"""Parts that one reads when the verdict is in doubt; they come last."""


def importance(title: str) -> int:
    """Place of a section: what one acts on, what that rests on, other faults, then what was found not to be."""
    if title in REASSURING:
        return len(_FIRST) + 1 + REASSURING.index(title)
    known = "LAST LOG LINES" if title.startswith("LAST LOG LINES OF ") else title
    return _FIRST.index(known) if known in _FIRST else len(_FIRST)
