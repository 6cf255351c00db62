"""Redaction does not change the verdict, but for names; nothing of the names is left in the bundle."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from forensics.bundle.artefact import Artefact
from forensics.bundle.layout import CHECKSUMS
from forensics.bundle.reader import open_bundle
from forensics.bundle.writer import Content, write_bundle
from tests.recordings.commands import Command
from tests.unit.sharing.canaries import leaks

ROOT = Path(__file__).parents[3]
SCENARIOS = (
    "gpu-failed",
    "chunk-not-delivered",
    "behind-in-logs",
    "checkpoint-stalled",
    "stage-slow",
    "rank-process-dead",
    "work-request-failed",
    "working-in-logs",
)
BUNDLES = [
    ROOT / "fixtures/recorded/recommender-hang.tar.zst",
    *(ROOT / "fixtures/scenarios" / name / "bundle.tar.zst" for name in SCENARIOS),
]


def read(artefact: Artefact) -> bytes:
    with artefact.open() as stream:
        return stream.read()


@pytest.mark.slow
@pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.parent.name)
@pytest.mark.first(1)
def test_the_verdict_is_the_same_but_for_names(forensics: Command, tmp_path: Path, bundle: Path) -> None:
    output, names = tmp_path / "shared.tar", tmp_path / "names.json"
    answer = forensics("redact", bundle, "-o", output, "--pseudonyms", "all", "--map", names, "--check", "--format", "json")
    document = json.loads(answer.out)
    assert answer.code == 0 and document["verdict_differs_in"] == []
    assert names.stat().st_mode & 0o777 == 0o600 and output.stat().st_mode & 0o777 == 0o600
    hosts = tuple(name for name in json.loads(names.read_text())["hosts"] if len(name) > 3)
    assert hosts == () or leaks(output, hosts) == []
    opened = open_bundle([output])
    assert not opened.damaged


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8])
def test_a_simulated_job_with_every_source_keeps_its_verdict(forensics: Command, tmp_path: Path, seed: int) -> None:
    sources = [word for name in ("shim", "nic", "stages", "kineto") for word in ("--with", name)]
    fault = ("--fault", "nic-down@node1.gpu1", "--seed", seed, "--iterations", 3)
    assert forensics("simulate", "--job", "mycroft", *fault, *sources, "-o", tmp_path / "bundle.tar").code == 0
    answer = forensics("redact", tmp_path / "bundle.tar", "-o", tmp_path / "shared.tar", "--pseudonyms", "all", "--check")
    assert (answer.code, "the verdict is the same" in answer.out) == (0, True)


@pytest.mark.parametrize(("name", "kept"), [("receive-left-out", 0.8), ("collective-one-short", 0.5), ("passes-slow", 0.95)])
def test_cut_dumps_keep_their_verdict(forensics: Command, tmp_path: Path, name: str, kept: float) -> None:
    """Each dump breaks off, as on a full disk: what is complete of it is shared, and read as before."""
    found = {one.path: read(one) for one in open_bundle([ROOT / "fixtures/scenarios" / name / "bundle.tar.zst"]).artefacts}
    dumps = [path for path, content in found.items() if content[:1] == b"\x80"]
    assert dumps
    found |= {path: found[path][: int(len(found[path]) * kept)] for path in dumps}
    write_bundle(tmp_path / "cut.tar", [Content(path, content) for path, content in found.items() if path != CHECKSUMS])
    answer = forensics("redact", tmp_path / "cut.tar", "-o", tmp_path / "shared.tar", "--pseudonyms", "all", "--check")
    assert (answer.code, "the verdict is the same" in answer.out, "left out: " in answer.out) == (0, True, False)
    said = json.loads(forensics("diagnose", tmp_path / "shared.tar", "--format", "json").out)["warnings"]
    assert {one["source"].partition("#")[0] for one in said if "cut or damaged" in one["statement"]} == set(dumps)


def test_what_was_wrong_with_the_bundle_is_still_said(forensics: Command, tmp_path: Path) -> None:
    """A tar that breaks off, and a member that does not match its sum: the output is whole, and its verdict says both."""
    found = {one.path: read(one) for one in open_bundle([BUNDLES[0]]).artefacts}
    found["ranks/1/logs/rank1.log"] += b"added\n"
    with tarfile.open(tmp_path / "changed.tar", "w") as archive:
        for path, content in sorted(found.items(), key=lambda one: one[0] != CHECKSUMS):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    content = (tmp_path / "changed.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(content[: len(content) * 4 // 5])
    answer = forensics("redact", tmp_path / "cut.tar", "-o", tmp_path / "shared.tar", "--check")
    assert (answer.code, "the verdict is the same" in answer.out) == (0, True)
    said = [
        one["statement"]
        for one in json.loads(forensics("diagnose", tmp_path / "shared.tar", "--format", "json").out)["warnings"]
    ]
    assert any("archive is cut or damaged" in one for one in said)
    assert any("rank1.log: content does not match SHA256SUMS" in one for one in said)


def test_the_books_of_the_bundle_stay_true(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "shared.tar"
    assert forensics("redact", bundle, "-o", output, "--pseudonyms", "hosts").code == 0
    digests = {artefact.path: artefact.sha256 for artefact in open_bundle([output]).artefacts}
    with tarfile.open(output) as archive:
        content = archive.extractfile("nodes/host-00001/collectors.jsonl").read()  # type: ignore[union-attr]
        redactions = json.loads(archive.extractfile("redactions.json").read())  # type: ignore[union-attr]
    rows = [json.loads(line) for line in content.splitlines()]
    written = [row for row in rows if row["path"]]
    assert written and all(digests[row["path"]] == row["sha256"] for row in written)
    assert {"rule": "hosts", "path": "ranks/0/rank.json", "count": 1} in redactions


def test_what_was_changed_before_is_still_seen(forensics: Command, tmp_path: Path) -> None:
    """A log that was edited by hand, its sum made anew: redaction does not hide it."""
    edited, shared = tmp_path / "edited.tar", tmp_path / "shared.tar"
    found = {one.path: read(one) for one in open_bundle([BUNDLES[0]]).artefacts if one.path != CHECKSUMS}
    found["ranks/1/logs/rank1.log"] += b"added\n"
    write_bundle(edited, [Content(path, content) for path, content in found.items()])
    assert forensics("redact", edited, "-o", shared).code == 0
    one, other = (forensics("verify", path) for path in (edited, shared))
    assert one.code == other.code == 5 and one.out.splitlines()[:-1] == other.out.splitlines()[:-1]
    assert "rank1.log: not the content that" in other.out


def test_a_bundle_is_as_whole_as_before(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    assert forensics("redact", bundle, "-o", tmp_path / "shared.tar", "--pseudonyms", "all").code == 0

    def errors(path: Path) -> list[str]:
        found = json.loads(forensics("verify", path, "--format", "json").out)["findings"]
        return [one["message"] for one in found if one["weight"] == "error" and one["path"] != "SHA256SUMS"]

    assert set(errors(tmp_path / "shared.tar")) <= set(errors(bundle))


def test_a_changed_verdict_is_stated(forensics: Command, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.report.equality.differing_keys", lambda before, after, names: ["suspects"])
    answer = forensics("redact", bundle, "-o", tmp_path / "shared.tar", "--check")
    assert answer.code == 5 and "the verdict changed: suspects" in answer.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--pseudonyms", "ranks"), "choose from hosts, users, addresses, paths"),
        (("--map", "m.json"), "--map needs --pseudonyms"),
        (("--format", "xml"), "choose text or json"),
    ],
)
def test_misuse_is_said(forensics: Command, bundle: Path, tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    answer = forensics("redact", bundle, "-o", tmp_path / "shared.tar", *arguments)
    assert answer.code == 2 and words in answer.err and not (tmp_path / "shared.tar").exists()


def test_nothing_is_overwritten_or_left_behind(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    output = tmp_path / "shared.tar"
    output.write_bytes(b"old")
    assert forensics("redact", bundle, "-o", output).code == 2
    assert output.read_bytes() == b"old"
    assert forensics("redact", bundle, "-o", output, "--force").code == 0
    assert forensics("redact", bundle, "-o", tmp_path / "no" / "where.tar").code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["shared.tar"]
