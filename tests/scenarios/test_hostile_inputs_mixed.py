"""What people hand over by mistake or malice: odd files alone, everything in one folder, lies, and input without end."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle import limits
from forensics.bundle.artefact import Artefact
from forensics.case.reading import read_artefact
from forensics.ingest import training_log
from forensics.ingest.interface import Identity, Item
from forensics.report import json as json_report
from forensics.report import markdown, text
from tests.recordings.collection import loose, py_spy, tar_of, write
from tests.recordings.commands import Command
from tests.recordings.hang import CULPRIT, VICTIMS_DUMP, collected, hung, with_member
from tests.recordings.job import as_json, as_pickle
from tests.recordings.places import LOADER_QUEUE
from tests.recordings.verdicts import blamed, named, verdict_of, warned

ANALYSED, USAGE, UNREADABLE, INSUFFICIENT = 0, 2, 3, 4


@pytest.mark.parametrize("path", ["ranks/0/stacks/child-5299.2.json", "child-5299.json", "dataloader_worker_pid_5299.json"])
def test_a_single_stack_of_a_child_process(tmp_path: Path, forensics: Command, path: str) -> None:
    folder = write(tmp_path / "in", {path: py_spy(LOADER_QUEUE, 5299)})
    answers = [forensics("diagnose", given) for given in (folder, folder / path)]
    assert {answer.code for answer in answers} <= {ANALYSED, UNREADABLE, INSUFFICIENT}
    assert not named(verdict_of(folder))


def test_a_folder_of_everything_is_no_worse_than_its_parts(tmp_path: Path) -> None:
    loose(hung(), tmp_path / "all/dumps")
    (tmp_path / "all/bundle.tar").write_bytes(tar_of(collected().finished()))
    stacks = "\n".join(f'  File "{file}", line {line}, in {name}' for name, file, line in LOADER_QUEUE)
    write(tmp_path / "all", {f"stack-rank{CULPRIT}.txt": f"Thread 0x1 (most recent call first):\n{stacks}\n".encode()})
    verdict = verdict_of(tmp_path / "all")
    assert named(verdict) == {CULPRIT}
    assert verdict.suspects[0].cause == verdict_of(tmp_path / "all/bundle.tar").suspects[0].cause


@pytest.mark.parametrize("form", [as_json, as_pickle])
def test_ranks_of_a_group_that_are_listed_without_end(tmp_path: Path, form: object) -> None:
    dump = hung(backend="nccl").dump(0)
    name = next(iter(dump["pg_config"]))
    dump["pg_config"][name]["ranks"] = str([0, 1, 2, 3] * 250_000)
    content = as_json(dump) if form is as_json else as_pickle(dump)
    assert named(verdict_of(with_member(tmp_path, content))) <= {CULPRIT}


def test_a_list_that_a_pickle_repeats_without_end(tmp_path: Path) -> None:
    frames = [{"name": "f", "filename": "x.py", "line": 1}] * 1000
    dump = hung().dump(0)
    dump["entries"] = [{**entry, "frames": frames} for entry in dump["entries"]] * 200
    assert named(verdict_of(with_member(tmp_path, pickle.dumps(dump, 2)))) <= {CULPRIT}


def test_members_of_a_tar_that_overlap(tmp_path: Path) -> None:
    content = bytearray(tar_of(collected().finished()))
    with tarfile.open(fileobj=io.BytesIO(bytes(content))) as archive:
        infos = archive.getmembers()
    for info in infos[3:6]:  # each of them claims all the rest of the archive
        header = content[info.offset : info.offset + 512]
        header[124:136] = b"%011o\0" % (len(content) - info.offset_data)
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        content[info.offset : info.offset + 512] = header
    (tmp_path / "bundle.tar").write_bytes(bytes(content))
    verdict = verdict_of(tmp_path / "bundle.tar")
    assert not named(verdict) - {CULPRIT}


@pytest.mark.slow
@pytest.mark.parametrize(
    "head",
    [
        "[rank{}]: RuntimeError: boom\n",
        "[PG 0 Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType=ALLREDUCE, Timeout(ms)={})\n",
        "node:{}:1 [0] NCCL INFO comm 0x1 rank {} nranks {} - Init COMPLETE\n",
        "NVRM: Xid (PCI:0000:{}): {}, pid={}\n",
    ],
)
def test_numbers_of_a_million_digits(tmp_path: Path, head: str) -> None:
    number = "9" * 1_000_000
    sane = head.replace("{}", "0")
    folder = write(tmp_path / "in", {"rank0.log": (sane + head.format(*[number] * head.count("{}")) + sane).encode()})
    assert not blamed(verdict_of(folder))


@pytest.mark.parametrize("key", ["size", "mtime", "path"])
def test_a_tar_header_with_a_number_of_a_million_digits(tmp_path: Path, forensics: Command, key: str) -> None:
    info = tarfile.TarInfo("first.json")
    record = f"{key}={'9' * 900_000}\n"
    length = len(record) + 7
    info.name, info.type = "pax", tarfile.XHDTYPE
    body = f"{length} {record}".encode()
    info.size = len(body)
    blocks = info.tobuf() + body + bytes(-len(body) % 512)
    path = tmp_path / "bundle.tar"
    path.write_bytes(blocks + tar_of(collected().finished()))
    answer = forensics("diagnose", path)
    assert answer.code in (ANALYSED, UNREADABLE, INSUFFICIENT)


def test_very_many_empty_dumps_give_a_bounded_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("forensics.rules.context._MOST_WARNINGS", 20)
    files = {
        f"nccl_trace_rank_{rank}": b'{"version":"2.10","pg_config":{},"entries":[{' + str(rank).encode() for rank in range(300)
    }
    verdict = verdict_of(write(tmp_path / "dumps", files))
    assert len(verdict.warnings) == 21 and "more warnings" in verdict.warnings[-1].statement
    assert len(text.render(verdict).splitlines()) <= 60
    for report in (text.render(verdict, verbose=True), markdown.render(verdict)):
        assert len(report.splitlines()) < 300


def test_names_of_many_megabytes_give_a_bounded_report(tmp_path: Path) -> None:
    verdict = verdict_of(with_member(tmp_path, py_spy((("f" * 1_000_000, "x.py", 1),), 4120), f"ranks/{CULPRIT}/stacks/2.json"))
    reports = (text.render(verdict), text.render(verdict, verbose=True), markdown.render(verdict))
    assert all(len(report) < 1_000_000 for report in reports)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
@pytest.mark.parametrize("verb", ["diagnose", "show", "ingest", "frontier"])
def test_specials_are_refused_at_once(tmp_path: Path, forensics: Command, kind: str, verb: str) -> None:
    path = tmp_path / "special"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(path))
    else:
        path = Path("/dev/zero")
    answer = forensics(verb, path)
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (UNREADABLE, "", 1)


def endless_tar(folder: Path) -> Path:
    info = tarfile.TarInfo("ranks/0/log.txt")
    info.size = 1 << 40
    path = folder / "endless.tar.gz"
    path.write_bytes(gzip.compress(info.tobuf(), mtime=0) + gzip.compress(bytes(1 << 20), mtime=0) * 200)
    return path


def test_an_archive_that_expands_without_end_is_refused(tmp_path: Path, forensics: Command) -> None:
    answer = forensics("diagnose", endless_tar(tmp_path))
    assert answer.code == UNREADABLE
    assert "endless.tar.gz: expands beyond" in answer.err


@pytest.mark.slow
def test_an_archive_beyond_the_budget_is_refused_and_the_flag_named(tmp_path: Path, forensics: Command) -> None:
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of(collected().finished()))
    answer = forensics("diagnose", path, "--budget", "bytes=10K")
    assert answer.code == UNREADABLE and "--budget bytes=NUMBER raises it" in answer.err
    assert forensics("diagnose", path, "--budget", "bytes=10M,members=500,seconds=60").code == ANALYSED
    assert forensics("diagnose", path, "--budget", "bytes").code == USAGE


def test_an_endless_archive_in_a_folder_costs_only_itself(tmp_path: Path) -> None:
    folder = collected().write(tmp_path / "bundle")
    endless_tar(folder)
    verdict = verdict_of(folder)
    assert named(verdict) == {CULPRIT}
    assert any("expands beyond" in message for message in warned(verdict)["endless.tar.gz"])


@pytest.mark.slow
def test_a_file_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of one file: an ingester that never ends costs what its file would have said."""

    def forever(_artefact: Artefact) -> Iterator[Item]:
        while True:
            time.sleep(0.01)
        yield Identity()

    slow = replace(training_log.INGESTER, rows=forever)
    monkeypatch.setattr("forensics.case.reading.choose", lambda _head, _path: slow)
    with limits.within(limits.Budget(seconds=1)):
        reading = read_artefact(Artefact("rank0.log", 1, lambda: io.BytesIO(b"x")))
    assert "--budget seconds=NUMBER raises it" in reading.problems[0].message


LIES: dict[str, dict[str, object]] = {
    "a world without end": {"bundle.json": {"schema": "forensics.bundle/1", "world_size": 10**12, "ranks": {}}},
    "ranks that are not there": {
        "bundle.json": {"ranks": {str(rank): {"node": "x", "pid": rank, "state": "dead"} for rank in range(1000, 1040)}}
    },
    "nonsense": {"bundle.json": [{"ranks": 3}, None]},
    "a rank without end": {"ranks/0/rank.json": {"rank": 10**30, "state": "alive", "pid": -1}},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_accuses_nobody(tmp_path: Path, lie: str) -> None:
    files = {**collected().finished(), **{path: json.dumps(content).encode() for path, content in LIES[lie].items()}}
    verdict = verdict_of(write(tmp_path, files))
    assert not blamed(verdict) - {CULPRIT}
    assert len(json_report.render(verdict)) < 2_000_000


def test_valid_entries_among_invalid_ones_are_used(tmp_path: Path) -> None:
    path = f"ranks/{CULPRIT}/fr/0.json"
    dump = json.loads(as_json(hung().dump(CULPRIT)))
    entries = dump["entries"]
    dump["entries"] = [None, *entries[:4], "x", {"collective_seq_id": []}, *entries[4:], 7]
    verdict = verdict_of(with_member(tmp_path, json.dumps(dump).encode(), path))
    assert named(verdict) == {CULPRIT}
    assert warned(verdict)[path]


def test_a_zip_of_evidence_is_read(tmp_path: Path, forensics: Command) -> None:
    path = tmp_path / "evidence.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in collected().finished().items():
            archive.writestr(name, content)
        archive.writestr("../escaped.json", b"{}")
    verdict = verdict_of(path)
    assert named(verdict) == {CULPRIT}
    assert any("leaves the archive" in message for message in warned(verdict)["../escaped.json"])
    path.write_bytes(path.read_bytes()[:-200])
    assert forensics("diagnose", path).code == UNREADABLE


def test_a_zip_that_expands_without_end_is_refused(tmp_path: Path, forensics: Command) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rank0.log", bytes(100 << 20))
    answer = forensics("diagnose", path)
    assert answer.code == UNREADABLE and "bomb.zip: expands beyond" in answer.err


@pytest.mark.parametrize("kind", ["a checkpoint", "a script", "an unknown zip", "a note"])
def test_what_is_no_evidence_is_refused_in_one_line(tmp_path: Path, forensics: Command, kind: str) -> None:
    path = tmp_path / {"a checkpoint": "step.pt", "a script": "train.py"}.get(kind, "notes.txt")
    if kind in ("a checkpoint", "an unknown zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("archive/data.pkl", "archive/data/0") if kind == "a checkpoint" else ("letter.txt",):
                archive.writestr(name, b"\x80\x02}q\x00.")
    else:
        path.write_text("import torch\n\n\ndef main():\n    raise ValueError('x')\n")
    answer = forensics("diagnose", path)
    assert (answer.code, answer.out, len(answer.err.splitlines())) == (UNREADABLE, "", 1)
    assert "no evidence" in answer.err


def test_nothing_of_standard_input_is_left_by_a_killed_process(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "forensics", "diagnose", "-"],
        stdin=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdin is not None
    process.stdin.write(b"step 1\n" * 200_000)
    process.stdin.flush()
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdin.close()
    assert list(tmp_path.iterdir()) == []


def test_a_large_case_is_removed_when_its_process_is_killed(tmp_path: Path) -> None:
    program = "from forensics.case.database import new_case; c = new_case(None, 1 << 27); print('made', flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"made\n"
    assert list(tmp_path.iterdir())
    process.kill()
    process.communicate()
    for _ in range(1000):
        if not list(tmp_path.iterdir()):
            return
        time.sleep(0.01)
    pytest.fail("the case is still there")


def test_a_warning_of_a_nested_archive_names_both(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    broken = {**collected().finished(), VICTIMS_DUMP: b'{"version":"2.10","pg_config":{},"entries":[{'}
    write(folder, {"incident.tar": tar_of(broken)})
    assert f"incident.tar/{VICTIMS_DUMP}" in warned(verdict_of(folder))
