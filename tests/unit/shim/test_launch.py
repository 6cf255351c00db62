"""The variables that load the collector."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from forensics.errors import ForensicsError
from forensics.shim.launch import Choices, variables, written

LIBRARY = Path("/opt/forensics/libforensics_shim.so")


def test_both_hooks_are_installed_unless_one_is_left_out() -> None:
    assert variables(Choices(library=LIBRARY), {}) == {"LD_PRELOAD": str(LIBRARY), "NCCL_PROFILER_PLUGIN": str(LIBRARY)}
    assert set(variables(Choices(library=LIBRARY, preload=False), {})) == {"NCCL_PROFILER_PLUGIN"}
    assert set(variables(Choices(library=LIBRARY, profiler=False), {})) == {"LD_PRELOAD"}
    with pytest.raises(ForensicsError):
        variables(Choices(library=LIBRARY, preload=False, profiler=False), {})


def test_what_was_preloaded_before_stays_behind_it() -> None:
    found = variables(Choices(library=LIBRARY), {"LD_PRELOAD": f"/lib/jemalloc.so {LIBRARY}:/lib/other.so"})
    assert found["LD_PRELOAD"] == f"{LIBRARY}:/lib/jemalloc.so:/lib/other.so"


def test_a_path_that_preloading_cannot_name_is_refused() -> None:
    with pytest.raises(ForensicsError):
        variables(Choices(library=Path("/opt/my libs/libforensics_shim.so")), {})


def test_choices_become_variables() -> None:
    found = variables(Choices(Path("/scratch/logs"), "run 7", 1 << 21, library=LIBRARY), {})
    assert found["FORENSICS_SHIM_DIR"] == "/scratch/logs"
    assert (found["FORENSICS_SHIM_JOB"], found["FORENSICS_SHIM_BYTES"]) == ("run 7", "2097152")


def test_each_form_carries_values_with_blanks() -> None:
    found = {"LD_PRELOAD": "/a.so", "FORENSICS_SHIM_JOB": "run 7"}
    assert written(found, "shell") == "export LD_PRELOAD=/a.so\nexport FORENSICS_SHIM_JOB='run 7'"
    assert json.loads(written(found, "json")) == found
    assert shlex.split(written(found, "docker")) == ["-e", "LD_PRELOAD=/a.so", "-e", "FORENSICS_SHIM_JOB=run 7"]
    assert shlex.split(written(found, "slurm")) == ["--export=ALL,LD_PRELOAD=/a.so,FORENSICS_SHIM_JOB=run 7"]
    with pytest.raises(ForensicsError):
        written({"FORENSICS_SHIM_JOB": "a,b"}, "slurm")
