"""Damaged and foreign input from end to end: it is stated, the rest is used, and nobody innocent is named."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from forensics.report import json as json_report
from forensics.report import markdown, text
from tests.recordings.collection import Collection, tar_of, write
from tests.recordings.commands import Command
from tests.recordings.hang import CULPRIT, VICTIMS_DUMP, collected, hung, with_member
from tests.recordings.job import as_json, as_pickle
from tests.recordings.places import ALL_REDUCE
from tests.recordings.verdicts import named, verdict_of, warned

ANALYSED, UNREADABLE, INSUFFICIENT = 0, 3, 4


def nested_json(depth: int) -> bytes:
    return b'{"version":"2.10","pg_config":{},"pg_status":{},"entries":' + b"[" * depth + b"]" * depth + b"}"


def nested_pickle(depth: int) -> bytes:
    start = pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}}, protocol=2)[:-2]
    return start + b"X\x07\x00\x00\x00entries" + b"]" * depth + b"a" * (depth - 1) + b"u."


def changed(**values: object) -> bytes:
    return json.dumps({**hung().dump(0), **values}, default=list).encode()


def changed_entry(**values: object) -> bytes:
    found = json.loads(as_json(hung().dump(0)))
    found["entries"][-1] |= values
    return json.dumps(found).encode()


NOISE = random.Random(7).randbytes(5000)
HUGE = 1 << 900

UNRECOGNISED: Mapping[str, bytes] = {
    "nothing": b"",
    "noise": NOISE,
    "noise like a pickle": b"\x80\x02" + NOISE,
    "another kind of document": b'{"version": 3, "services": {"web": {"image": "nginx"}}}',
}
DAMAGED: Mapping[str, bytes] = {
    "half an object": as_json(hung().dump(0))[:2500],
    "half a pickle": as_pickle(hung().dump(0))[:2500],
    "noise like JSON": b'{"version":"2.10","pg_config":{},"entries":[' + NOISE,
    "bytes that are no text": as_json(hung().dump(0)).replace(b"default_pg", b"def\xff\xfe\xc3(pg"),
    "not a number": as_json(hung().dump(0)).replace(b'"record_id":3', b'"record_id":NaN'),
    "infinity": as_json(hung().dump(0)).replace(b'"op_id":4', b'"op_id":Infinity'),
    "lists without end": nested_json(1_000_000),
    "a pickle of lists without end": nested_pickle(1_000_000),
    "entries that are a number": changed(entries=12),
    "entries of the wrong kind": changed(entries=[1, "two", None, [3], {"profiling_name": 4}]),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_dump_is_named_and_the_others_still_tell(tmp_path: Path, kind: str) -> None:
    verdict = verdict_of(with_member(tmp_path, DAMAGED[kind]))
    assert named(verdict) == {CULPRIT}
    assert VICTIMS_DUMP in warned(verdict)


@pytest.mark.parametrize("kind", UNRECOGNISED)
def test_a_file_that_is_no_dump_is_stated_and_costs_only_itself(tmp_path: Path, kind: str) -> None:
    verdict = verdict_of(with_member(tmp_path, UNRECOGNISED[kind]))
    assert named(verdict) == {CULPRIT}
    assert VICTIMS_DUMP in warned(verdict)


ODD: Mapping[str, bytes] = {
    "an unknown schema": changed(version="99.0"),
    "a schema that is a list": changed(version=["2", "10"]),
    "no keys but entries": changed(pg_config=None, pg_status=None, comm_lib_version=None),
    "huge numbers": changed_entry(collective_seq_id=HUGE, record_id=-HUGE, time_created_ns=HUGE, input_sizes=[[HUGE]]),
    "texts for numbers": changed_entry(collective_seq_id="13", time_created_ns="soon", record_id=None),
    "a name of a megabyte": changed_entry(thread_name="a" * 1_000_000),
    "members that are code": changed(pg_config={"0": {"name": "0", "desc": "default_pg", "ranks": "__import__('os').abort()"}}),
    "a million members": changed(pg_config={"0": {"name": "0", "desc": "x", "ranks": str(list(range(100_000)))}}),
    "lone surrogates": changed_entry(thread_name="\udfff\ud800"),
}


@pytest.mark.parametrize("kind", ODD)
def test_an_odd_dump_of_a_victim_accuses_nobody_else(tmp_path: Path, kind: str) -> None:
    verdict = verdict_of(with_member(tmp_path, ODD[kind]))
    assert named(verdict) <= {CULPRIT}
    assert "rank 2" in text.render(verdict)
    assert "rank 2" in markdown.render(verdict)
    assert b"rank 2" in json_report.render(verdict)


def test_a_bundle_damaged_in_the_middle_is_used_up_to_there(tmp_path: Path) -> None:
    archive = bytearray(tar_of(collected().finished()))
    middle = len(archive) // 2
    archive[middle : middle + 1024] = random.Random(3).randbytes(1024)
    path = tmp_path / "bundle.tar"
    path.write_bytes(archive)
    assert named(verdict_of(path)) <= {CULPRIT}


def test_files_named_like_dumps_that_are_none(tmp_path: Path, forensics: Command) -> None:
    noise = random.Random(11)
    files = {f"nccl_trace_rank_{rank}": noise.randbytes(3000) for rank in range(4)}
    files["rank0.fr.0.json"] = b"\xff\xfe" + noise.randbytes(100)
    answer = forensics("diagnose", write(tmp_path / "dumps", files))
    assert answer.code in (UNREADABLE, INSUFFICIENT)
    assert "rank 0" not in answer.out.splitlines()[0] if answer.out else True


@pytest.mark.parametrize("path", ["ranks/0/rank.json", "ranks/0/proc/0.json", "ranks/0/stacks/0.json", "bundle.json"])
@pytest.mark.parametrize("content", [b"", b'{"rank": "__import__(\'os\')"}', NOISE[:300]])
def test_damage_to_the_other_members_accuses_nobody_else(tmp_path: Path, path: str, content: bytes) -> None:
    verdict = verdict_of(with_member(tmp_path, content, path))
    assert named(verdict) == {CULPRIT}


def test_lines_of_the_collectors_journal_may_be_anything(tmp_path: Path) -> None:
    members = collected().finished()
    (journal,) = [path for path in members if path.endswith("collectors.jsonl")]
    odd = b'\n{"id": 3}\nnull\n[]\n{"id":"x","status":"fine"}\n\xff\xfe\n{"id":"fr.live","rank":1e99,"status":"ok"}\n'
    verdict = verdict_of(write(tmp_path, {**members, journal: members[journal] + odd}))
    assert named(verdict) == {CULPRIT}
    assert journal in warned(verdict)


def test_a_log_of_anything_is_read_within_bounds(tmp_path: Path) -> None:
    found = collected()
    found.log(0, "\x1b[31m" + "x" * 3_000_000, "Traceback (most recent call last):" * 2000, "\0\0\0", "[rank99999999]: boom")
    assert named(verdict_of(found.write(tmp_path))) == {CULPRIT}


def test_an_archive_of_thousands_of_empty_members_ends(tmp_path: Path) -> None:
    members = collected().finished() | {f"extra/{number}": b"" for number in range(2_000)}
    path = tmp_path / "bundle.tar"
    path.write_bytes(tar_of(members))
    assert named(verdict_of(path)) == {CULPRIT}


def test_a_world_of_more_ranks_than_there_can_be(tmp_path: Path, forensics: Command) -> None:
    """A misread world size must not make a report about a billion absent ranks."""
    found = collected()
    found.world = 1_000_000_000
    folder = found.write(tmp_path / "bundle")
    assert forensics("diagnose", folder).code in (ANALYSED, INSUFFICIENT)
    assert named(verdict_of(folder)) <= {CULPRIT}


def test_stacks_without_any_frame(tmp_path: Path) -> None:
    found = Collection(4, hung().now_ns)
    for rank in range(4):
        found.stacks(rank, *[() if rank == 1 else ALL_REDUCE] * 3)
    verdict = verdict_of(found.write(tmp_path))
    assert all(suspect.confidence != "confirmed" for suspect in verdict.suspects)
