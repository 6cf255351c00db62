from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import tarfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import zstandard

from forensics.bundle import limits
from forensics.bundle.reader import Bundle, open_bundle
from forensics.bundle.streams import DamagedMember
from forensics.errors import ExitCode, ForensicsError

FILES = {
    "bundle.json": json.dumps({"schema": "forensics.bundle/1", "ranks": {"0": {"node": "gpu-001"}, "1": {"node": "gpu-002"}}}),
    "nodes/gpu-001/node.json": "{}",
    "nodes/gpu-001/ib/counters-1.json": "{}",
    "ranks/0/fr/0.json": "zero",
    "ranks/0/stacks/2.json": "stack",
    "ranks/1/fr/nccl_trace_rank_1": "one",
    "ranks/1/stacks/child-77.0.json": "child",
}
RUN = {
    "id": "fr.live",
    "rank": 0,
    "pid": 9,
    "sample": 3,
    "begin_ns": 5,
    "end_ns": 6,
    "status": "ok",
    "path": "ranks/0/fr/0.json",
}


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def members(files: dict[str, str]) -> list[tuple[tarfile.TarInfo, bytes]]:
    found = []
    for name, text in files.items():
        info = tarfile.TarInfo(name)
        info.size = len(text.encode())
        found.append((info, text.encode()))
    return found


def tar(path: Path, content: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for info, data in content:
            archive.addfile(info, io.BytesIO(data))
    return path


def texts(bundle: Bundle) -> dict[str, str]:
    found = {}
    for artefact in bundle.artefacts:
        with artefact.open() as stream:
            found[artefact.path] = stream.read().decode()
    return found


def messages(bundle: Bundle) -> list[str]:
    return [f"{warning.path}: {warning.message}" for warning in bundle.warnings]


def test_a_tar_in_any_form_equals_its_directory(tmp_path: Path) -> None:
    directory = write(tmp_path / "job", FILES)
    plain = tar(tmp_path / "a.tar", members(FILES))
    shuffled = members(FILES)
    random.Random(3).shuffle(shuffled)
    inside = [(info, data) for info, data in members({f"job-77/{name}": text for name, text in FILES.items()})]
    forms = [directory, plain, tar(tmp_path / "b.tar", shuffled), tar(tmp_path / "c.tar", inside)]
    for name, packed in (
        ("a.tar.gz", gzip.compress(plain.read_bytes())),
        ("a.bin", zstandard.ZstdCompressor().compress(plain.read_bytes())),
    ):
        forms.append(tmp_path / name)
        forms[-1].write_bytes(packed)
    bundles = [open_bundle([form]) for form in forms]
    assert all(texts(bundle) == FILES for bundle in bundles)
    assert len({bundle.sha256 for bundle in bundles}) == 1
    assert [bundle.kind for bundle in bundles] == ["bundle"] * len(forms)
    assert [bundle.warnings for bundle in bundles] == [[]] * len(forms)
    assert [artefact.path for artefact in bundles[0].artefacts] == sorted(FILES)


def test_the_digest_follows_content_and_names(tmp_path: Path) -> None:
    first = open_bundle([write(tmp_path / "a", FILES)]).sha256
    assert open_bundle([write(tmp_path / "b", FILES | {"ranks/0/fr/0.json": "changed"})]).sha256 != first
    assert open_bundle([write(tmp_path / "c", FILES | {"ranks/2/fr/0.json": "zero"})]).sha256 != first


def test_origins_come_from_the_manifest_and_else_from_the_layout(tmp_path: Path) -> None:
    copied = RUN | {"id": "fr.files", "rank": 1, "sample": None, "path": "ranks/1/fr/nccl_trace_rank_1"}
    lines = f"{json.dumps(RUN)}\nnot json\n{json.dumps(copied)}\n"
    root = write(tmp_path / "job", FILES | {"nodes/gpu-001/collectors.jsonl": lines})
    found = {artefact.path: artefact for artefact in open_bundle([root]).artefacts}
    live = found["ranks/0/fr/0.json"]
    assert (live.rank, live.rank_method, live.pid, live.sample, live.captured_ns) == (0, "manifest", 9, 3, 5)
    assert (live.host, live.collector) == ("gpu-001", "fr.live")
    stack = found["ranks/0/stacks/2.json"]
    assert (stack.rank, stack.rank_method, stack.sample, stack.is_child, stack.host) == (0, "path", 2, False, "gpu-001")
    child = found["ranks/1/stacks/child-77.0.json"]
    assert (child.rank, child.pid, child.is_child, child.sample, child.host) == (1, 77, True, 0, "gpu-002")
    counters = found["nodes/gpu-001/ib/counters-1.json"]
    assert (counters.rank, counters.host, counters.sample) == (None, "gpu-001", 1)
    assert found["ranks/1/fr/nccl_trace_rank_1"].captured_ns is None
    assert found["ranks/1/fr/nccl_trace_rank_1"].sample is None


def test_compressed_members_are_opened(tmp_path: Path) -> None:
    (tmp_path / "rank1.json").write_bytes(gzip.compress(b"plain"))
    (tmp_path / "rank2.json.zst").write_bytes(zstandard.ZstdCompressor().compress(b"packed"))
    assert texts(open_bundle([tmp_path])) == {"rank1.json": "plain", "rank2.json.zst": "packed"}


def test_hidden_files_are_left_out_silently_and_links_out_of_the_directory_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    root = write(tmp_path / "job", {"rank0.json": "0", ".git/config": "x", "sub/.hidden": "x", "sub/rank1.json": "1"})
    (root / "out").symlink_to(tmp_path / "secret")
    (root / "latest.json").symlink_to(root / "rank0.json")
    (root / "loop").symlink_to(root)
    (root / "gone").symlink_to(root / "nowhere")
    os.mkfifo(root / "0.pipe")
    bundle = open_bundle([root])
    assert texts(bundle) == {"rank0.json": "0", "sub/rank1.json": "1"}
    assert messages(bundle) == [
        "0.pipe: not a plain file; left out",
        "gone: link that leaves the directory or leads nowhere; not followed",
        "out: link that leaves the directory or leads nowhere; not followed",
    ]


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info, b"x" * size


@pytest.mark.parametrize(
    "bad",
    [
        member("/etc/cron.d/job", size=1),
        member("ranks/../../escape", size=1),
        member("link", tarfile.SYMTYPE, "/etc/passwd"),
        member("hard", tarfile.LNKTYPE, "ok.json"),
        member("device", tarfile.CHRTYPE),
        member("pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda bad: bad[0].name,
)
def test_unsafe_members_are_refused_by_name_and_the_rest_is_read(tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes]) -> None:
    path = tar(tmp_path / "x.tar", [*members({"ok.json": "1"}), bad, *members({"after.json": "2"})])
    bundle = open_bundle([path])
    assert texts(bundle) == {"after.json": "2", "ok.json": "1"}
    (message,) = messages(bundle)
    assert bad[0].name in message and "refused" in message
    assert sorted(item.name for item in tmp_path.iterdir()) == ["x.tar"]


def test_both_members_of_one_name_are_visible(tmp_path: Path) -> None:
    path = tar(tmp_path / "x.tar", [*members({"rank3.json": "first"}), *members({"rank3.json": "second"})])
    bundle = open_bundle([path])
    assert texts(bundle) == {"rank3.json": "first", "rank3.json#2": "second"}
    assert [artefact.rank for artefact in bundle.artefacts] == [3, 3]
    assert messages(bundle) == ["rank3.json#2: the archive holds rank3.json more than once; kept as rank3.json#2"]


def test_a_tar_is_readable_up_to_any_cut(tmp_path: Path) -> None:
    files = {f"rank{index}.json": f"{index}" * 700 for index in range(4)}
    whole = tar(tmp_path / "whole.tar", members(files)).read_bytes()
    end = 4 * 512 + 4 * 1024
    for cut in range(600, end + 512, 100):
        (tmp_path / "cut.tar").write_bytes(whole[:cut])
        bundle = open_bundle([tmp_path / "cut.tar"])
        for path, text in texts(bundle).items():
            assert files[path].startswith(text)
            assert (text == files[path]) or path in bundle.damaged
        assert any(f"cut or damaged at byte {min(cut, end)}" in message for message in messages(bundle)) or cut % 512, cut
        assert bundle.warnings, cut


def test_a_damaged_header_ends_the_tar_with_its_position(tmp_path: Path) -> None:
    content = bytearray(tar(tmp_path / "x.tar", members({"a": "1", "b": "2", "c": "3"})).read_bytes())
    content[1024:1100] = b"\xff" * 76
    (tmp_path / "x.tar").write_bytes(bytes(content))
    bundle = open_bundle([tmp_path / "x.tar"])
    assert texts(bundle) == {"a": "1"}
    assert "cut or damaged at byte 1024" in messages(bundle)[0]


def test_a_cut_compressed_tar_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    generator = random.Random(5)
    files = {f"rank{index}.json": "".join(generator.choices("0123456789abcdef", k=9000)) for index in range(4)}
    whole = gzip.compress(tar(tmp_path / "x.tar", members(files)).read_bytes())
    (tmp_path / "x.tar.gz").write_bytes(whole[: len(whole) // 2])
    bundle = open_bundle([tmp_path / "x.tar.gz"])
    assert texts(bundle)["rank0.json"] == files["rank0.json"]
    assert "rank3.json" not in texts(bundle)
    assert any("archive is cut" in message for message in messages(bundle))


def test_a_bomb_is_refused_while_it_expands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "RATIO_FREE_BYTES", 1 << 20)
    for name, packed in (
        ("rank0.json.gz", gzip.compress(bytes(8 << 20))),
        ("rank1.json.zst", zstandard.ZstdCompressor().compress(bytes(64 << 20))),
    ):
        (tmp_path / name).write_bytes(packed)
    for artefact in open_bundle([tmp_path]).artefacts:
        with artefact.open() as stream, pytest.raises(DamagedMember, match="expands beyond"):
            while stream.read(1 << 16):
                pass


def test_an_oversized_extended_header_ends_the_tar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tarfile.TarInfo("big")
    info.pax_headers = {"comment": "x" * 100_000}
    with tarfile.open(tmp_path / "x.tar", "w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("ok"))
        archive.addfile(*members({"first.json": "1"})[0][:1], io.BytesIO(b"1"))
        archive.addfile(info)
    monkeypatch.setattr(limits, "MAX_EXTENDED_HEADER_BYTES", 10_000)
    bundle = open_bundle([tmp_path / "x.tar"])
    assert texts(bundle) == {"first.json": "1", "ok": ""}
    assert "extended header" in messages(bundle)[0]


def test_too_many_members_are_cut_off(tmp_path: Path) -> None:
    files = {f"{index}.json": "x" for index in range(5)}
    for path in (write(tmp_path / "job", files), tar(tmp_path / "x.tar", members(files))):
        with limits.within(limits.Budget(members=3)):
            bundle = open_bundle([path])
        assert len(bundle.artefacts) == 3
        assert "more than 3" in messages(bundle)[0]


def sums(files: dict[str, str]) -> str:
    return "".join(f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in files.items())


def test_checksums_are_verified(tmp_path: Path) -> None:
    stated = sums(FILES | {"ranks/9/fr/0.json": "lost"})
    root = write(tmp_path / "job", FILES | {"ranks/0/fr/0.json": "tampered", "SHA256SUMS": stated})
    bundle = open_bundle([root])
    assert texts(bundle)["ranks/0/fr/0.json"] == "tampered"
    assert list(bundle.damaged) == ["ranks/0/fr/0.json"]
    assert [warning.path for warning in bundle.warnings] == ["ranks/0/fr/0.json", "ranks/9/fr/0.json"]
    intact = open_bundle([write(tmp_path / "intact", FILES | {"SHA256SUMS": sums(FILES)})])
    assert (list(intact.warnings), dict(intact.damaged)) == ([], {})


def test_several_inputs_are_one_body_of_evidence(tmp_path: Path) -> None:
    one = write(tmp_path / "gpu-001", FILES)
    two = tar(tmp_path / "gpu-002.tar", members({"bundle.json": "{}", "ranks/8/fr/0.json": "eight"}))
    loose = tmp_path / "fr" / "nccl_trace_rank_4"
    write(tmp_path, {"fr/nccl_trace_rank_4": "four"})
    bundle = open_bundle([two, loose, one, two])
    found = {artefact.path: artefact.rank for artefact in bundle.artefacts}
    assert found["gpu-002.tar/ranks/8/fr/0.json"] == 8
    assert found["gpu-001/ranks/1/stacks/child-77.0.json"] == 1
    assert found["fr/nccl_trace_rank_4"] == 4
    assert list(found) == sorted(found)
    assert bundle.sha256 == open_bundle([one, loose, two]).sha256


def held(*paths: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    """Files as members of a tar, by their names."""
    return [(member(path.name, size=path.stat().st_size)[0], path.read_bytes()) for path in paths]


def test_archives_in_folders_and_in_archives_are_opened(tmp_path: Path) -> None:
    inner = tar(tmp_path / "inner.tar", members({"ranks/3/fr/0.json": "three", "bundle.json": "{}"}))
    outer = tar(tmp_path / "outer.tar", held(inner))
    folder = tmp_path / "folder"
    folder.mkdir()
    inner.rename(folder / "inner.tar")
    assert texts(open_bundle([folder])) == texts(open_bundle([outer]))
    assert texts(open_bundle([folder]))["inner.tar/ranks/3/fr/0.json"] == "three"
    assert open_bundle([folder]).sha256 == open_bundle([outer]).sha256


def test_archives_are_opened_as_deep_as_clusters_hosts_and_ranks_and_no_deeper(tmp_path: Path) -> None:
    path = tmp_path / "0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("stack.txt", "stack")
    for depth in range(1, 5):
        path = tar(tmp_path / f"{depth}.tar", held(path))
    found = {name: [each.path for each in open_bundle([tmp_path / name]).artefacts] for name in ("3.tar", "4.tar")}
    assert found == {"3.tar": ["2.tar/1.tar/0.zip/stack.txt"], "4.tar": ["3.tar/2.tar/1.tar/0.zip"]}


def test_archives_in_archives_expand_within_one_budget(tmp_path: Path) -> None:
    for name in ("a.tar.gz", "b.tar.gz"):
        plain = tar(tmp_path / "plain.tar", members({"stack.txt": "x" * 60_000}))
        (tmp_path / name).write_bytes(gzip.compress(plain.read_bytes()))
    outer = tar(tmp_path / "outer.tar", held(tmp_path / "a.tar.gz", tmp_path / "b.tar.gz"))
    with limits.within(limits.Budget(bytes=100_000)):
        bundle = open_bundle([outer])
    assert list(texts(bundle)) == ["a.tar.gz/stack.txt"]
    assert [message for message in messages(bundle) if message.startswith("b.tar.gz: ")]


def test_names_that_are_not_unicode_become_printable(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"rank1-\xff.json")).write_text("1")
    (artefact,) = open_bundle([tmp_path]).artefacts
    assert artefact.path == "rank1-\ufffd.json"
    assert artefact.open().read() == b"1"


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_bytes(b""), os.mkfifo])
def test_input_that_cannot_be_used_at_all_is_an_error_in_one_sentence(tmp_path: Path, make: object) -> None:
    path = tmp_path / "input"
    assert callable(make)
    make(path)
    with pytest.raises(ForensicsError) as caught:
        open_bundle([path])
    assert caught.value.code is ExitCode.UNREADABLE
    assert str(path) in caught.value.message


PACKERS: dict[str, Callable[[bytes], bytes]] = {"xz": lzma.compress, "bz2": bz2.compress}


@pytest.mark.slow
@pytest.mark.parametrize("form", PACKERS)
def test_xz_and_bzip2_are_read_as_gzip_is(form: str, tmp_path: Path) -> None:
    plain = tar(tmp_path / "plain.tar", members({"rank3.log": "three\n" * 9_000}))
    packed = PACKERS[form](plain.read_bytes())
    (tmp_path / f"all.tar.{form}").write_bytes(packed)
    (tmp_path / f"rank1.log.{form}").write_bytes(PACKERS[form](b"one\n") + PACKERS[form](b"more\n"))
    (tmp_path / f"rank2.log.{form}").write_bytes(PACKERS[form](random.Random(1).randbytes(3_000_000))[:-900])
    plain.unlink()
    bundle = open_bundle([tmp_path])
    found = {artefact.path: artefact for artefact in bundle.artefacts}
    assert {path: artefact.rank for path, artefact in found.items()} == {
        f"all.tar.{form}/rank3.log": 3,
        f"rank1.log.{form}": 1,
        f"rank2.log.{form}": 2,
    }
    assert found[f"all.tar.{form}/rank3.log"].open().read() == b"three\n" * 9_000
    assert found[f"rank1.log.{form}"].open().read() == b"one\nmore\n"
    with pytest.raises(DamagedMember, match="cut or damaged"):
        found[f"rank2.log.{form}"].open().read()


def test_xz_that_asks_for_much_memory_is_refused(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 28}]
    path = tmp_path / "rank0.log.xz"
    path.write_bytes(lzma.compress(b"one\n", filters=filters))
    (artefact,) = open_bundle([path]).artefacts
    with pytest.raises(DamagedMember, match="cut or damaged"):
        artefact.open().read()
