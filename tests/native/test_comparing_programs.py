"""A program that ends otherwise by itself, once, is no difference that the collector made (tests/native/programs/comparing)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.native.programs.building import Linkage
from tests.native.programs.comparing import Collector, differing

DRIVER = """#!/bin/sh
with=plain; [ -n "$WATCHED" ] && with=watched
echo run >> {folder}/$with
runs=$(wc -l < {folder}/$with)
case "$with $runs" in {odd}) digest=odd;; *) digest=usual;; esac
echo "$1 0 0 $digest"
"""


class Watched(Collector):
    """A collector that the script knows by its environment."""

    def without(self) -> Collector:
        return Collector()


@pytest.mark.parametrize(
    ("odd", "wrong"),
    [
        ("'plain 1'", []),
        ("'watched 1'", []),
        ("'plain 1' | 'watched 5'", []),
        ("'watched '*", [7]),
        ("'watched 1' | 'watched 6'", [7]),
    ],
)
def test_only_what_the_collector_changes_more_than_once_is_a_difference(odd: str, wrong: list[int], tmp_path: Path) -> None:
    driver = tmp_path / "driver"
    driver.write_text(DRIVER.format(folder=tmp_path, odd=odd))
    driver.chmod(0o755)
    assert differing(Linkage(str(driver)), range(7, 8), Watched(env={"WATCHED": "1"})) == wrong
