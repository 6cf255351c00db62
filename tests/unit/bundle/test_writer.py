from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from forensics.bundle.layout import member_name, member_order, node_path
from forensics.bundle.writer import Content, directory_contents, write_bundle

FILES = {
    "ranks/10/stacks/0.json": b"[]",
    "ranks/2/logs/rank2.log": b"log",
    "ranks/2/fr/0.json": b"{}",
    "ranks/2/stacks/child-7.0.json": b"[]",
    "ranks/2/stacks/0.json": b"[]",
    "nodes/a/gpu/nvidia-smi.xml": b"<x/>",
    "nodes/a/collectors.jsonl": b"{}\n",
    "redactions.json": b"[]",
    "bundle.json": b"{}",
    "ranks/2/rank.json": b"{}",
    "nodes/a/node.json": b"{}",
    "something/else": b"?",
}
ORDER = [
    "bundle.json",
    "nodes/a/collectors.jsonl",
    "nodes/a/node.json",
    "ranks/2/rank.json",
    "ranks/2/stacks/0.json",
    "ranks/10/stacks/0.json",
    "ranks/2/stacks/child-7.0.json",
    "ranks/2/fr/0.json",
    "redactions.json",
    "nodes/a/gpu/nvidia-smi.xml",
    "ranks/2/logs/rank2.log",
    "something/else",
]


def names(content: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        return tar.getnames()


def test_what_would_be_missed_most_comes_first() -> None:
    assert sorted(FILES, key=member_order) == ORDER


def test_a_directory_becomes_a_bundle(tmp_path: Path) -> None:
    root = tmp_path / "staging"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    (root / ".clock_sync").write_bytes(b"hidden")
    (root / "ranks/2/.0.json.77.tmp").write_bytes(b"half")
    (root / "SHA256SUMS").write_bytes(b"old")
    (root / "link").symlink_to("/etc/passwd")
    output = tmp_path / "bundle.tar"
    size = write_bundle(output, directory_contents(root))
    assert output.stat().st_size == size
    assert output.stat().st_mode & 0o077 == 0
    assert names(output.read_bytes()) == [*ORDER, "SHA256SUMS"]


def test_the_checksums_close_the_bundle(tmp_path: Path) -> None:
    output = tmp_path / "bundle.tar"
    write_bundle(output, [Content("bundle.json", b"{}")])
    with tarfile.open(output) as tar:
        sums = tar.extractfile("SHA256SUMS")
        assert sums is not None
        assert sums.read() == b"44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a  bundle.json\n"


def test_a_bundle_of_the_same_content_is_the_same_file(tmp_path: Path) -> None:
    contents = [Content(name, FILES[name], 1_700_000_000) for name in ORDER]
    for name in ("a.tar.gz", "b.tar.gz"):
        write_bundle(tmp_path / name, contents)
    assert (tmp_path / "a.tar.gz").read_bytes() == (tmp_path / "b.tar.gz").read_bytes()


def test_the_name_says_how_it_is_compressed(tmp_path: Path) -> None:
    contents = [Content("bundle.json", b"{}")]
    for name in ("a.tar", "a.tgz", "a.tar.zst"):
        write_bundle(tmp_path / name, contents)
    plain = (tmp_path / "a.tar").read_bytes()
    assert names(gzip.decompress((tmp_path / "a.tgz").read_bytes())) == names(plain)
    with zstandard.ZstdDecompressor().stream_reader((tmp_path / "a.tar.zst").read_bytes()) as stream:
        assert names(stream.read()) == names(plain)


def test_an_existing_file_is_replaced_only_on_demand(tmp_path: Path) -> None:
    output = tmp_path / "bundle.tar"
    output.write_bytes(b"precious")
    with pytest.raises(FileExistsError):
        write_bundle(output, [Content("bundle.json", b"{}")])
    assert output.read_bytes() == b"precious"
    write_bundle(output, [Content("bundle.json", b"{}")], replace=True)
    assert names(output.read_bytes()) == ["bundle.json", "SHA256SUMS"]
    assert [path.name for path in tmp_path.iterdir()] == ["bundle.tar"]


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    def contents() -> Iterator[Content]:
        yield Content("bundle.json", b"{}")
        yield Content("gone", tmp_path / "gone")

    with pytest.raises(FileNotFoundError):
        write_bundle(tmp_path / "bundle.tar", contents())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("gpu-017.local", "gpu-017.local"), ("../../etc", "_.._etc"), ("a b/c", "a_b_c"), (".hidden", "hidden"), ("...", "_")],
)
def test_names_of_hosts_and_files_stay_inside_the_bundle(name: str, expected: str) -> None:
    assert member_name(name) == expected
    assert node_path(name, "node.json") == f"nodes/{expected}/node.json"
