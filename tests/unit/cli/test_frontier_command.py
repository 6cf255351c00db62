"""`forensics frontier`: text, JSON, SVG, and a packet that is read back."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from typer.testing import CliRunner

from forensics.cli import app

ROOT = Path(__file__).parents[3]
BUNDLE = str(ROOT / "fixtures/scenarios/stage-slow/bundle.tar.zst")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["frontier", *arguments])
    assert result.exit_code == 0, result.output
    return result.output


def test_text_shows_account_attribution_and_heat() -> None:
    shown = run(BUNDLE)
    assert "ACCOUNT" in shown and "data on rank 1" in shown and "rank 1" in shown.partition("HEAT")[2]


def test_json_is_the_field_of_the_verdict() -> None:
    (window,) = json.loads(run(BUNDLE, "--format", "json"))["windows"]
    assert abs(sum(window["advances_ns"]) - window["exposed_ns"]) <= len(window["stages"])
    assert {"group", "role", "steps", "stages", "shares", "gains", "routing_set", "ambiguity_set", "labels", "leader"} <= set(
        window
    )
    assert window["attribution"]["losses"][0]["ranks"] == [1]


def test_svg_is_well_formed() -> None:
    root = ElementTree.fromstring(run(BUNDLE, "--format", "svg"))
    assert sum("marked" in (element.get("class") or "") for element in root.iter()) == 1


def test_a_packet_is_small_and_gives_the_same_answer(tmp_path: Path) -> None:
    packet = tmp_path / "job.stages.gz"
    whole = json.loads(run(BUNDLE, "--format", "json", "--packet", str(packet)))
    assert packet.stat().st_size < 4 * 4000
    again = json.loads(run(str(packet), "--format", "json"))
    assert again["windows"][0]["advances_ns"] == whole["windows"][0]["advances_ns"]
    assert again["windows"][0]["attribution"]["losses"] == whole["windows"][0]["attribution"]["losses"]


def test_other_names_come_from_a_file(tmp_path: Path) -> None:
    names = tmp_path / "names.toml"
    names.write_text('[stages]\ndata = ["^zzz"]\n')
    run(BUNDLE, "--names", str(names))


def test_without_stages_it_says_so() -> None:
    bundle = str(ROOT / "fixtures/scenarios/host-stalled/bundle.tar.zst")
    result = CliRunner().invoke(app, ["frontier", bundle])
    assert result.exit_code != 0
