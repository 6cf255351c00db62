"""py-spy never stops, signals or leaves stopped what it looks at: real targets, the real py-spy, and worse programs."""

from __future__ import annotations

import errno
import os
import platform
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.layout import Status
from forensics.collect.collectors import py_spy
from forensics.collect.collectors.py_spy import collect_stacks, find_py_spy
from forensics.collect.confinement import why_unconfined
from forensics.collect.processes import ProcFs
from forensics.collect.record import Run
from forensics.collect.target import Context, Target
from tests.unit.collect.real_processes import (
    ATTACH,
    ATTACH_AND_DIE,
    LEAVE,
    SEIZE,
    SLEEP,
    SPIN,
    STAY,
    TRACE,
    VFORK,
    eventually,
    running,
    script,
    state,
    tracer,
)

pytestmark = pytest.mark.skipif(why_unconfined("/bin/true") is not None, reason="no system call filter here")


ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="vfork is not a system call of its own here")
ASLEEP = pytest.param(VFORK, "uninterruptible sleep (state D)", marks=ON_X86, id="asleep")


@pytest.fixture
def spying(context: Context) -> Context:
    """The real /proc, and the real py-spy."""
    return replace(context, procfs=ProcFs(), py_spy=find_py_spy(), settings=replace(context.settings, stack_s=60.0))


def sample(context: Context, pid: int) -> Run:
    """The run of the process itself; the child of one that has called vfork is sampled too."""
    return next(run for run in collect_stacks(context, Target(0, "alive", pid), 0) if run.pid == pid)


def attacher(context: Context, tmp_path: Path, then: str = LEAVE) -> Context:
    """A py-spy that attaches to its target, says how that went, and ends without letting go."""
    said = str(tmp_path / "said")
    return replace(context, py_spy=script(tmp_path / "attach", TRACE.format(request=ATTACH, said=said, place=5, then=then)))


def free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host whose kernel has no system call filter."""
    monkeypatch.setattr(py_spy, "why_unconfined", lambda program: "no filter")


@pytest.mark.parametrize("code", [SPIN, SLEEP])
def test_the_real_py_spy_works_under_the_filter(spying: Context, code: str) -> None:
    with running(code) as target:
        run = sample(spying, target.pid)
        assert (run.status, run.reason) == (Status.OK, None)
        assert state(target.pid) in "RS"


def test_a_py_spy_that_would_attach_is_refused_and_the_target_runs_on(spying: Context, tmp_path: Path) -> None:
    with running(SPIN) as target:
        assert sample(attacher(spying, tmp_path), target.pid).status is Status.PARTIAL
        assert (tmp_path / "said").read_text() == str(errno.EPERM)
        assert state(target.pid) == "R"


@pytest.mark.slow
def test_a_py_spy_that_dies_while_it_attaches_leaves_its_target_running(spying: Context, tmp_path: Path) -> None:
    program = script(tmp_path / "dies", ATTACH_AND_DIE)
    with running(SPIN) as target:
        for _ in range(5):
            assert sample(replace(spying, py_spy=program), target.pid).status is Status.PARTIAL
            assert not eventually(lambda: state(target.pid) != "R", attempts=5)


@pytest.mark.parametrize("call", ["os.kill(pid, 19)", "signal.pidfd_send_signal(os.pidfd_open(pid), 9)"])
def test_a_py_spy_that_would_send_a_signal_is_refused(spying: Context, tmp_path: Path, call: str) -> None:
    program = script(tmp_path / "worse", f"import os, signal, sys\npid = int(sys.argv[5])\n{call}")
    with running(SPIN) as target:
        run = sample(replace(spying, py_spy=program), target.pid)
        assert run.status is Status.PERMISSION
        assert state(target.pid) == "R"


def test_a_process_that_somebody_traces_is_read_and_stays_traced(spying: Context, tmp_path: Path) -> None:
    with running(SPIN) as target:
        code = "print(0, flush=True)\n" + TRACE.format(request=SEIZE, said=str(tmp_path / "said"), place=1, then=STAY)
        with running(code, str(target.pid)) as debugger:
            assert eventually(lambda: tracer(target.pid) == debugger.pid)
            assert sample(spying, target.pid).status is Status.OK
            assert (tracer(target.pid), state(target.pid)) == (debugger.pid, "R")


@ON_X86
def test_a_process_in_uninterruptible_sleep_is_read_without_attaching(spying: Context) -> None:
    with running(VFORK) as target:
        assert eventually(lambda: state(target.pid) == "D")
        assert sample(spying, target.pid).status is Status.OK
        assert state(target.pid) == "D"


def test_a_process_that_was_stopped_is_read_and_stays_stopped(spying: Context) -> None:
    with running(SPIN) as target:
        target.send_signal(signal.SIGSTOP)
        assert eventually(lambda: state(target.pid) == "T")
        assert sample(spying, target.pid).status is Status.OK
        assert state(target.pid) == "T"


def test_without_a_filter_a_killed_tracer_leaves_its_target_running(
    spying: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch)
    with running(SPIN) as target:
        assert sample(attacher(spying, tmp_path), target.pid).status is Status.PARTIAL
        assert (tmp_path / "said").read_text() == "0"
        assert eventually(lambda: state(target.pid) == "R" and tracer(target.pid) == 0)


def test_without_a_filter_a_target_left_stopped_is_set_going_again(
    spying: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch)
    program = script(tmp_path / "dies", ATTACH_AND_DIE)
    with running(SPIN) as target:
        assert sample(replace(spying, py_spy=program), target.pid).status is Status.PARTIAL
        assert eventually(lambda: state(target.pid) == "R")


def test_without_a_filter_the_guard_outlives_a_killed_collector(
    spying: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch)
    context = attacher(spying, tmp_path, STAY)
    context = replace(context, settings=replace(context.settings, stack_s=600.0))
    with running(SPIN) as target:
        collector = os.fork()
        if collector == 0:
            os.setsid()
            list(collect_stacks(context, Target(0, "alive", target.pid), 0))
            os._exit(0)
        assert eventually((tmp_path / "said").exists)
        assert eventually(lambda: state(target.pid) == "t")
        os.kill(collector, signal.SIGKILL)
        os.waitpid(collector, 0)
        assert eventually(lambda: state(target.pid) == "R" and tracer(target.pid) == 0)


@pytest.mark.slow
def test_without_a_filter_what_was_stopped_before_is_not_continued(
    spying: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free(monkeypatch)
    with running(SPIN) as target:
        target.send_signal(signal.SIGSTOP)
        assert eventually(lambda: state(target.pid) == "T")
        assert sample(attacher(spying, tmp_path), target.pid).status is Status.PARTIAL
        assert eventually(lambda: tracer(target.pid) == 0)
        eventually(lambda: False, attempts=140)  # longer than the guard looks
        assert state(target.pid) == "T"


@pytest.mark.parametrize(("code", "words"), [pytest.param(SPIN, "is traced by process", id="traced"), ASLEEP])
def test_without_a_filter_nothing_is_done_to_what_is_traced_or_in_the_kernel(
    spying: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, words: str
) -> None:
    free(monkeypatch)
    with running(code) as target:
        tracing = "print(0, flush=True)\n" + TRACE.format(request=SEIZE, said=str(tmp_path / "said"), place=1, then=STAY)
        with running(tracing, str(target.pid)) if code == SPIN else running(SLEEP):
            assert eventually(lambda: state(target.pid) == "D" or tracer(target.pid))
            run = sample(spying, target.pid)
    assert run.status is Status.SKIPPED_BY_POLICY
    assert words in str(run.reason)
    assert "cannot be kept from ptrace: no filter" in str(run.reason)


def test_a_py_spy_with_capabilities_of_its_own_is_not_confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = script(tmp_path / "py-spy", "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert why_unconfined(program) is None
    Path(program).chmod(0o4755)
    assert "privileges of its own" in str(why_unconfined(program))


def test_programs_take_nothing_from_the_shell_of_a_job(
    spying: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "LD_PRELOAD", "NCCL_DEBUG"):
        monkeypatch.setenv(name, "")
    program = script(tmp_path / "py-spy", "import json, os\nprint(json.dumps(sorted(os.environ)))")
    with running(SLEEP) as target:
        run = sample(replace(spying, py_spy=program), target.pid)
    found = (spying.staging.root / str(run.path)).read_text()
    assert "PATH" in found
    assert not [name for name in ("RANK", "LD_PRELOAD", "NCCL_DEBUG") if name in found]
