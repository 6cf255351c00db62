"""The live faults as bundles: each is brought about on a real job once, collected from outside, and kept in a build folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.live import commands
from tests.live.deep_faults import DEEP_FAULTS, rows_come_late
from tests.live.deep_network import CUTS, collect_apart
from tests.live.faults import FAULTS, Answer, Fault, Position, moving, moving_with_phases
from tests.live.harness import Job
from tests.live.rare_faults import RARE_FAULTS

Collect = Callable[[Job, Path], None]

NOBODY = Answer((), outcomes=("healthy", "slowdown", "inconclusive"), ranks=lambda _: ((),))
LATE = Answer(
    ("dataloader_stall", "host_stall", "unknown"),
    outcomes=("healthy", "slowdown", "inconclusive"),
    ranks=lambda at: ((), (at.victim,)),
)
CAN_CUT = os.geteuid() == 0 and shutil.which("ip") is not None


def collect(job: Job, bundle: Path) -> None:
    """Collect as it is: a rank that dies meanwhile, of what happened to another, is a part of the fault."""
    commands.forensics(["collect", "-o", str(bundle), *commands.only_this_job(job)])


@dataclass(frozen=True, slots=True)
class Kind:
    """A live fault, how its job is collected, and whether the job moves on all the while."""

    fault: Fault
    collect: Collect = collect
    moves: bool = False

    @property
    def name(self) -> str:
        return self.fault.start.__name__


def kinds() -> tuple[Kind, ...]:
    """All live faults of this machine, then the jobs that move."""
    stuck = [Kind(fault) for fault in (*FAULTS, *RARE_FAULTS, *DEEP_FAULTS)]
    cut = [Kind(fault, collect_apart) for fault in CUTS if CAN_CUT]
    sound = [Kind(Fault(start, Position(0, 12), NOBODY), moves=True) for start in (moving, moving_with_phases)]
    return (*stuck, *cut, *sound, Kind(Fault(rows_come_late, Position(1, 6), LATE), moves=True))


def recorded(kind: Kind, folder: Path, *, again: bool = False) -> Path:
    """The bundle of a fault at its usual position; recorded now unless the folder has it already."""
    bundle = folder / f"{kind.name}.tar"
    if again or not bundle.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = bundle.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        with inputs_folder() as inputs, kind.fault.start(inputs, kind.fault.position) as job:
            kind.collect(job, unfinished)
        unfinished.rename(bundle)
    return bundle


@contextlib.contextmanager
def inputs_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="inputs-", ignore_cleanup_errors=True) as name:
        yield Path(name)
