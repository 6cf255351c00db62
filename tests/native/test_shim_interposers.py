"""Beside others that stand in front of NCCL, and for programs that ask what their NCCL has."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.shim_jobs import HERE, compile_c, double, linked, only_log, run


@pytest.fixture(scope="module")
def interposer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("interposer") / "libother.so"
    return compile_c(output, [HERE / "interposer.c"], "-shared", "-fPIC")


def test_it_sees_every_call_in_both_orders(shim: Path, interposer: Path, tmp_path: Path) -> None:
    program = compile_c(tmp_path / "program", [HERE / "linking.c"], "-DPROGRAM", *linked(double(tmp_path)))
    alone = run([program], tmp_path / "alone", DOUBLE_TELLS="1", LD_PRELOAD=str(interposer))
    assert alone.stdout == "interposer saw 9\ndouble 23203 calls 11\n"
    for name, order in {"behind": (shim, interposer), "before": (interposer, shim)}.items():
        watched = run([program], tmp_path / name, DOUBLE_TELLS="1", LD_PRELOAD=":".join(map(str, order)))
        assert (watched.returncode, watched.stderr) == (0, ""), name
        assert sorted(watched.stdout.splitlines()) == sorted(alone.stdout.splitlines()), name
        assert len(only_log(tmp_path / name).rows("operations")) == 11, name


@pytest.mark.parametrize("is_linked", [True, False])
def test_a_probe_finds_what_it_finds_alone(is_linked: bool, shim: Path, tmp_path: Path) -> None:
    library = double(tmp_path)
    options = ("-Wl,--no-as-needed", *linked(library)) if is_linked else ()
    program = compile_c(tmp_path / "probing", [HERE / "probing.c"], *options)
    alone = run([program, library], tmp_path)
    watched = run([program, library], tmp_path, shim)
    assert (watched.returncode, watched.stderr) == (0, "")
    assert watched.stdout == alone.stdout
    assert ("ncclAllReduce 1 1 1 1" in alone.stdout) == is_linked
    assert "ncclAlltoAll 0 0 0 0" in alone.stdout


def test_an_interposer_finds_nothing_where_there_is_nothing(shim: Path, tmp_path: Path) -> None:
    """What is preloaded before us and asks for the next one must not be led to a function of ours that stands in for none."""
    source = tmp_path / "asking.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <stdio.h>\n"
        'int ncclAlltoAll(void);\nint ncclAlltoAll(void) { return dlsym(RTLD_NEXT, "ncclAlltoAll") != 0; }\n'
        '__attribute__((destructor)) static void tell(void) { printf("next %d\\n", ncclAlltoAll()); }\n'
    )
    asking = compile_c(tmp_path / "libasking.so", [source], "-shared", "-fPIC")
    program = compile_c(tmp_path / "probing", [HERE / "probing.c"], "-Wl,--no-as-needed", *linked(double(tmp_path)))
    done = run([program], tmp_path / "logs", LD_PRELOAD=f"{asking}:{shim}")
    assert done.stdout.endswith("next 0\n")
