"""The variables that load the collector into a job, and how they are written for shells, containers and schedulers."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from forensics.errors import ExitCode, ForensicsError
from forensics.native import library_path

LIBRARY = "forensics_shim"
FORMATS = ("shell", "json", "docker", "slurm")


@dataclass(frozen=True, slots=True)
class Choices:
    """What the user asked for; `library` is None for the one that is shipped, `folder`, `job`, `size` None for the defaults."""

    folder: Path | None = None
    job: str | None = None
    size: int | None = None
    preload: bool = True
    profiler: bool = True
    library: Path | None = None


def shipped_library() -> Path:
    """The library of this installation. Raises ForensicsError when there is none."""
    path = library_path(LIBRARY)
    if path is None:
        words = "this installation has no native library (libforensics_shim.so): install a wheel, or build it with a C compiler"
        raise ForensicsError(words, ExitCode.USAGE)
    return path.resolve()


def variables(choices: Choices, environ: Mapping[str, str]) -> dict[str, str]:
    """The variables to set; what `environ` preloads already stays, behind the collector."""
    if not (choices.preload or choices.profiler):
        raise ForensicsError("with neither the preload nor the profiler hook nothing would be recorded", ExitCode.USAGE)
    library = str(choices.library.resolve() if choices.library else shipped_library())
    if any(mark in library for mark in " :") and choices.preload:
        raise ForensicsError(f"{library}: LD_PRELOAD cannot name a path with blanks or colons; use --library", ExitCode.USAGE)
    found: dict[str, str] = {}
    if choices.preload:
        found["LD_PRELOAD"] = _preload(library, environ.get("LD_PRELOAD", ""))
    if choices.profiler:
        found["NCCL_PROFILER_PLUGIN"] = library
    if choices.folder is not None:
        found["FORENSICS_SHIM_DIR"] = str(choices.folder.absolute())
    if choices.job is not None:
        found["FORENSICS_SHIM_JOB"] = choices.job
    if choices.size is not None:
        found["FORENSICS_SHIM_BYTES"] = str(choices.size)
    return found


def _preload(library: str, before: str) -> str:
    """First in the list, so that its functions are the ones that are found; each library once."""
    others = [name for name in before.replace(":", " ").split() if name != library]
    return ":".join([library, *others])


def written(found: Mapping[str, str], form: str) -> str:
    """The variables as text: `export` lines, a JSON object, options of `docker run`, or the option of `srun` and `sbatch`."""
    if form == "json":
        return json.dumps(dict(found), indent=2)
    if form == "docker":
        return " ".join(f"-e {shlex.quote(f'{name}={value}')}" for name, value in found.items())
    if form == "slurm":
        return _slurm(found)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in found.items())


def _slurm(found: Mapping[str, str]) -> str:
    """A comma separates variables there: a value must not hold one."""
    if any("," in value for value in found.values()):
        raise ForensicsError("srun --export cannot carry a value with a comma: use export lines in the script", ExitCode.USAGE)
    return "--export=" + shlex.quote(",".join(["ALL", *(f"{name}={value}" for name, value in found.items())]))
