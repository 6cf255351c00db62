"""The host that a shell prompt, or the command behind it, names above what people saved: `[root@node-3 ~]# ps aux`."""

from __future__ import annotations

import re

_NAME = r"(?P<host>[A-Za-z][\w.-]{0,252})"
_PROMPTS = (
    # bash, zsh: [root@node-3 ~]# ps, user@node-3:/data$ ps, user@node-3 ~ % ps
    re.compile(rf"(?:\([\w.-]{{1,64}}\) )?\[?[\w.-]{{1,64}}@{_NAME}[ :][^\n#$%>]{{0,120}}[#$%>] ?\S"),
    # [node-3]$ dmesg
    re.compile(rf"\[{_NAME}\] ?[#$] ?\S"),
    # node-3:~ # ps
    re.compile(rf"{_NAME}:[~/]\S{{0,120}} [#$] \S"),
    # node-3 $ ncclras, behind a time
    re.compile(r"(?:\[[\d: T.-]{8,30}\] )?(?P<host>[A-Za-z][\w.]{0,62}-[\w.-]{0,60}\d) [#$] \S"),
)
# What a command runs elsewhere is of there. No word is read in two ways, as a flag and as the value of the one before it: in a
# line of many flags the ways to read them would double with each.
_ELSEWHERE = re.compile(
    r"(?:^|^\+{1,4} |[$#%>] ?|sudo )(?:"
    r"kubectl (?:-[\w-]+(?:=\S+| (?!exec |-)\S+)? )*exec (?:-[a-z-]*[it] (?!-)|-[\w-]+(?:=\S+ | (?=-)| (?!-)\S+ ))*"
    r"(?P<pod>[a-z][\w.-]{0,252}) "
    r"|ssh (?:-[a-zA-Z](?: (?!\w+@)\S*\d\S*)? )*(?:[\w.-]+@)?(?P<remote>[A-Za-z][\w.-]{0,252}) "
    r")"
)
_LINES = 4
_LONGEST = 400
_LOCAL = frozenset({"localhost", "root", "user"})


def prompt_host(head: bytes) -> str | None:
    """The one host that the first lines name; None where they name none, or several."""
    lines = head[: _LINES * _LONGEST].decode("utf-8", "replace").splitlines()[:_LINES]
    found = {host for line in lines if (host := command_host(line))}
    return found.pop() if len(found) == 1 else None


def command_host(line: str) -> str | None:
    """The host on which one command ran: that which it names itself, else that of its prompt."""
    if len(line) > _LONGEST:
        return None
    elsewhere = _ELSEWHERE.search(line)
    said = (elsewhere["pod"] or elsewhere["remote"]) if elsewhere else _prompted(line)
    return said if said and said.lower() not in _LOCAL and not said.isupper() else None


def is_command(line: str) -> bool:
    """Whether a line is a command behind a prompt."""
    return line.startswith(("$ ", "# ")) or (len(line) <= _LONGEST and _prompted(line) is not None)


def _prompted(line: str) -> str | None:
    return next((said["host"] for prompt in _PROMPTS if (said := prompt.match(line))), None)
