"""The wheel in a clean image of a distribution: no compiler, no make, no network, no /proc, and only what pip brings along."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.release.test_wheels import DIST, RECORDED, wheel

# Of the host's own distribution, from where the host has its packages from.
RELEASE = "bookworm"
ABSENT = ("cc", "gcc", "make", "cmake", "git")
pytestmark = [
    pytest.mark.skipif(not list(DIST.glob("*.whl")), reason="make wheels has not been run"),
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("debootstrap") is None, reason="needs root and debootstrap"),
]


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A minimal Debian with Python, 275 MB."""
    root = tmp_path_factory.mktemp("image")
    words = ("debootstrap", "--variant=minbase", "--include=python3,python3-venv", RELEASE, str(root))
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no image can be made here: {made.stdout.strip().splitlines()[-1:]}")
    return root


def test_the_wheel_diagnoses_in_a_clean_image(image: Path) -> None:
    chroot = shutil.which("chroot") or "chroot"
    version = subprocess.run(
        [chroot, image, "python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
    )
    fetched = ["-m", "pip", "download", "--quiet", "--only-binary=:all:", f"--python-version={version.stdout.strip()}"]
    fetched += [f"--dest={image / 'wheels'}", str(wheel(platform.machine()))]
    subprocess.run([sys.executable, *fetched], check=True, capture_output=True)
    shutil.copy(RECORDED, image / "root")

    def run(*words: str) -> str:
        inside = {"PATH": "/opt/forensics/bin:/usr/bin:/bin", "HOME": "/root", "COLUMNS": "100"}
        done = subprocess.run([chroot, image, *words], env=inside, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
        return done.stdout

    assert [name for name in ABSENT if list(image.glob(f"usr/bin/{name}"))] == []
    run("python3", "-m", "venv", "/opt/forensics")
    run("pip", "install", "--quiet", "--no-index", "--find-links=/wheels", "forensics")
    report = run("forensics", "diagnose", f"/root/{RECORDED.name}")
    here = subprocess.run([sys.executable, "-m", "forensics", "diagnose", RECORDED], capture_output=True, text=True, check=True)
    assert report.startswith("HANG") and report.splitlines()[:3] == here.stdout.splitlines()[:3]
    assert run("python3", "-c", "from forensics.native import read_clocks; print(read_clocks().native)") == "True\n"
