"""The page of a job of a thousand ranks in a real browser, by day and by night; left out where there is none."""

from __future__ import annotations

import shutil
import struct
import subprocess
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.model import Victims
from forensics.report.drawing import DARK, LIGHT
from forensics.report.page.document import render
from tests.unit.report.test_critical_path import PATH
from tests.unit.report.test_page import window
from tests.unit.report.verdicts import HANG

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")
WIDTH, HEIGHT = 900, 1400
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on this host")]


def browse(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Open the page with the flags; everything the browser keeps lies in the folder."""
    command = [str(BROWSER), *FLAGS, f"--user-data-dir={folder / 'profile'}", "--enable-logging=stderr", *words]
    done = subprocess.run([*command, (folder / "page.html").as_uri()], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done


def pixels(picture: bytes) -> tuple[int, int, tuple[int, ...], int]:
    """Width, height, the colour in the upper left corner, and bytes of a PNG before compression that are not that colour."""
    width, height, depth, kind = struct.unpack(">IIBB", picture[16:26])
    assert (depth, kind) in ((8, 2), (8, 6))
    packed, place = b"", 8
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        packed += picture[place + 8 : place + 8 + length] if picture[place + 4 : place + 8] == b"IDAT" else b""
        place += 12 + length
    content = zlib.decompress(packed)
    return width, height, tuple(content[1:4]), len(content) - content.count(0)


@pytest.mark.parametrize(("scheme", "paper"), [(1, LIGHT["paper"]), (0, DARK["paper"])], ids=["light", "dark"])
def test_a_page_of_a_thousand_ranks_is_drawn(scheme: int, paper: str, tmp_path: Path) -> None:
    victims = tuple(Victims((rank,), (2, (rank + 1) % 1000)) for rank in range(1000) if rank != 2)
    verdict = replace(HANG, victims=victims, frontier=(window(1000, 77),), critical_path=PATH)
    (tmp_path / "page.html").write_text(render(verdict), encoding="utf-8")
    settings = (f"--blink-settings=preferredColorScheme={scheme}", f"--window-size={WIDTH},{HEIGHT}")
    done = browse(tmp_path, *settings, f"--screenshot={tmp_path / 'page.png'}")
    assert "Refused to" not in done.stderr and "violates" not in done.stderr
    width, height, corner, drawn = pixels((tmp_path / "page.png").read_bytes())
    assert (width, height) == (WIDTH, HEIGHT)
    assert corner == tuple(bytes.fromhex(paper[1:])), "the paper has the colour of the scheme"
    assert drawn > 20_000, "something is drawn on it"


def test_the_browser_reads_the_page_as_it_was_written(tmp_path: Path) -> None:
    page = render(replace(HANG, frontier=(window(1000, 77),), critical_path=PATH))
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    tree = browse(tmp_path, "--dump-dom").stdout
    for element in ("<section", "<svg", "<rect", "<tr", "<details"):
        assert tree.count(element) == page.count(element), element
    assert "<script" not in tree
