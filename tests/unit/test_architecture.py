"""The page on the way of a dump names folders and files that exist, and no folder of reductions or rules is left out unseen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(forensics/[\w/.]+)`", PAGE)))


@pytest.mark.parametrize("place", NAMED)
def test_the_place_exists(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize("family", sorted(page.parent.name for page in (ROOT / "rules").glob("*/__init__.py")))
def test_every_folder_of_rules_is_on_the_way(family: str) -> None:
    assert f"forensics/rules/{family}/" in PAGE
