"""A bundle that was changed, cut, or lacks what it names is distinguished from one that only could not take everything."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.bundle.verification import Finding, Weight, verify
from tests.recordings.collection import tar_of

RECORDED = Path(__file__).parents[3] / "fixtures/recorded/recommender-hang.tar.zst"
LOG = b"step 1\n"


def bundle() -> dict[str, bytes]:
    """The smallest whole bundle: one host, one rank, one log."""
    document = {
        "schema": "forensics.bundle/1", "begin_ns": 1, "end_ns": 2, "interrupted": False, "world_size": 1, "nodes": ["n"],
        "ranks": {"0": {"node": "n", "pid": 7, "state": "alive"}}, "status": {},
    }  # fmt: skip
    run = {
        "id": "log.files",
        "rank": 0,
        "status": "ok",
        "path": "ranks/0/logs/a.log",
        "sha256": hashlib.sha256(LOG).hexdigest(),
    }
    return {
        "bundle.json": json.dumps(document).encode(),
        "nodes/n/collectors.jsonl": json.dumps(run).encode() + b"\n",
        "nodes/n/node.json": b"{}",
        "ranks/0/rank.json": b"{}",
        "ranks/0/logs/a.log": LOG,
    }


def summed(members: dict[str, bytes]) -> dict[str, bytes]:
    lines = (f"{hashlib.sha256(content).hexdigest()}  {path}\n" for path, content in members.items())
    return {**members, "SHA256SUMS": "".join(lines).encode()}


def findings(tmp_path: Path, members: dict[str, bytes]) -> list[Finding]:
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of(members))
    return verify(open_bundle([path]))


def changed(path: str, content: bytes | None) -> dict[str, bytes]:
    """The bundle with a member put in another's place, or without it, and with sums made anew."""
    members = {**bundle(), path: content or b""}
    return summed({name: value for name, value in members.items() if content is not None or name != path})


def test_a_whole_bundle_has_no_finding(tmp_path: Path) -> None:
    assert findings(tmp_path, summed(bundle())) == []


def test_the_recorded_bundle_has_no_error() -> None:
    assert [one for one in verify(open_bundle([RECORDED])) if one.weight is Weight.ERROR] == []


@pytest.mark.parametrize(
    ("members", "path", "words"),
    [
        ({**summed(bundle()), "ranks/0/logs/a.log": b"step 2\n"}, "ranks/0/logs/a.log", "does not match SHA256SUMS"),
        ({**summed(bundle()), "ranks/0/more.log": b"x"}, "ranks/0/more.log", "added later"),
        (bundle(), "SHA256SUMS", "cannot be detected"),
        (changed("ranks/0/logs/a.log", b"step 2\n"), "ranks/0/logs/a.log", "not the content that"),
        (changed("ranks/0/logs/a.log", None), "ranks/0/logs/a.log", "it is not there"),
        (changed("ranks/0/rank.json", None), "ranks/0/rank.json", "names this rank"),
        (changed("nodes/n/node.json", None), "nodes/n/node.json", "names this node"),
        (changed("nodes/n/collectors.jsonl", b"{}\n"), "nodes/n/collectors.jsonl", "line 1 is no run"),
        (changed("bundle.json", b"[]"), "bundle.json", "not a JSON object"),
        (changed("bundle.json", b'{"schema": "other/1"}'), "bundle.json", "schema 'other/1'"),
        (changed("bundle.json", b'{"ranks": 7, "nodes": 7}'), "bundle.json", "ranks is missing or of another type"),
        (changed("note.txt", b"x"), "note.txt", "no place of the layout"),
        ({"a.log": b"x"}, None, "loose files"),
    ],
)
def test_damage_is_an_error(tmp_path: Path, members: dict[str, bytes], path: str | None, words: str) -> None:
    found = [one for one in findings(tmp_path, members) if one.weight is Weight.ERROR and one.path == path]
    assert any(words in one.message for one in found)


def test_a_cut_archive_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of(summed(bundle()))[:5000])
    assert any("cut" in one.message for one in verify(open_bundle([path])))


def test_what_could_not_be_taken_is_a_gap(tmp_path: Path) -> None:
    members = bundle()
    document = json.loads(members["bundle.json"])
    document.update(world_size=3, interrupted=True)
    document["ranks"]["1"] = {"node": "n", "state": "absent"}
    members["bundle.json"] = json.dumps(document).encode()
    members["ranks/1/rank.json"] = b"{}"
    members["nodes/n/collectors.jsonl"] += b'{"id": "kernel.log", "rank": null, "status": "permission"}\n'
    found = findings(tmp_path, summed(members))
    assert {one.weight for one in found} == {Weight.GAP}
    assert {one.message for one in found} == {
        "the collection was interrupted", "rank 1 is absent", "2 of 3 ranks are in this bundle",
        "kernel.log of host: permission",
    }  # fmt: skip
