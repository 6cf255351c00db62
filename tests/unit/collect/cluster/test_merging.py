"""What a bundle of many hosts is made of, whatever the single bundles say, and in whatever order they come."""

from __future__ import annotations

import io
import itertools
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from forensics.bundle.reader import open_bundle
from forensics.bundle.verification import Weight, verify
from forensics.bundle.writer import Content
from forensics.collect.cluster.session import merge_bundles
from forensics.errors import ForensicsError
from tests.recordings.commands import Command
from tests.unit.collect.cluster.stand_ins import host_bundle


def members(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        found = {info.name: tar.extractfile(info) for info in tar}
        return {name: stream.read() for name, stream in found.items() if stream is not None}


def manifest(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(members(path)["bundle.json"])
    return document


def of(path: Path) -> bytes:
    """Which host the identity of rank 3 is from."""
    return members(path)["ranks/3/rank.json"]


def test_a_rank_is_taken_from_the_host_that_runs_it(tmp_path: Path) -> None:
    one = host_bundle(tmp_path / "one.tar", "n1", {0: "alive", 1: "absent"}, world=4)
    two = host_bundle(tmp_path / "two.tar", "n2", {2: "alive", 3: "zombie"}, world=4)
    written = merge_bundles([two, one], tmp_path / "job.tar")
    found = manifest(tmp_path / "job.tar")
    assert written.ranks == {0: "alive", 1: "absent", 2: "alive", 3: "zombie"}
    assert {rank: facts["node"] for rank, facts in found["ranks"].items()} == {"0": "n1", "1": "n1", "2": "n2", "3": "n2"}
    assert {row["proc.tasks"] for row in found["status"].values()} == {"ok"}
    assert (found["nodes"], found["job_id"], found["world_size"], found["begin_ns"]) == (["n1", "n2"], "77", 4, 10)
    runs = [json.loads(line) for line in members(tmp_path / "job.tar")["nodes/n1/collectors.jsonl"].splitlines()]
    assert [row["rank"] for row in runs] == [0, 1, None]
    assert json.loads(of(tmp_path / "job.tar")) == {"rank": 3, "node": "n2"}
    assert [one for one in verify(open_bundle([tmp_path / "job.tar"])) if one.weight is Weight.ERROR] == []


def test_ranks_on_no_host_that_answered_are_named(tmp_path: Path) -> None:
    one = host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=5)
    merge_bundles([one], tmp_path / "job.tar")
    assert "rank 1-4 of 5: on no host that answered" in manifest(tmp_path / "job.tar")["warnings"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_contradictions_end_the_same_in_any_order(order: tuple[int, ...], tmp_path: Path) -> None:
    """Host b runs another job, and host c has a process of the same number as host a."""
    paths = [
        host_bundle(tmp_path / "a.tar", "a", {0: "alive", 1: "alive", 3: "absent"}, world=4),
        host_bundle(tmp_path / "b.tar", "b", {2: "alive"}, world=4, job="78"),
        host_bundle(tmp_path / "c.tar", "c", {1: "alive", 3: "alive"}, world=4),
    ]
    written = merge_bundles([paths[index] for index in order], tmp_path / "job.tar")
    found = manifest(tmp_path / "job.tar")
    assert {rank: facts["node"] for rank, facts in found["ranks"].items()} == {"0": "a", "1": "a", "2": None, "3": "c"}
    assert any(each.startswith("b: its ranks left out, they are of another job: job 78") for each in written.warnings)
    assert any(each.startswith("c: rank 1 and 0 more left out: a saw") for each in written.warnings)
    assert "nodes/b/node.json" in members(tmp_path / "job.tar")


def test_an_address_of_a_rendezvous_tells_no_jobs_apart(tmp_path: Path) -> None:
    one = host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=2, job="localhost:29500")
    two = host_bundle(tmp_path / "two.tar", "n2", {1: "alive"}, world=2, job="n1:29500")
    assert merge_bundles([one, two], tmp_path / "job.tar").warnings == ()
    assert manifest(tmp_path / "job.tar")["job_id"] is None


def test_two_pods_of_one_host_are_one_host_with_the_ranks_of_both(tmp_path: Path) -> None:
    one = host_bundle(tmp_path / "pod-a.tar", "n1", {0: "alive"}, world=2)
    two = host_bundle(tmp_path / "pod-b.tar", "n1", {1: "alive"}, world=2)
    written = merge_bundles([one, two], tmp_path / "job.tar")
    runs = [json.loads(line) for line in members(tmp_path / "job.tar")["nodes/n1/collectors.jsonl"].splitlines()]
    assert sorted(str(row["rank"]) for row in runs) == ["0", "1", "None"]
    assert written.warnings == ("pod-b: nodes/n1/node.json left out: pod-a brought one already",)


HOSTILE = (
    "../escaped",
    "/tmp/escaped",
    "nodes/../../escaped",
    "nodes/n2/node.json",
    "nodes/n1/.hidden/x",
    "nodes/n1/a b/x",
    "ranks/../x",
    "ranks/01/fr/x",
    "ranks/99999999/fr/x",
    "ranks/0/" + "d/" * 40 + "x",
    "job",
    "bin/forensics",
    "nodes/n1",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_is_written_where_a_bundle_has_no_place(name: str, tmp_path: Path) -> None:
    host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=1, also=[Content(name, b"evil")])
    before = set(tmp_path.rglob("*"))
    written = merge_bundles([tmp_path / "one.tar"], tmp_path / "job.tar")
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "job.tar"}
    assert b"evil" not in members(tmp_path / "job.tar").values()
    assert written.warnings or "/.hidden" in name
    assert not Path("/tmp/escaped").exists()


def test_links_and_devices_are_not_taken(tmp_path: Path) -> None:
    path = host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=1)
    with tarfile.open(path, "a") as tar:
        for kind, name in (
            (tarfile.SYMTYPE, "ranks/0/link"),
            (tarfile.LNKTYPE, "ranks/0/hard"),
            (tarfile.CHRTYPE, "ranks/0/dev"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            tar.addfile(info)
    written = merge_bundles([path], tmp_path / "job.tar")
    assert not {"ranks/0/link", "ranks/0/hard", "ranks/0/dev"} & members(tmp_path / "job.tar").keys()
    assert len(written.warnings) == 3


def test_a_file_where_a_folder_must_be_costs_only_itself(tmp_path: Path) -> None:
    also = [Content("ranks/0/fr", b"a file"), Content("ranks/0/fr/0.json", b"a dump")]
    host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=1, also=also)
    written = merge_bundles([tmp_path / "one.tar"], tmp_path / "job.tar")
    assert any("left out" in each for each in written.warnings)
    assert "ranks/0/rank.json" in members(tmp_path / "job.tar")


@pytest.mark.parametrize(
    "facts",
    [
        {"ranks": [], "status": 3, "nodes": "n1", "node_status": [1], "warnings": {"a": 1}},
        {"ranks": {"x": {}, "1": 7, "٣": {}, "9" * 30: {}}, "world_size": -1, "begin_ns": "1", "end_ns": None},
        {"ranks": {"0": {"state": ["alive"]}}, "world_size": 1 << 60, "job_id": {}, "nodes": [1, None, "../n1", ""]},
    ],
    ids=["types", "numbers", "values"],
)
def test_a_manifest_of_nonsense_is_merged_without_an_error(facts: dict[str, Any], tmp_path: Path) -> None:
    host_bundle(tmp_path / "bad.tar", "n1", {0: "alive"}, says=facts)
    host_bundle(tmp_path / "good.tar", "n2", {4: "alive"})
    written = merge_bundles([tmp_path / "bad.tar", tmp_path / "good.tar"], tmp_path / "job.tar")
    assert written.ranks[4] == "alive"


def test_a_bundle_that_was_cut_gives_what_is_there(tmp_path: Path) -> None:
    path = host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=1, also=[Content("ranks/0/logs/x", b"y" * 50_000)])
    path.write_bytes(path.read_bytes()[:-40_000])
    written = merge_bundles([path], tmp_path / "job.tar")
    assert written.ranks == {0: "alive"}
    assert any("cut" in each for each in written.warnings)


def test_a_member_that_was_changed_is_taken_and_named(tmp_path: Path) -> None:
    path = host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=1, also=[Content("ranks/0/logs/x", b"original")])
    path.write_bytes(path.read_bytes().replace(b"original", b"replaced"))
    written = merge_bundles([path], tmp_path / "job.tar")
    assert members(tmp_path / "job.tar")["ranks/0/logs/x"] == b"replaced"
    assert written.warnings == ("one: ranks/0/logs/x: another content than its SHA256SUMS says",)


def test_what_is_no_bundle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"hello")
    with tarfile.open(tmp_path / "two.tar", "w") as tar:
        for name in ("a/bundle.json", "b/bundle.json"):
            tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    with pytest.raises(ForensicsError, match=r"no bundle: it has no bundle\.json"):
        merge_bundles([tmp_path / "text"], tmp_path / "job.tar")
    with pytest.raises(ForensicsError, match="holds 2 bundles"):
        merge_bundles([tmp_path / "two.tar"], tmp_path / "job.tar")
    assert not list(tmp_path.glob("job*"))


def test_the_command_says_what_it_wrote(forensics: Command, tmp_path: Path) -> None:
    one = host_bundle(tmp_path / "one.tar", "n1", {0: "alive"}, world=2)
    two = host_bundle(tmp_path / "two.tar", "n2", {1: "alive"}, world=2)
    answer = forensics("merge", one, two, "-o", tmp_path / "job.tar")
    assert answer.code == 0
    assert "rank 0-1 of 2: alive" in answer.err
    again = forensics("merge", one, two, "-o", tmp_path / "job.tar")
    assert (again.code, "--force" in again.err) == (2, True)
