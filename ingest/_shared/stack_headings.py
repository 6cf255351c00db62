"""Lines above a stack dump that say whose it is: a heading with a rank, a place or a process, a command, an environment.

Scripts, debug servers and people set the stacks of several processes off from each other in one text; what such a line says
holds for the stacks below it, up to the next one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from forensics.ingest._shared.prompts import command_host, is_command

LONGEST_HEADING = 160
_STACKS_OF = (
    r"(?:the )?(?:call |python |py-spy )?(?:stacks?|stack ?traces?|traces?|back ?traces?|dumps?|output) (?:of|for|from|on) "
)
# The stacks of those that nobody counts: "The stack for all other ranks:", "3 processes in:".
_OTHERS = re.compile(
    rf"(?!\s{{4}})[=#*\s-]*(?:{_STACKS_OF})?(?:(?:all |the )*(?:others?|remaining)|(?:the )?rest of(?: the)?)"
    r"(?: \d{1,7})?(?: ranks?| workers?| processes)\b[^:.]{0,60}[:=#*\s-]*",
    re.I,
)
_SOME = re.compile(
    r"(?=[A-Za-z0-9])(?!.*\bthreads?\b)[\w ,.;'()#/-]{0,80}?\b(?:(?:every\w{3} )?(?:else|others?)|remaining|rest"
    r"|\d{1,7} (?:(?:out )?of \d{1,7} )?(?:\w{1,12} )?(?:ranks|processes|workers|gpus))\b[\w ,.;'()#/-]{0,80}:\s*",
    re.I,
)
# A heading of a text with the stacks of several ranks, such as "=== Rank 3 ===", "Rank 3: http://node-1:25999", or the command
# that took one: "py-spy dump --pid 88 # rank 3".
# What is far to the right is the value of a variable.
_RANK = re.compile(
    r"(?!\s{4})[=#*\s-]*(?:\$? ?(?:sudo )?(?:py-spy dump|pystack remote|gdb) [^#]{1,80}#+\s*|"
    + _STACKS_OF
    + r")?rank[ :#=]{0,2}(\d{1,7})[:\s]*"
    r"(?:\(.{0,80}\)|https?://\S{1,80}|[\w.-]{1,80}:\d{1,5})?[:=#*\s-]*"
    # Set off by a rule, with host and process around it: "== node-a RANK=1 pid 4101 ==", "##### gpu-3 | rank 7".
    r"|(?:[=#*>]{2,}|-{2,}(?=\s)|-{3,}|\[)\s*(?:(?!rank)[\w.:@/=-]{1,80}[\s,|/]{1,4}){0,4}?"
    r"(?:global[ _]?)?rank[ :#=_-]{0,2}(\d{1,7})(?:[\s,|/()]{1,4}[\w.:@/=-]{1,80}){0,4}\)?\s*(?:[\]=#*<:-]{1,}\s*)?",
    re.I,
)
# What people write beside the rank, in any order: "py-spy for rank 3 (pid 88)", "Node 0 GPU 3 (global rank 3)",
# "rank 3 的堆栈". A line with any other word says something of a rank.
_MENTIONED = re.compile(
    r"(?<![A-Za-z0-9.-])(?P<kind>(?:global|world|local|node|group|[tpdce]p)[ _-]?)?rank[ :=#_-]{0,3}(?P<rank>\d{1,7})"
    r"(?: ?/ ?\d{1,7}| of \d{1,7})?(?![\dA-Za-z]|\.\d)",
    re.I,
)
_WHOLE = ("global", "world")
_NUMBERED = re.compile(
    r"(?<![A-Za-z0-9])(?:(pid|process|proc)|tid|thread|gpu|cuda|device|node|host|worker)(?: id)?[ :=#]{0,3}(\d{1,9})(?![\w.])",
    re.I,
)
_BESIDE = re.compile(
    r"(?:and|the|this|is|are|here|now|of|for|from|on|at|in|a|s|py-?spy|pystack|gdb|python|native|call|full|main|all|dump(?:s|ed)?"
    r"|stacks?|stack-?traces?|back-?traces?|traces?|bt|threads?|output|process|proc|pid|pod|worker|trainer|gpu|node|host|second|first|try"
    r"|von|der|des|prozess|del|de|la|du|pila|pile|стек|процесса?)"
    r"|(?:的|调用|堆栈|栈|进程|主?线程|卡|号|如下|输出|信息|のスタック|스택)+|[A-Za-z][\w-]*\d[\w.-]*|\d{1,3}(?:\.\d{1,3}){3}"
    r"|(?:\d{4}-\d\d-\d\d)?T?(?:\d\d:\d\d(?::\d\d)?Z?)?",
    re.I,
)
_ITEM = re.compile(r"\s{0,3}\d{1,3}[.)]\s")
_BETWEEN_WORDS = re.compile(r"[^\w.:-]+|(?<!\w)[.:-]+|[.:-]+(?!\w)|(?<!\d):|:(?!\d)")
_LONGEST_LABEL = 100
_EMPHASIS = re.compile(r"\*{1,3}|`|(?<!\w)_{1,2}|_{1,2}(?!\w)")
# What somebody says above a stack: "and rank 4:", "here the one of rank 4 (second try):". Where it compares ranks, or names
# several, nothing shows whose the stack below is; that it is still of the rank above is the least likely.
_SAID = re.compile(r"(?=[^\W\d_])(?P<said>[\w ,.;'\"()#/，。；、（）“”-]{3,120})[:：]\s*")
_SENTENCE = re.compile(r"(?<=[a-z\d)][.!?]) (?=[A-Z])")
_NAMED = re.compile(r"(?<![A-Za-z0-9_-])ranks?[ #]{0,2}(\d{1,7})(?![.\dA-Za-z])", re.I)
_COUNTED = re.compile(r"(?<![A-Za-z_-])ranks?[ #:=]{0,2}\d", re.I)
_COMPARED = re.compile(
    r"\b(?:local|node|group|tp|pp|dp|cp|ep|not|no|other|than|unlike|like|as|compared?|vs|except|without|differs?|waits?|with|to|before"
    r"|ranks|after|behind|until|if|because|since)\b",
    re.I,
)
# The number of the process alone, above its dump: "--- 40510", "=== host n-1 pid 88 === 02:44:00".
_PROCESS = re.compile(
    r"[=#*-]{2,12} ?(?:(?:[\w.@/-]{1,80}[ ,|:]{1,3}){0,4}?(?i:pid)[ :=]{1,2})?(\d{2,9})(?: ?[=#*:-]{1,12})?"
    r"(?: {1,3}(?:\d{4}-\d\d-\d\d[ T])?\d\d:\d\d(?::\d\d)?)?\s*"
)
# gdb was attached to it: typed, and as gdb answers.
_ATTACHED = re.compile(r"(?:\(gdb\) attach|Attaching to (?:program: \S{1,120}, )?process) (\d{1,9})\s*")
# Of the environment of the process, above its dump: "RANK=9 LOCAL_RANK=1".
_ENVIRONMENT = re.compile(r"(?:export )?(?:[A-Z_]{1,40}=\S{1,80} )*RANK=(\d{1,7})(?: [A-Z_]{1,40}=\S{1,80})*\s*")
# The name of a host or a pod alone, set off by a rule or called one: "--- pod/trainer-worker-3 ---", "== dgx-017 (10.1.0.17)".
_PLACE = re.compile(
    r"(?:(?:[=#*>]{1,12}|-{2,12})\s{0,2}|(?=(?:pods?|hosts?|nodes?)\b))"
    r"(?P<kind>(?:pod|host|node|hostname|container)s?[/ :=]{1,2})?(?P<place>[A-Za-z][\w.-]{0,251}\d[\w.-]{0,60}):?"
    r"(?: \([\w.:, =-]{1,80}\))?\s{0,2}(?:[=#*<-]{1,12})?\s*"
)
# What is counted in time, and parts of a process, are no places: "=== sample-2 ===", "--- thread1 ---".
_NO_PLACE = re.compile(
    r"(?:.*[_.-])?(?:sample|round|dump|take|attempt|run|try|time|t|iter|iteration|pass|snapshot|step|moment|capture|look|shot|rep"
    r"|repeat|epoch|py-?spy|py-?stack|stacks?|trace|traceback|thread|proc|process|pid|part|case|log|file|gpu|cuda|v)"
    r"[_.-]?\d.*|[\w.-]*\.(?:txt|log|out|py|md|json|stack|dump|pyspy)",
    re.I,
)
# What runs one command on many hosts, in front of what one of them answered: pssh, ansible.
_ANSWERED = re.compile(
    r"\[\d{1,6}\] \d\d:\d\d:\d\d \[[A-Z]{4,8}\] (?P<pssh>[\w.-]{1,255})\s*"
    r"|(?P<ansible>[\w.-]{1,255}) \| [A-Z]{2,12} \| rc=\d{1,3} >>\s*"
)
# A note behind a command.
_NOTED = re.compile(r"[^#].*?[^#]#+ {0,4}(?:global )?rank[ :#=]{0,2}(\d{1,7})\s*", re.I)
_RULE = re.compile(r"[-=#*]{3,160}\s*")
_BARE = re.compile(r"[A-Za-z][\w.-]{0,251}\d[\w.-]{0,60}\s*")
# pdsh, clush and dsh put the host in front of each line.
_OF_HOST = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,251}\d[\w.-]{0,60}): ?")
_TAG = re.compile(r"</?[a-zA-Z][a-z0-9]{0,9}>")
_TOOLS = ("py-spy ", "pystack ", "gdb ", "eu-stack ", "pstack ")
# Debuggers do not print the number of the process that a command gave them, py-spy does.
_DEBUGGED = re.compile(
    r"\b(?:gdb|eu-stack)(?: -{1,2}[\w-]{1,20}(?: (?!-)\S{1,80})?)*? (?:-p|--pid)[ =]?(\d{1,9})(?!\S)|\bpstack (\d{1,9})(?!\S)"
)


class Heading(NamedTuple):
    """Whose the stacks below a line are; `pid` alone leaves rank and place as they were, `is_others` takes them back."""

    rank: int | None = None
    host: str | None = None
    pid: int | None = None
    is_others: bool = False


def heading_of(line: str) -> Heading | None:
    """What a line says of the stacks below it; None where it is no heading."""
    if len(line) > LONGEST_HEADING:
        return None
    bare = _TAG.sub("", line) if line.startswith("<") else line
    if found := _RANK.fullmatch(bare):
        return Heading(rank=int(found[1] or found[2]))
    if "rank" in (lower := bare.lower()) and (label := _of_label(_EMPHASIS.sub(" ", bare))):
        return label
    if _OTHERS.fullmatch(bare):
        return Heading(is_others=True)
    # The last of several sentences stands above the stack.
    last = _SENTENCE.split(_EMPHASIS.sub("", bare))[-1]
    if "rank" in lower and (said := _SAID.fullmatch(last)) and _COUNTED.search(said["said"]):
        ranks = {*map(int, _NAMED.findall(said["said"]))}
        # Words of a language that is not known here may compare.
        is_one = len(ranks) == 1 and last.isascii() and not _COMPARED.search(said["said"])
        return Heading(rank=ranks.pop()) if is_one else Heading(is_others=True)
    if _SOME.fullmatch(bare):
        return Heading(is_others=True)
    if found := _PROCESS.fullmatch(line) or _ATTACHED.fullmatch(line):
        return Heading(pid=int(found[1]))
    if "RANK=" in line and (found := _ENVIRONMENT.fullmatch(line)):
        return Heading(rank=int(found[1]))
    if found := _ANSWERED.fullmatch(line):
        return Heading(host=found["pssh"] or found["ansible"])
    return _of_command(line) or _of_place(bare)


def labelled_rank(line: str) -> int | None:
    """The one rank of the job that a line names which says nothing else; None for any other line."""
    if len(line) > LONGEST_HEADING:
        return None
    if found := _RANK.fullmatch(line):
        return int(found[1] or found[2])
    label = _of_label(_EMPHASIS.sub(" ", line))
    return label.rank if label is not None else None


def is_rule(line: str) -> bool:
    """Whether a line is a rule alone, as `clush` prints above and below the name of a host."""
    return _RULE.fullmatch(line) is not None


def below_rule(line: str) -> Heading | None:
    """What a line between two rules says."""
    return _of_place(f"-- {line}") if _BARE.fullmatch(line) else None


def host_before(line: str) -> tuple[str, str] | None:
    """The host in front of a line, and the line without it."""
    found = _OF_HOST.match(line)
    return (found["host"], line[found.end() :]) if found else None


def place_in(path: str) -> str | None:
    """The host or pod that a file is called by; None where its name is none, or counts moments."""
    stem = path.rpartition("/")[2].partition(".")[0]
    return stem if _BARE.fullmatch(stem) is not None and _NO_PLACE.fullmatch(stem) is None else None


def _of_label(line: str) -> Heading | None:
    """What a line says that has ranks and words about stacks alone; one of part of the job, or of several, is of others."""
    line = _ITEM.sub("", line, count=1)
    if len(line) > _LONGEST_LABEL or line.startswith("    ") or not (mentions := list(_MENTIONED.finditer(line))):
        return None
    numbered = _NUMBERED.findall(_MENTIONED.sub(" ", line))
    rest = _NUMBERED.sub(" ", _MENTIONED.sub(" ", line))
    if not all(_BESIDE.fullmatch(word) for word in _BETWEEN_WORDS.split(rest)):
        return None
    whole = {int(each["rank"]) for each in mentions if (each["kind"] or "world").rstrip(" _-").lower() in _WHOLE}
    pids = {int(number) for kind, number in numbered if kind}
    if len(whole) != 1 or len(pids) > 1:
        return Heading(is_others=True)
    return Heading(rank=whole.pop(), pid=pids.pop() if pids else None)


def _of_command(line: str) -> Heading | None:
    """The command that took what follows: where it ran, and the rank that somebody noted behind it."""
    if not any(tool in line for tool in _TOOLS):
        return None
    host = command_host(line)
    is_typed = host is not None or is_command(line)
    noted, debugged = (_NOTED.fullmatch(line), _DEBUGGED.search(line)) if is_typed else (None, None)
    pid = int(debugged[1] or debugged[2]) if debugged else None
    return Heading(int(noted[1]) if noted else None, host, pid) if host or noted or pid else None


def _of_place(line: str) -> Heading | None:
    found = _PLACE.fullmatch(line)
    return None if found is None or _NO_PLACE.fullmatch(found["place"]) else Heading(host=found["place"].rstrip(".:-"))
