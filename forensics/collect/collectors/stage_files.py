"""What `forensics.recorder` wrote in the ranks, `<folder>/rank_<n>.stages` (docs/formats/stage-vectors.md).

The trainer names the folder, or FORENSICS_STAGES does, so that the surest way to a file is the descriptor by which the rank
holds it open. The files of dead ranks, and of those that are done with recording, lie in the folder of the variable, or beside
the file that a living rank holds open. A file is copied while its process writes to it: its layout is made for that. A ring
that has not come round is mostly zero, so each copy is compressed.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path, PurePosixPath

from forensics.bundle.layout import Status, member_name, rank_path
from forensics.collect.compressed import copied
from forensics.collect.opening import NotAPlainFileError, RefusedError, check_owner, open_plain_file
from forensics.collect.permissions import why_denied
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run, failure
from forensics.collect.target import Context, Target, visible_path
from forensics.recorder import layout
from forensics.recorder.recorder import FOLDER_VARIABLE

ID = "stages.files"
MOST_BYTES = 256 << 20
"""With the recorder's own ring a file has four megabytes; a larger ring is cut here."""
MOST_FILES = 4
"""Files taken of one rank."""
_NAME = re.compile(r"rank_\d+\.stages")
_DELETED = " (deleted)"


@dataclass(frozen=True, slots=True)
class StageFile:
    """One file: its name as the rank sees it, and as it can be opened; `is_open`: through a descriptor of the rank."""

    name: str
    path: Path
    is_open: bool


def open_files(procfs: ProcFs, pid: int) -> list[StageFile]:
    """Files that a process holds open and that are named as the recorder names them. Raises OSError."""
    return [
        StageFile(name, procfs.path(pid, f"fd/{number}"), True)
        for number, name in sorted(procfs.descriptors(pid).items())
        if name.startswith("/") and _NAME.fullmatch(PurePosixPath(name.removesuffix(_DELETED)).name)
    ]


def collect_stages(context: Context, target: Target, sample: int) -> Iterator[Run]:
    """The stages that one rank recorded, dead or alive."""
    witness = target.pid if target.pid is not None and target.state == "alive" else target.witness
    configured = target.environ.get(FOLDER_VARIABLE)
    if witness is None:
        yield Run(ID, target.rank, Status.NOT_FOUND, "no living process of the job states where stages are recorded")
        return
    try:
        seen = open_files(context.procfs, witness)
    except PermissionError:
        if not configured:
            reason = why_denied(context.procfs, witness, "see the open files")
            yield Run(ID, target.rank, Status.PERMISSION, reason, pid=target.pid)
            return
        seen = []
    own = seen if witness == target.pid else []
    folders = [*([configured] if configured else []), *(str(PurePosixPath(file.name).parent) for file in seen)]
    yield from _copied(context, target, witness, own[:MOST_FILES], list(dict.fromkeys(folders)))


def _copied(context: Context, target: Target, witness: int, own: list[StageFile], folders: list[str]) -> Iterator[Run]:
    """The files that the rank holds open, else what lies under its number in the folders."""
    if not folders:
        reason = f"nothing is recorded: {FOLDER_VARIABLE} is not set, and no file of forensics.recorder is open"
        yield Run(ID, target.rank, Status.NOT_CONFIGURED, reason, pid=target.pid)
        return
    names = [f"{folder}/rank_{target.rank}.stages" for folder in folders]
    places = own or [StageFile(name, visible_path(context.procfs, witness, name), False) for name in names]
    refused: dict[str, Status] = {}
    taken: set[str] = set()
    for place in places:
        name = member_name(PurePosixPath(place.name.removesuffix(_DELETED)).name)
        member = rank_path(target.rank, f"stages/{f'{len(taken)}.' if name in taken else ''}{name}.zst")
        try:
            yield _copy(context, target, place, member)
            taken.add(name)
        except RefusedError as error:
            refused[str(error)] = Status.NOT_FOUND
        except OSError as error:
            status, reason = failure(error, place.name)
            refused[reason] = status
    if not taken:
        denied = Status.PERMISSION in refused.values()
        status = Status.PERMISSION if denied else Status.NOT_FOUND
        yield Run(ID, target.rank, status, "; ".join(refused), pid=target.pid)


def _copy(context: Context, target: Target, place: StageFile, member: str) -> Run:
    """Copy one file, compressed. Raises OSError when it cannot be read, RefusedError when it must not be taken."""
    # A descriptor of /proc is a link by its nature; any other link may lead a collector that runs as root elsewhere.
    try:
        descriptor = open_plain_file(place.path, follow=place.is_open)
    except NotAPlainFileError as error:
        raise RefusedError(f"{place.name} is not a plain file") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RefusedError(f"{place.name} is a link") from error
        raise
    with FileIO(descriptor, "rb") as stream:
        _check(os.fstat(descriptor), place, target)
        head = stream.read(len(layout.MAGIC)) or b""
        if head != layout.MAGIC:
            raise RefusedError(f"{place.name} holds nothing that forensics.recorder wrote")
        run = Run(ID, target.rank, Status.OK, pid=target.pid)
        return copied(context.staging, run, stream, member, place.name, MOST_BYTES, head)


def _check(found: os.stat_result, place: StageFile, target: Target) -> None:
    check_owner(found, place.name, target.uid)
    if not place.is_open and found.st_mtime_ns < target.since_ns:
        raise RefusedError(f"{place.name} is of an earlier run")
