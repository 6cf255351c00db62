"""What `make wheels` has left in dist/: wheels for any newer Linux, an sdist they were built of, and all of one version."""

from __future__ import annotations

import os
import platform
import re
import struct
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import forensics

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
RECORDED = ROOT / "fixtures/recorded/recommender-hang.tar.zst"
LIBRARIES = ("clock", "pickle", "shim", "trace")
pytestmark = pytest.mark.skipif(not list(DIST.glob("*.whl")), reason="make wheels has not been run")


# Type of the program header of thread-local storage, and the alignment that a program leaves to libraries that are loaded late.
PT_TLS = 7
LATE_ALIGNMENT = {"x86_64": 64, "aarch64": 16}
# The machine of an ELF file (`e_machine`), and the newest C library that the wheels may need.
MACHINES = {"x86_64": 62, "aarch64": 183}
GLIBC = 28


def wheel(machine: str) -> Path:
    (found,) = DIST.glob(f"*_{machine}.whl")
    return found


@pytest.mark.parametrize("machine", MACHINES)
def test_the_libraries_are_of_the_machine_and_of_no_newer_linux(machine: str) -> None:
    with zipfile.ZipFile(wheel(machine)) as archive:
        libraries = [archive.read(f"forensics/_native/libforensics_{name}.so") for name in LIBRARIES]
    assert {int.from_bytes(library[18:20], "little") for library in libraries} == {MACHINES[machine]}
    needed = {int(minor) for library in libraries for minor in re.findall(rb"GLIBC_2\.(\d+)", library)}
    assert max(needed) <= GLIBC


@pytest.mark.parametrize("machine", MACHINES)
def test_the_collector_can_be_loaded_late(machine: str) -> None:
    with zipfile.ZipFile(wheel(machine)) as archive:
        library = archive.read("forensics/_native/libforensics_shim.so")
    start, size, count = (*struct.unpack_from("<Q", library, 32), *struct.unpack_from("<HH", library, 54))
    headers = [struct.unpack_from("<II6Q", library, start + size * number) for number in range(count)]
    assert [header[-1] for header in headers if header[0] == PT_TLS] == [LATE_ALIGNMENT[machine]]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_wheel_serves_every_python_of_a_platform_and_has_the_libraries_inside(machine: str) -> None:
    version = re.escape(forensics.__version__)
    assert re.fullmatch(rf"forensics-{version}-py3-none-manylinux_2_\d+_{machine}\.whl", wheel(machine).name)
    with zipfile.ZipFile(wheel(machine)) as archive:
        names = set(archive.namelist())
    assert {f"forensics/_native/libforensics_{name}.so" for name in LIBRARIES} <= names
    assert {name.rpartition("/")[2] for name in names if "/share/" in name} - {""} == {"forensics.1"}
    assert {"forensics/case/schema.sql", "forensics/rules/known_defects.toml", "forensics/py.typed"} <= names
    assert not [
        name
        for name in names
        if "recorded/" in name or "scenarios/" in name or "/samples/" in name or name.startswith("tests/")
    ]


def test_a_tagged_commit_is_built_under_the_version_of_its_tag() -> None:
    """Of a commit without a tag, and of a source tree without git, there is nothing to compare."""
    listed = subprocess.run(["git", "tag", "--points-at", "HEAD", "--list", "v*"], cwd=ROOT, capture_output=True, text=True)
    tags = listed.stdout.split()
    assert tags in ([], [f"v{forensics.__version__}"])
    if tags:
        assert f"\n## {forensics.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_sdist_has_what_the_wheel_is_built_of() -> None:
    (sdist,) = DIST.glob("*.tar.gz")
    assert sdist.name == f"forensics-{forensics.__version__}.tar.gz"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"native/CMakeLists.txt", "native/shim/CMakeLists.txt", "docs/forensics.1", "LICENSE", "README.md"} <= names
    assert "forensics/ingest/flight_recorder/__init__.py" in names


def test_the_wheel_diagnoses_where_there_is_no_compiler(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"
    environ = {name: value for name, value in os.environ.items() if name.startswith("PIP_") or "CERT" in name}
    environ |= {"PATH": str(programs), "HOME": str(tmp_path), "COLUMNS": "100"}

    def run(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    run(programs / "pip", "install", "--quiet", "--only-binary=:all:", wheel(platform.machine()))
    assert run(programs / "forensics", "--version") == f"forensics {forensics.__version__}\n"
    report = run(programs / "forensics", "diagnose", RECORDED)
    here = subprocess.run([sys.executable, "-m", "forensics", "diagnose", RECORDED], cwd=ROOT, capture_output=True, text=True)
    assert report.splitlines()[:3] == here.stdout.splitlines()[:3] and report.startswith("HANG")
    assert run(programs / "python", "-c", "from forensics.native import read_clocks; print(read_clocks().native)") == "True\n"
    assert (tmp_path / "venv/share/man/man1/forensics.1").is_file()
    for shell in ("bash", "zsh", "fish"):
        environ["_FORENSICS_COMPLETE"] = f"source_{shell}"
        assert "forensics" in run(programs / "forensics")
