"""Consistent pseudonyms for hosts, users, addresses and folders, and the map that leads back.

Hosts and users are known beforehand (`known_names.py`) and numbered in the order of their names, so that a list sorted by name
stays sorted. Addresses and folders are known by their shape and numbered as they come. Addresses become ones of the ranges
that are reserved for tests and documentation (RFC 2544 198.18.0.0/15, RFC 3849 2001:db8::/32).
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

KINDS: Final = ("hosts", "users", "addresses", "paths")
SCHEMA: Final = "forensics.pseudonyms/1"

_NAME = re.compile(r"[A-Za-z0-9]+(?:[.-]+[A-Za-z0-9]+)*")
_SEPARATORS = re.compile(r"([.-]+)")
_HOST_RANGE = re.compile(r"(?<![\w.-])([A-Za-z][\w.-]*)\[([\d,-]{1,4096})\]([\w.-]*)")
_MOST_HEADS = 32
"""Up to so many first parts of names, looking for them is cheaper than looking at every word."""
_DOMAIN_LABEL = re.compile(r"[A-Za-z][A-Za-z-]*\d?[A-Za-z]")
_MOST_IN_RANGE = 65_536
_USER = re.compile(r"[A-Za-z_][\w.-]*")
_IPV4 = re.compile(r"(?<![A-Za-z0-9.])(?<!==)(?:\d{1,3}\.){3}\d{1,3}(?![A-Za-z0-9]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:]|\.\d)")
_EUI = re.compile(r"(?<![\w:.-])(?:[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}){5}|[0-9a-fA-F]{4}(?::[0-9a-fA-F]{4}){3})(?![\w:.-])")
_PATH = re.compile(r"(?<![\w.:@/~<-])(?:/[^\s/\"'<>|:;,(){}\[\]\\*?#&=]+){2,}")
_PATH_BEHIND_NAME = re.compile(r"(?<=[:=])(?:/[^\s/\"'<>|:;,(){}\[\]\\*?#&=]+){2,}")
# Folders of the system and of public packages say nothing of whose job it is, and stacks are judged by them.
_PUBLIC = re.compile(
    r"usr|lib|lib64|bin|sbin|etc|var|run|tmp|opt|local|share|dev|shm|home|root|mnt|data|scratch|lustre|gpfs|nfs|work|workspace|"
    r"app|src|build|log|logs|cache|\.cache|users|Users|conda|miniconda3|anaconda3|venv|\.venv|env|envs|cuda[\d.-]*|nvidia|nccl|"
    r"python\d?[\d.]*|x86_64-linux-gnu|aarch64-linux-gnu|infiniband|site-packages|dist-packages|forensics-\d+|(?:dir|user)-\d{5,}"
)
_PUBLIC_CODE = re.compile(
    r"site-packages|dist-packages|python\d\.\d+|torch|torchtitan|megatron|deepspeed|nemo|transformers|accelerate|lightning|"
    r"nccl|cuda|x86_64-linux-gnu|aarch64-linux-gnu"
)
_SYSTEM_TREES = re.compile(r"/(?:proc/|sys/|handler/|dev/(?!shm/))")
_FILE = re.compile(r".+\.[A-Za-z]\w{0,9}(?:\.\d+)*")


@dataclass(slots=True)
class Pseudonyms:
    """Which kinds are replaced, and by kind the names replaced so far: `names[kind][original]` is the pseudonym."""

    kinds: frozenset[str] = frozenset()
    names: dict[str, dict[str, str]] = field(default_factory=lambda: {kind: {} for kind in KINDS})
    _lowered: dict[str, str] = field(default_factory=dict)
    _heads: set[str] = field(default_factory=set)
    _most_parts: int = 1
    _finder: re.Pattern[str] = _NAME

    def know(self, kind: str, found: Iterable[str]) -> None:
        """Give the names of a kind pseudonyms, in the order of the names; those that have one keep it."""
        for name in sorted(set(found) - self.names[kind].keys()):
            self._numbered(kind, name)
        self._index()

    def _numbered(self, kind: str, name: str) -> str:
        known = self.names[kind]
        word = {"hosts": "host", "users": "user", "paths": "dir"}[kind]
        return known.setdefault(name, f"{word}-{len(known) + 1:05d}")

    def _index(self) -> None:
        """Hosts without regard to case, and the first part of each: most words of a text begin with none of these."""
        self._lowered = {name.lower(): made for name, made in self.names["hosts"].items()}
        parts = [_SEPARATORS.split(name) for name in self._lowered]
        self._heads = {part[0] for part in parts}
        self._most_parts = max(map(len, parts), default=1)
        if 0 < len(self._heads) <= _MOST_HEADS:
            heads = "|".join(sorted(map(re.escape, self._heads), key=lambda head: -len(head)))
            pattern = rf"(?<![A-Za-z0-9])(?:{heads})(?![A-Za-z0-9])(?:[.-]+[A-Za-z0-9]+)*"
            self._finder = re.compile(pattern, re.ASCII | re.IGNORECASE)

    def apply(self, text: str, counts: Counter[str]) -> str:
        """The text with every name of the wanted kinds replaced; `counts` gets one for each, by kind."""
        if "hosts" in self.kinds and self.names["hosts"]:
            text = _HOST_RANGE.sub(lambda match: self._range(match, counts), text)
            text = self._finder.sub(lambda match: self._host(match[0], counts), text)
        if "addresses" in self.kinds:
            text = self._addresses(text, counts)
        if "paths" in self.kinds and "/" in text:
            for pattern in (_PATH, _PATH_BEHIND_NAME):
                text = pattern.sub(lambda match: self._path(match[0], counts), text)
        if "users" in self.kinds and self.names["users"]:
            text = _USER.sub(lambda match: self._user(match[0], counts), text)
        return text

    def document(self) -> dict[str, object]:
        """The map as it is kept in a file: schema, and by kind the pseudonym of each name."""
        return {"schema": SCHEMA, **{kind: self.names[kind] for kind in KINDS}}

    def _host(self, word: str, counts: Counter[str]) -> str:
        """A word with the known names in it replaced, longest first, with the domain that stands behind one."""
        parts = _SEPARATORS.split(word)
        made: list[str] = []
        begin = 0
        while begin < len(parts):
            end, name = self._host_at(parts, begin)
            if name is None:
                made += parts[begin : begin + 2]
                begin += 2
                continue
            counts["hosts"] += 1
            end = len(parts) if _is_domain(parts[end:]) else end
            made += [name, *parts[end : end + 1]]
            begin = end + 1
        return "".join(made)

    def _host_at(self, parts: list[str], begin: int) -> tuple[int, str | None]:
        """The longest known name that begins at a part: behind its end, and its pseudonym."""
        if parts[begin].lower() not in self._heads:
            return begin, None
        for end in range(min(len(parts), begin + self._most_parts), begin, -2):
            name = self._lowered.get("".join(parts[begin:end]).lower())
            if name is not None:
                return end, name
        return begin, None

    def _range(self, match: re.Match[str], counts: Counter[str]) -> str:
        """A list such as `gpu-[001-004,7]` as its pseudonyms; a list of which no host is known stays."""
        numbers = _numbers(match[2])
        names = [f"{match[1]}{number}{match[3]}" for number in numbers]
        known = self.names["hosts"]
        if not any(name in known for name in names):
            return match[0]
        counts["hosts"] += 1
        return ",".join(known.get(name) or self._numbered("hosts", name) for name in names)

    def _user(self, word: str, counts: Counter[str]) -> str:
        bare = word.rstrip(".-")
        name = self.names["users"].get(bare)
        if name is None:
            return word
        counts["users"] += 1
        return name + word[len(bare) :]

    def _addresses(self, text: str, counts: Counter[str]) -> str:
        text = _IPV4.sub(lambda match: self._address(match[0], counts), text) if "." in text else text
        if ":" in text:
            text = _EUI.sub(lambda match: self._identifier(match[0], counts), text)
            text = _IPV6.sub(lambda match: self._address(match[0], counts), text)
        return text

    def _address(self, text: str, counts: Counter[str]) -> str:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return text
        if address.is_loopback or address.is_unspecified or text.startswith("255.") or not _is_address(text):
            return text
        counts["addresses"] += 1
        return self.address(address)

    def address(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
        """The pseudonym of an address."""
        known = self.names["addresses"]
        if address.version == 4:
            made = str(ipaddress.ip_address("198.18.0.0") + 1 + len(known) % 131_070)
        else:
            made = str(ipaddress.ip_address("2001:db8::") + 1 + len(known))
        return known.setdefault(str(address), made)

    def _identifier(self, text: str, counts: Counter[str]) -> str:
        """A hardware address: 48 bits, or the 64 bits of an InfiniBand GUID."""
        if not text.strip("0:"):
            return text
        counts["addresses"] += 1
        known = self.names["addresses"]
        number = len(known) + 1
        wide = 16 if len(text) == 19 else 12
        digits, step = f"{number:0{wide}x}", 4 if wide == 16 else 2
        made = "02" + digits[2:]
        return known.setdefault(text.lower(), ":".join(made[at : at + step] for at in range(0, wide, step)))

    def _path(self, path: str, counts: Counter[str]) -> str:
        """A path with its private folders replaced; its file name stays, because stacks and logs are shown by it."""
        if _SYSTEM_TREES.match(path):
            return path
        parts = path.split("/")
        for place, part in enumerate(parts):
            if _PUBLIC_CODE.fullmatch(part):
                break
            is_last = place == len(parts) - 1
            is_public = not part or _PUBLIC.fullmatch(part) or (is_last and _FILE.fullmatch(part))
            if not is_public and part not in self.names["users"]:
                parts[place] = self._numbered("paths", part)
                counts["paths"] += 1
        return "/".join(parts)


def _is_address(text: str) -> bool:
    """Whether a text that parses as an address is one: `::` in C++ names and times of day parse too."""
    if ":" not in text:
        return True
    groups = [group for group in text.split(":") if group]
    return len(groups) >= 2 and (len(groups) == 8 or re.match(r"(?i)[23][0-9a-f]{3}:|f[cdef][0-9a-f]{2}:", text) is not None)


def _is_domain(parts: list[str]) -> bool:
    """Whether `.cluster.local` and the like follow a host's name, and not the rest of a file name."""
    labels = "".join(parts).split(".")[1:]
    return len(labels) >= 2 and parts[0] == "." and all(_DOMAIN_LABEL.fullmatch(label) for label in labels)


def _numbers(listed: str) -> list[str]:
    """`001-003,7` as 001, 002, 003, 7; empty when it is no such list or a list of more than 65,536."""
    found: list[str] = []
    for part in listed.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal() or len(last or first) > 9:
            return []
        count = int(last or first) - int(first) + 1
        if count < 1 or len(found) + count > _MOST_IN_RANGE:
            return []
        found += [f"{number:0{len(first)}d}" for number in range(int(first), int(first) + count)]
    return found


def from_document(document: Mapping[str, object], kinds: frozenset[str]) -> Pseudonyms | None:
    """The map of an earlier run, to be gone on with; None when it is no such document."""
    made = Pseudonyms(kinds)
    if document.get("schema") != SCHEMA:
        return None
    for kind in KINDS:
        found = document.get(kind, {})
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            return None
        made.names[kind].update(found)
    made._index()
    return made
