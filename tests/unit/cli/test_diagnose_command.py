"""`forensics diagnose`: reports, files, thresholds and exit codes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.recordings.collection import Collection, loose, whole, write
from tests.recordings.commands import Command
from tests.recordings.job import Job, as_json
from tests.recordings.places import HOST_CODE, LOADER_QUEUE
from tests.unit.cli.conftest import stuck

ANALYSED, USAGE, UNREADABLE, INSUFFICIENT = 0, 2, 3, 4
CULPRIT, SUSPECTS, NO_HANG = 10, 11, 12


def moving(folder: Path, steps: int) -> Path:
    job = Job(4)
    job.steps(steps)
    files = {f"rank{rank}.fr.0.json": as_json(job.dump(rank)) for rank in range(4)}
    job.steps(3)
    return write(folder, files | {f"rank{rank}.fr.1.json": as_json(job.dump(rank)) for rank in range(4)})


def test_the_verdict_is_in_the_first_three_lines(forensics: Command, bundle: Path) -> None:
    answer = forensics("diagnose", bundle)
    first, second, third = answer.out.splitlines()[:3]
    assert answer.code == ANALYSED
    assert first.startswith("HANG") and "rank 2" in first and "DATA" in first
    assert "all_reduce" in second and "0-1,3" in second
    assert third.strip()
    assert answer.err == "" and "\x1b" not in answer.out


def test_a_report_in_a_file_is_the_report_on_the_screen(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    screen = forensics("diagnose", bundle)
    target = tmp_path / "report"
    quiet = forensics("diagnose", bundle, "-o", target)
    assert quiet.out == ""
    assert target.read_text(encoding="utf-8") == screen.out


def test_a_file_that_cannot_be_written_is_a_usage_error(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    answer = forensics("diagnose", bundle, "-o", tmp_path / "missing" / "report.txt")
    assert answer.code == USAGE
    assert "report.txt" in answer.err


@pytest.mark.slow
def test_a_case_can_be_kept_and_diagnosed_again(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    """With what was found; it is neither changed, nor overwritten, nor mixed with bundles."""
    case = tmp_path / "case.duckdb"
    once = forensics("diagnose", bundle, "--case", case, "--format", "json")
    before = case.read_bytes()
    again = forensics("diagnose", case, "--format", "json")
    assert once.code == again.code == ANALYSED
    assert again.out == once.out
    assert forensics("query", case, "SELECT outcome FROM verdict", "-f", "csv").out.split() == ["outcome", "hang"]
    assert int(forensics("query", case, "SELECT count(*) AS n FROM findings", "-f", "csv").out.split()[1]) > 0
    answer = forensics("diagnose", bundle, "--case", case)
    assert answer.code == USAGE and "case.duckdb" in answer.err
    assert forensics("diagnose", case, bundle).code == USAGE
    assert case.read_bytes() == before


def test_a_directory_a_tar_and_loose_files_tell_the_same(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    folder = whole(stuck(), {2: LOADER_QUEUE}).write(tmp_path / "folder")
    documents = [json.loads(forensics("diagnose", path, "-f", "json").out) for path in (bundle, folder)]
    assert documents[0] == documents[1]
    assert documents[0]["schema"] == "forensics.verdict/1"


def test_several_paths_are_one_body_of_evidence(forensics: Command, tmp_path: Path) -> None:
    folder = loose(stuck(), tmp_path / "dumps")
    files = sorted(folder.iterdir())
    document = json.loads(forensics("diagnose", *files, "-f", "json").out)
    assert document["suspects"][0]["ranks"] == [2]


def test_thresholds_change_the_verdict(forensics: Command, tmp_path: Path) -> None:
    """Sixty seconds of silence are a hang after pauses of 20 s, and not yet when a hang is ten times that."""
    job = Job(4)
    for _ in range(3):
        job.steps(8)
        job.pause(20_000_000_000)
    job.hang({2})
    bundle = whole(job, {2: HOST_CODE}).tar(tmp_path / "bundle.tar")
    settings = tmp_path / "thresholds.toml"
    settings.write_text("[rules.FX190]\nsilence_factor = 10\n")
    usual = json.loads(forensics("diagnose", bundle, "-f", "json").out)
    patient = json.loads(forensics("diagnose", bundle, "-f", "json", "--thresholds", settings).out)
    assert (usual["outcome"], patient["outcome"]) == ("hang", "inconclusive")
    assert patient["suspects"] == []


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("[rules.FX999]\nfactor = 1\n", "FX999"),
        ("[rules.FX190]\npatience = 1\n", "patience"),
        ("[rules.FX190]\nsilence_factor = 'long'\n", "silence_factor"),
        ("[rules.FX190]\nsilence_factor = true\n", "silence_factor"),
        ("[rules.FX190]\nsilence_factor = nan\n", "silence_factor"),
        ("[rules]\nFX190 = 3\n", "FX190"),
        ("[rules.FX190\n", "thresholds.toml"),
        ("rules = 3\n", "thresholds.toml"),
        ("[rule.FX190]\nsilence_factor = 3\n", "rule"),
    ],
)
def test_bad_thresholds_are_a_usage_error(forensics: Command, bundle: Path, tmp_path: Path, content: str, word: str) -> None:
    settings = tmp_path / "thresholds.toml"
    settings.write_text(content)
    answer = forensics("diagnose", bundle, "--thresholds", settings)
    assert (answer.code, answer.out) == (USAGE, "")
    assert word in answer.err


def test_missing_thresholds_are_a_usage_error(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    answer = forensics("diagnose", bundle, "--thresholds", tmp_path / "none.toml")
    assert answer.code == USAGE
    assert "none.toml" in answer.err


def test_exit_code_of_a_named_culprit(forensics: Command, bundle: Path) -> None:
    assert forensics("diagnose", bundle, "--exit-code").code == CULPRIT


def test_exit_code_of_suspects_only(forensics: Command, tmp_path: Path) -> None:
    """Everybody is inside one operation: the group is suspect, nobody is named."""
    job = Job(4)
    job.steps(8)
    job.hang(set())
    bundle = whole(job, {}).tar(tmp_path / "bundle.tar")
    assert forensics("diagnose", bundle, "--exit-code").code == SUSPECTS


@pytest.mark.slow
def test_exit_code_of_a_moving_job(forensics: Command, tmp_path: Path) -> None:
    folder, good = moving(tmp_path / "dumps", 30), moving(tmp_path / "good", 30)
    assert forensics("diagnose", folder, "--baseline", good, "--exit-code").code == NO_HANG
    assert forensics("diagnose", folder, "--baseline", good).code == ANALYSED
    alone = forensics("diagnose", folder, "--exit-code")
    assert alone.code == INSUFFICIENT, "it moves; nothing compares its ranks"
    assert alone.out.startswith("INCONCLUSIVE  the job is progressing; nobody is accused   confidence: none\n")
    briefly = moving(tmp_path / "briefly", 3)
    assert forensics("diagnose", briefly, "--exit-code").code == INSUFFICIENT, "it moves; its speed was not measured"


@pytest.mark.parametrize("options", [(), ("--exit-code",)])
def test_too_little_evidence_is_said_with_and_without_the_option(
    forensics: Command, tmp_path: Path, options: tuple[str, ...]
) -> None:
    found = Collection(4, Job(1).now_ns)
    found.rank(0)
    answer = forensics("diagnose", found.write(tmp_path / "bundle"), *options)
    assert answer.code == INSUFFICIENT
    assert answer.out.startswith("INCONCLUSIVE")


def test_files_that_are_no_evidence_are_refused(forensics: Command, tmp_path: Path) -> None:
    folder = write(tmp_path / "holiday", {"photo.jpg": b"\xff\xd8\xff\xe0" + bytes(500), "list.txt": b"milk\nbread\n"})
    answer = forensics("diagnose", folder)
    assert answer.code == UNREADABLE
    assert answer.out == "" and len(answer.err.splitlines()) == 1 and "none of 2 files" in answer.err


@pytest.mark.parametrize("content", [None, b""])
def test_input_that_cannot_be_read(forensics: Command, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "bundle.tar"
    if content is not None:
        path.write_bytes(content)
    answer = forensics("diagnose", path)
    assert (answer.code, answer.out) == (UNREADABLE, "")
    assert "bundle.tar" in answer.err
    assert len(answer.err.splitlines()) == 1


def test_an_empty_directory_cannot_be_read(forensics: Command, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert forensics("diagnose", tmp_path / "empty").code == UNREADABLE


@pytest.mark.parametrize("arguments", [(), ("--format", "pdf"), ("--width", "wide"), ("--no-such-option",)])
def test_wrong_use(forensics: Command, bundle: Path, arguments: tuple[str, ...]) -> None:
    paths = (bundle,) if arguments else ()
    assert forensics("diagnose", *paths, *arguments).code == USAGE


def test_a_narrow_terminal_loses_nothing(forensics: Command, bundle: Path) -> None:
    wide = forensics("diagnose", bundle, "--width", "200", "-v").out
    narrow = forensics("diagnose", bundle, "--width", "50", "-v").out
    assert "".join(wide.split()) == "".join(narrow.split())


@pytest.mark.slow
def test_all_ranks_are_listed_on_request(forensics: Command, tmp_path: Path) -> None:
    """Every other rank of 40 waits alone: the list has no ranges to fold."""
    job = Job(40)
    job.steps(4)
    job.call(job.everyone, ranks=[rank for rank in range(40) if rank % 2], done=False)
    folder = loose(job, tmp_path / "dumps")
    short = forensics("diagnose", folder).out
    whole_lists = forensics("diagnose", folder, "--all-ranks").out
    everybody = ",".join(str(rank) for rank in range(40) if rank % 2)
    assert everybody in whole_lists.replace("\n", "").replace(" ", "")
    assert len(whole_lists) >= len(short)


def test_a_markdown_report_fits_a_tracker(forensics: Command, bundle: Path) -> None:
    answer = forensics("diagnose", bundle, "-f", "markdown", "--max-bytes", "2400")
    assert len(answer.out.encode()) <= 2400
    assert answer.out.startswith(("#", "**")) and "rank 2" in answer.out


def test_the_drawing_of_a_hang_is_who_waits_for_whom(forensics: Command, bundle: Path, tmp_path: Path) -> None:
    drawing = ElementTree.fromstring(forensics("diagnose", bundle, "-f", "svg").out)
    assert drawing.get("aria-label") == "which ranks wait for which"
    assert "rank 2" in {element.text for element in drawing.iter()}
    (tmp_path / "job.log").write_text("step 1 loss 2.5\n")
    answer = forensics("diagnose", tmp_path / "job.log", "-f", "svg")
    assert answer.out == "" and "nothing to draw" in answer.err


def test_a_ticket_too_small_for_the_verdict_is_refused(forensics: Command, bundle: Path) -> None:
    answer = forensics("diagnose", bundle, "-f", "markdown", "--max-bytes", "10")
    assert (answer.code, answer.out) == (USAGE, "")
    assert "bytes" in answer.err


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))


def test_a_log_from_standard_input(forensics: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(
        monkeypatch,
        b"mpirun noticed that process rank 2 with PID 77 on node gpu-001 exited on signal 11 (Segmentation fault).\n",
    )
    document = json.loads(forensics("diagnose", "-", "--format", "json").out)
    assert (document["outcome"], document["suspects"][0]["ranks"]) == ("failstop", [2])
    assert "stdin.log#line=1" in json.dumps(document)


def test_nothing_on_standard_input(forensics: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    piped(monkeypatch, b"")
    answer = forensics("diagnose", "-")
    assert (answer.code, answer.err.strip()) == (UNREADABLE, "forensics: standard input is empty")
