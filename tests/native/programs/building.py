"""Builds the random programs, the strict libraries that they call, and the collector in its forms."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.native.conftest import ROOT, sources_of

HERE = Path(__file__).parent
_FLAGS = ("-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fno-optimize-sibling-calls")
_LIBRARIES = {
    "full": (),
    "plain": ("-DWITHOUT_PNCCL",),
    "inner": ("-DINNER",),
    "old": ("-DOLD", "-DVERSION=21805"),
    "other": ("-DVERSION=22105",),
}
_ALONE = ("interposer.c", "job.c")
"""Not of the program itself."""


@dataclass(frozen=True, slots=True)
class Linkage:
    """How a program reaches NCCL: command, environment, and what is preloaded around the collector, in this order."""

    command: str
    env: dict[str, str] = field(default_factory=dict)
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


def linkages(folder: Path) -> dict[str, Linkage]:
    """The linkages that `build` makes in a folder."""
    linked, opener, interposer = str(folder / "linked"), str(folder / "opener"), str(folder / "interposer.so")
    search = {name: {"LD_LIBRARY_PATH": str(folder / name)} for name in _LIBRARIES}
    jobs = f"{folder / 'libjob.so'}", f"{folder / 'libjob_other.so'}"
    return {
        **{name: Linkage(linked, search[name]) for name in ("full", "inner", "old", "plain")},
        "opened": Linkage(opener, search["full"] | {"PROGRAMS_JOBS": jobs[0]}),
        "reopened": Linkage(opener, search["full"] | {"PROGRAMS_JOBS": ":".join(jobs)}),
        "interposer-first": Linkage(linked, search["full"], before=(interposer,)),
        "interposer-last": Linkage(linked, search["inner"], after=(interposer,)),
    }


def build(folder: Path) -> dict[str, Linkage]:
    """Compile everything but the collector."""
    for name, options in _LIBRARIES.items():
        (folder / name).mkdir(parents=True)
        _library(folder / name / soname(name), sorted(HERE.glob("strict_*.c")), f"-Wl,-soname,{soname(name)}", *options)
    parts = [path for path in sorted(HERE.glob("*.c")) if not path.name.startswith("strict_") and path.name not in _ALONE]
    full, other = (str(folder / name / soname(name)) for name in ("full", "other"))
    # lazily bound: a program may name functions that an old library lacks
    _compile(folder / "linked", [*parts, HERE / "job.c"], "-DLINKED", "-rdynamic", "-Wl,-z,lazy", full)
    _compile(folder / "opener", parts, "-rdynamic")
    _library(folder / "libjob.so", [HERE / "job.c"], "-Wl,-z,lazy", full)
    named = f'-DSONAME="{soname("other")}"'
    _library(folder / "libjob_other.so", [HERE / "job.c"], "-Wl,-z,lazy", named, other, f"-Wl,-rpath,{folder / 'other'}")
    _library(folder / "interposer.so", [HERE / "interposer.c"])
    return linkages(folder)


def soname(library: str) -> str:
    """Two libraries that one program opens have different names."""
    return "libnccl_other.so.2" if library == "other" else "libnccl.so.2"


def collector(output: Path, *options: str) -> Path:
    """The collector from its sources, perhaps with a sanitizer: those look up functions themselves before they are ready."""
    hidden = "verbs/lookup.c" if any(option.startswith("-fsanitize") for option in options) else "no such file"
    sources = [source for source in sources_of("shim") if not source.endswith(hidden)]
    includes = (f"-I{ROOT / 'native/include'}", f"-I{ROOT / 'native'}")
    flags = ("-std=c11", "-O2", "-g", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-z,nodelete", "-pthread", *options)
    subprocess.run(["cc", *flags, *includes, *sources, "-ldl", "-lm", "-o", str(output)], check=True)
    return output


def runtime(library: str) -> Path:
    """Where the compiler keeps a library of its own, such as libasan.so."""
    found = subprocess.run(["cc", f"-print-file-name={library}"], check=True, capture_output=True, text=True).stdout
    return Path(found.strip()).resolve()


def _library(output: Path, sources: Iterable[Path], *options: str) -> None:
    _compile(output, sources, "-shared", "-fPIC", *options)


def _compile(output: Path, sources: Iterable[Path], *options: str) -> None:
    command = ["cc", *_FLAGS, *map(str, sources), *options, "-o", str(output), "-pthread", "-ldl"]
    subprocess.run(command, check=True)
