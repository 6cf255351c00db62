"""Instructions among the evidence: messages that they quote have not happened."""

from __future__ import annotations

import re

LARGEST_MANUAL = 1 << 18
_TITLE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s{0,64}#{1,2} [^\n]{0,120}?"
    rb"\b(?i:run-?book|play-?book|troubleshooting|how[ -]to|user guide|faq|cheat ?sheet)\b"
)
_COMMAND = re.compile(
    r"\s*(?:[$#>] |(?:sudo |kubectl |nvidia-smi|dmesg|ps |py-spy |ssh |export |scontrol |sinfo |ib\w+ |grep |cat ))"
)
_LONGEST_QUOTE = 3


def may_be_manual(head: bytes) -> bool:
    """Whether a text begins with a title of such."""
    return _TITLE.match(head) is not None


def is_manual(content: bytes) -> bool:
    """Whether a text with such a title quotes no more than a few lines at once, commands aside: a report has logs below it."""
    if not may_be_manual(content) or len(content) > LARGEST_MANUAL:
        return False
    quoted, is_inside = 0, False
    for line in content.decode("utf-8", "replace").splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            quoted, is_inside = 0, not is_inside
        elif is_inside or line.startswith(("    ", "\t")):
            quoted += bool(line.strip()) and _COMMAND.match(line) is None
        elif line.strip():
            quoted = 0
        if quoted > _LONGEST_QUOTE:
            return False
    return True
