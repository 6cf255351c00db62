"""Lines above a stack that say whose it is: a rank, a process, or the others, of which nothing tells the ranks."""

from __future__ import annotations

import re

LONGEST_HEADING = 160
_STACKS_OF = (
    r"(?:the )?(?:call |python |py-spy )?(?:stacks?|stack ?traces?|traces?|back ?traces?|dumps?|output) (?:of|for|from|on) "
)
# The stacks of those that nobody counts: "The stack for all other ranks:".
OTHERS = re.compile(
    rf"(?!\s{{4}})[=#*\s-]*(?:{_STACKS_OF})?(?:(?:all |the )*(?:others?|remaining)|(?:the )?rest of(?: the)?)"
    r"(?: \d{1,7})?(?: ranks?| workers?| processes)\b[^:.]{0,60}[:=#*\s-]*",
    re.I,
)
# A heading of a text with the stacks of several ranks, such as "=== Rank 3 ===", "Rank 3: http://node-1:25999", or the command
# that took one: "$ py-spy dump --pid 88 # rank 3".
# What is far to the right is the value of a variable.
HEADING = re.compile(
    r"(?!\s{4})[=#*\s-]*(?:\$? ?(?:sudo )?(?:py-spy dump|pystack remote|gdb) [^#]{1,80}#+\s*|"
    + _STACKS_OF
    + r")?rank[ :#=]{0,2}(\d{1,7})[:\s]*"
    r"(?:\(.{0,80}\)|https?://\S{1,80}|[\w.-]{1,80}:\d{1,5})?[:=#*\s-]*"
    # Set off by a rule, with host and process around it: "== node-a RANK=1 pid 4101 ==", "##### gpu-3 | rank 7".
    r"|(?:[=#*>]{2,}|-{2,}(?=\s)|-{3,}|\[)\s*(?:(?!rank)[\w.:@/=-]{1,80}[\s,|/]{1,4}){0,4}?"
    r"(?:global[ _]?)?rank[ :#=_-]{0,2}(\d{1,7})(?:[\s,|/()]{1,4}[\w.:@/=-]{1,80}){0,4}\)?\s*(?:[\]=#*<:-]{1,}\s*)?",
    re.I,
)
# The number of the process alone, above its dump: "--- 40510", "=== host n-1 pid 88 === 02:44:00".
OF_PROCESS = re.compile(
    r"[=#*-]{2,12} ?(?:(?:[\w.@/-]{1,80}[ ,|:]{1,3}){0,4}?(?i:pid)[ :=]{1,2})?(\d{2,9})(?: ?[=#*:-]{1,12})?"
    r"(?: {1,3}(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?)?\s*"
)
# Of the environment of the process, above its dump: "RANK=9 LOCAL_RANK=1".
ENVIRONMENT = re.compile(r"(?:export )?(?:[A-Z_]{1,40}=\S{1,80} )*RANK=(\d{1,7})(?: [A-Z_]{1,40}=\S{1,80})*\s*")
