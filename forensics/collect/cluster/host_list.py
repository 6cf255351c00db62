"""Lists of hosts as Slurm and ClusterShell write them: `a[01-64],b7,rack[1-2]n[0-8/2]`."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_HOSTS = 65_536
"""Beyond this a list is a slip of the pen: the largest published jobs have a quarter of it."""

# No host name starts with a dash: ssh and srun would take it for an option.
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.@:-]{0,250}[A-Za-z0-9_])?")
_BRACKET = re.compile(r"\[([^\[\]]*)\]")
_RANGE = re.compile(r"(?P<low>\d{1,9})(?:-(?P<high>\d{1,9})(?:/(?P<step>[1-9]\d{0,4}))?)?")
_SETS = re.compile(r"(?:^|[,\s])@|[!&^]")


def expand_hosts(text: str) -> tuple[str, ...]:
    """The hosts of a list in its order, each once; a number keeps the zeros in front of the lower end of its range.

    Groups (`@compute`) and set operations (`a[1-9]!a3`) are ClusterShell's, where it is installed. Raises ValueError with the
    part that is no host.
    """
    if _SETS.search(text):
        return _of_cluster_shell(text)
    found: dict[str, None] = {}
    for part in _parts(text):
        for host in _expanded(part):
            if not _HOST.fullmatch(host):
                raise ValueError(f"{host!r} is not the name of a host")
            found[host] = None
            if len(found) > MOST_HOSTS:
                raise ValueError(f"{part!r} makes more than {MOST_HOSTS} hosts")
    if not found:
        raise ValueError("no host is named")
    return tuple(found)


def _of_cluster_shell(text: str) -> tuple[str, ...]:
    try:
        from ClusterShell.NodeSet import NodeSet, NodeSetException
    except ImportError:
        raise ValueError(f"{text!r}: groups and set operations need ClusterShell (pip install 'forensics[cluster]')") from None
    try:
        hosts = tuple(NodeSet(text))
    except NodeSetException as error:
        raise ValueError(str(error)) from error
    if not hosts or len(hosts) > MOST_HOSTS or not all(map(_HOST.fullmatch, hosts)):
        raise ValueError(f"{text!r} makes {len(hosts)} hosts, or names that are none")
    return hosts


def _parts(text: str) -> Iterator[str]:
    """The list at its commas and spaces outside of brackets."""
    depth, begin = 0, 0
    for place, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if depth not in (0, 1):
            raise ValueError(f"{text!r}: brackets do not match")
        if depth == 0 and (char == "," or char.isspace()):
            yield from filter(None, (text[begin:place],))
            begin = place + 1
    if depth:
        raise ValueError(f"{text!r}: brackets do not match")
    yield from filter(None, (text[begin:],))


def _expanded(part: str) -> Iterator[str]:
    """All names of one part; of several brackets the last one varies first."""
    bracket = _BRACKET.search(part)
    if bracket is None:
        yield part
        return
    for number in _numbers(bracket[1], part):
        for rest in _expanded(part[bracket.end() :]):
            yield f"{part[: bracket.start()]}{number}{rest}"


def _numbers(text: str, part: str) -> Iterator[str]:
    for word in text.split(","):
        match = _RANGE.fullmatch(word.strip())
        if match is None:
            raise ValueError(f"{part!r}: {word.strip()!r} is neither a number nor a range such as 01-64")
        low, high = match["low"], match["high"] or match["low"]
        if int(high) < int(low) or (int(high) - int(low)) // int(match["step"] or 1) >= MOST_HOSTS:
            raise ValueError(f"{part!r}: {word.strip()!r} is not a range of hosts")
        for number in range(int(low), int(high) + 1, int(match["step"] or 1)):
            yield str(number).zfill(len(low))
