"""Random programs of NCCL calls say and do the same with the collector as without it (tests/native/programs)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.native.programs.building import Linkage, build, collector, runtime
from tests.native.programs.comparing import Collector, difference, differing, first_change
from tests.native.shim_drivers import sanitized

QUICK = {
    "full": 40,
    "inner": 25,
    "old": 15,
    "plain": 15,
    "opened": 20,
    "reopened": 15,
    "interposer-first": 10,
    "interposer-last": 10,
}
LONG = {
    "full": 3000,
    "inner": 1500,
    "old": 1000,
    "plain": 1000,
    "opened": 1500,
    "reopened": 1000,
    "interposer-first": 500,
    "interposer-last": 500,
}
"""Programs by the linkage through which they reach NCCL; ten thousand together."""
SANITIZERS = {"address,undefined": ("libasan.so", 300, "f"), "thread": ("libtsan.so", 60, "ifl")}
"""Library, programs, and what to leave out.

The thread sanitizer puts off signals. Neither bears a fork: a lock of the allocator of gcc's address sanitizer that another
thread holds stays locked in the child.
"""
SLEEPERS = 12
"""Runs at a time under the thread sanitizer, in which each program sleeps for a second before it ends."""
QUIET = "handle_segv=0:handle_abort=0:handle_sigbus=0:handle_sigill=0:handle_sigfpe=0:detect_leaks=0:die_after_fork=0"
"""The programs' own deaths are not the sanitizer's business."""


@pytest.fixture(scope="module")
def linkages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Linkage]:
    return build(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="module")
def shim(built: Path) -> Collector:
    return Collector((str(built / "libforensics_shim.so"),))


def judge(name: str, linkage: Linkage, seeds: range, watched: Collector) -> None:
    """Fails with a line for each of the first programs that differ."""
    wrong = differing(linkage, seeds, watched)
    lines = [f"{seed}: {first_change(difference(linkage, seed, watched))}" for seed in wrong[:10]]
    text = "\n".join([f"{len(wrong)} of {len(seeds)} differ; python -m tests.native.programs --linkage {name} SEED", *lines])
    assert not wrong, f"{text}\nall: {wrong}"


@pytest.mark.slow  # a second of programs after four seconds of compiling them
@pytest.mark.parametrize("name", QUICK)
def test_the_collector_changes_nothing(name: str, linkages: dict[str, Linkage], shim: Collector) -> None:
    judge(name, linkages[name], range(QUICK[name]), shim)


@pytest.mark.deep
@pytest.mark.parametrize("name", LONG)
def test_the_collector_changes_nothing_in_ten_thousand(name: str, linkages: dict[str, Linkage], shim: Collector) -> None:
    judge(name, linkages[name], range(1000, 1000 + LONG[name]), shim)


@pytest.mark.slow
def test_a_collector_that_is_switched_off_changes_nothing(linkages: dict[str, Linkage], shim: Collector) -> None:
    judge("full", linkages["full"], range(40), Collector(shim.preload, {"FORENSICS_SHIM": "0"}))


@pytest.fixture(scope="module", params=SANITIZERS)
def checked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Collector, int]:
    """The collector under a sanitizer, and how many programs are tried with it."""
    library, seeds, without = SANITIZERS[request.param]
    try:
        built = collector(tmp_path_factory.mktemp("checked") / "checked.so", *sanitized(request.param))
    except subprocess.CalledProcessError:
        pytest.skip(f"cannot build with -fsanitize={request.param}")
    env = {"ASAN_OPTIONS": QUIET, "TSAN_OPTIONS": QUIET, "UBSAN_OPTIONS": "halt_on_error=1", "PROGRAMS_WITHOUT": without}
    needed = str(runtime(library))
    at_once = SLEEPERS if request.param == "thread" else 1
    return Collector((needed, str(built)), env, absent=(needed,), at_once=at_once), seeds


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "inner", "opened"])
def test_no_finding(name: str, linkages: dict[str, Linkage], checked: tuple[Collector, int]) -> None:
    watched, seeds = checked
    judge(name, linkages[name], range(seeds), watched)
