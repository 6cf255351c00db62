"""What a path says of its file: rank, host, process, sample. The rules are documented in docs/formats/README.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from forensics.bundle.streams import ARCHIVE_SUFFIXES, COMPRESSED_SUFFIXES
from forensics.vocabulary import GUESSED

# `local_rank3`, the coordinates of a parallel layout and the rank of an adapter's matrices are not the global rank.
_RANK_WORD = re.compile(
    r"(?<![a-z])(?:(?:global|world)[_.\- ]?"
    r"|(?P<other>local|node|group|[tpdecsmv]p|data|model|pipeline|tensor|expert|context|q?lora|dora|low)[_.\- ]?)?"
    r"rank(?P<between>[_.= -]?)(?P<rank>\d{1,7})(?!\d)",
    re.IGNORECASE,
)
_RECORDER = re.compile(r"(?:^|_)(?:dump|trace)_(\d{1,7})$")
_OF_A_PROCESS = re.compile(r"stack|spy|thread|fault|gdb|pstack|proc", re.IGNORECASE)
_TRAILING = re.compile(r"(?:^|(?P<before>[A-Za-z]*)[_.-]|(?:^|(?<=[_.-]))(?P<word>[A-Za-z]{4,}|r))(?P<number>\d{1,5})$")
# `r3.2`: the second look at a rank.
_SHORT = re.compile(r"r(?P<rank>\d{1,5})[_.-](?P<sample>\d{1,4})", re.IGNORECASE)
# One file a process of the job, or a host where a launcher starts the processes of each (Azure ML).
_PROCESS_LOG = re.compile(r"std_log_process_(\d{1,5})")
# What Slurm calls the output of one job of an array, by default: each is a job of its own.
_OF_AN_ARRAY = re.compile(r"slurm-\d{1,10}_\d{1,7}")
_NOT_A_RANK = frozenset(
    {
        "rank",
        "localrank",
        "noderank",
        "pid",
        "tid",
        "child",
        "sample",
        "round",
        "snapshot",
        "snap",
        "run",
        "try",
        "retry",
        "attempt",
        "step",
        "iter",
        "epoch",
        "part",
        "v",
        "version",
        "worker",
        "counters",
        "core",
        "proc",
        "process",
        "node",
        "host",
        "device",
        "cuda",
    }
)
# What people and trackers number when they hand in files: the order of attachments, or of pieces of one log.
_ATTACHED = re.compile(
    r"uploads?|attach(?:ment|ed)|files?|document|untitled|download|item|pasted?|snippet|gist|message|comment|ticket"
    r"|screenshot|image|chunk|split|piece"
)
# Devices that drivers number themselves: mlx5_0, bnxt_re1, eth0.
_DEVICE = re.compile(
    r"(?:^|[_.-])(?:mlx\d|bnxt_re|irdma|hfi\d|qedr|efa|erdma|rxe|rocep\w*|ibp\w*|ib|eth|nic)[_.-]?\d+$", re.IGNORECASE
)
# Of the folder of a rank that was taken out of a bundle; dumps that were found on disk keep the names that torch gave them.
_OF_A_BUNDLE = re.compile(r"(?:fr|stacks|proc)/(?:child-\d+\.)?\d{1,4}(?:\.nccl)?\.json")
_SAMPLE = re.compile(r"(?<![a-z])sample[_.-]?(\d{1,4})(?!\d)", re.IGNORECASE)
_TRAILING_SAMPLE = re.compile(r"[_.-](\d{1,4})$")
_PID = re.compile(r"(?<![a-z])(?:child|pid)[_.-]?(\d+)", re.IGNORECASE)
_CHILD = re.compile(r"(?<![a-z])(?:child|dataloader)", re.IGNORECASE)
_WORKER = re.compile(r"(?<![a-z])worker", re.IGNORECASE)
_HOST = re.compile(r"(?:node|host|gpu|dgx|hgx|ip|nid|cn|compute|pod)[-_.]?[\w.-]*\d[\w.-]*", re.IGNORECASE)
_HOST_AND_PID = re.compile(r"(?P<host>[\w.-]*\d[\w.]*)[-_](?P<pid>\d{3,7})")
_ARCHIVE = re.compile(rf"(?:{'|'.join(map(re.escape, ARCHIVE_SUFFIXES))})$", re.IGNORECASE)
_GPU_INDEX = re.compile(r"gpu[-_]?\d{1,2}", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Origin:
    """What was read from a path; `rank_method` is `path`, or `guessed` for a bare number at the end of the name."""

    rank: int | None = None
    rank_method: str | None = None
    host: str | None = None
    pid: int | None = None
    is_child: bool | None = None
    sample: int | None = None


def origin(path: str) -> Origin:
    """The origin of a loose file from its path alone."""
    parts = _without_suffixes(PurePosixPath(path).parts)
    stem = _stem(parts[-1] if parts else "")
    word = _rank_word(stem)
    rank, method = _rank(parts, stem)
    explicit = _SAMPLE.search(stem)
    pid = _PID.search(stem)
    rest = stem[word.end() :] if word else stem
    sample: int | None = None
    if explicit:
        sample = int(explicit[1])
    elif short := _SHORT.fullmatch(stem):
        sample = int(short["sample"])
    elif rank is not None and (word is not None or _number_is_spare(parts, stem)):
        sample = _trailing_sample(rest if word else f"_{rest}")
    is_child = True if _CHILD.search(stem) or (word and _WORKER.search(rest)) else None
    host, number = _host_and_pid(stem, pid)
    return Origin(rank, method, host or _host(parts, stem), number, is_child, sample)


def bundle_origin(path: str) -> Origin:
    """The origin of a member of a bundle, whose layout (docs/bundle.md) says it without guessing."""
    parts = PurePosixPath(path).parts
    if len(parts) < 3 or parts[0] not in ("ranks", "nodes"):
        return Origin()
    stem = _stem(parts[-1])
    sample = _trailing_sample(f"_{stem}")
    if parts[0] == "nodes":
        return Origin(host=parts[1], sample=sample)
    if not parts[1].isdecimal() or len(parts[1]) > 7:
        return Origin(sample=sample)
    pid = _PID.search(stem)
    is_child = stem.startswith("child-") if parts[2] == "stacks" else None
    own_name = parts[2] == "fr" and not stem.isdecimal()  # files found on disk keep their names; a number there is the rank
    sample = None if own_name else sample
    return Origin(int(parts[1]), "path", None, int(pid[1]) if pid else None, is_child, sample)


def _without_suffixes(parts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of a path, archives called as the folders that they stand for."""
    return (*(_ARCHIVE.sub("", part) for part in parts[:-1]), *parts[-1:])


def _stem(name: str) -> str:
    """The file name without compression suffix and extension; a number is not an extension, `#2` marks a duplicate."""
    name = name.partition("#")[0]
    for suffix in COMPRESSED_SUFFIXES:
        name = name.removesuffix(suffix)
    return re.sub(r"\.[A-Za-z][A-Za-z0-9]{0,7}$", "", name) or name


def _rank_word(text: str) -> re.Match[str] | None:
    """The last `rank<n>` of a name that means the global rank."""
    found = [match for match in _RANK_WORD.finditer(text) if match["other"] is None]
    return found[-1] if found else None


def _rank(parts: tuple[str, ...], stem: str) -> tuple[int | None, str | None]:
    """The most specific rank a path names: the word in the file name, a rank's directory, a recorder's name, a number."""
    if word := _rank_word(stem):
        # `rank 3 hangs.log` may be called after an incident.
        return int(word["rank"]), GUESSED if word["between"] == " " else "path"
    for directory_rank in _directory_ranks(parts):
        return directory_rank, "path"
    if is_below_number(parts):
        return int(parts[-3]), GUESSED
    recorder = _RECORDER.search(stem)
    if recorder and not _OF_A_PROCESS.search(stem):
        # `dump_0302` may be a time of day; of one file the number alone proves no more than any other number.
        return int(recorder[1]), GUESSED if recorder[1].startswith("0") and len(recorder[1]) > 2 else "path"
    if numbered := _PROCESS_LOG.fullmatch(stem) or _SHORT.fullmatch(stem):
        return int(numbered[1]), GUESSED
    trailing = None if _DEVICE.search(stem) or _OF_AN_ARRAY.fullmatch(stem) else _TRAILING.search(stem)
    word_before = (trailing["before"] or trailing["word"] or "").lower() if trailing else ""
    if trailing and word_before not in _NOT_A_RANK and not _ATTACHED.fullmatch(word_before):
        return int(trailing["number"]), GUESSED
    return None, None


def _directory_ranks(parts: tuple[str, ...]) -> Iterator[int]:
    """Ranks of directories called `rank3`, `host_rank3` or `ranks/3`, nearest first.

    A folder such as `hang_of_rank3_tuesday` is named after an incident and says nothing of the files in it.
    """
    for index in range(len(parts) - 2, -1, -1):
        word = _rank_word(parts[index])
        prefix = parts[index][: word.start()].rstrip("_.-") if word else ""
        if word and word.end() == len(parts[index]) and (not prefix or looks_like_host(prefix)):
            yield int(word["rank"])
        elif parts[index].isdecimal() and len(parts[index]) <= 7 and index and parts[index - 1].lower() == "ranks":
            yield int(parts[index])


def is_below_number(parts: tuple[str, ...]) -> bool:
    """Whether a file lies as in a bundle (docs/bundle.md), below a number in place of `ranks/3`: the one of its name counts."""
    numbered = len(parts) > 2 and parts[-3].isascii() and parts[-3].isdecimal() and len(parts[-3]) <= 7
    return numbered and _OF_A_BUNDLE.match("/".join(parts[-2:])) is not None


def _number_is_spare(parts: tuple[str, ...], stem: str) -> bool:
    """Whether a number in the file name is left over for the sample, because a directory gave the rank."""
    below_rank = any(True for _ in _directory_ranks(parts)) or is_below_number(parts)
    return _rank_word(stem) is None and below_rank and not _RECORDER.search(stem)


def _trailing_sample(text: str) -> int | None:
    match = _TRAILING_SAMPLE.search(text)
    return int(match[1]) if match else None


def _host(parts: tuple[str, ...], stem: str) -> str | None:
    """The host: what stands before `rank` in the file name, else the nearest directory that is called like a host."""
    word = _rank_word(stem)
    candidates = [stem[: word.start()].rstrip("_.-")] if word else []
    for part in reversed(parts[:-1]):
        inner = _rank_word(part)
        candidates.append(part[: inner.start()].rstrip("_.-") if inner else part)
    return next((name for name in candidates if looks_like_host(name)), None)


def _host_and_pid(stem: str, pid: re.Match[str] | None) -> tuple[str | None, int | None]:
    """Host and process, as of `node3_pid4000_0310`, or of a file that is called by nothing else, as `gpu-154-51630`."""
    if pid is not None:
        before = stem[: pid.start()].rstrip("_.-")
        return (before if looks_like_host(before) else None), int(pid[1])
    match = _HOST_AND_PID.fullmatch(stem)
    return (match["host"], int(match["pid"])) if match and looks_like_host(match["host"]) else (None, None)


def looks_like_host(name: str) -> bool:
    """Whether a name is surely a host's; `gpu3` is a device."""
    return bool(_HOST.fullmatch(name)) and not _GPU_INDEX.fullmatch(name)
