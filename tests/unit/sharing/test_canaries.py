"""Secrets planted into every kind of artefact come out of none."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import sqlite3
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from forensics.ingest.flight_recorder.pickle import load_pickle
from forensics.ingest.nic_epochs import layout as nic_layout
from forensics.ingest.shim_log import layout as shim_layout
from forensics.ingest.shim_log.file import ShimFile, read_file
from forensics.ingest.stage_vectors.sections import Section, sections
from forensics.recorder import layout as stage_layout
from forensics.sharing.pseudonyms import Pseudonyms
from forensics.sharing.redacting import Report, redact_bundle
from tests.recordings.collection import tar_of
from tests.unit.sharing.canaries import CANARY, HUGGING_FACE, LINES, PASSWORD, PRIVATE_KEY, URL, leaks

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "fixtures/samples"
TEXT = "\n".join(f"[rank0]: {line}" for line in LINES).encode() + b"\nstep 12 loss 2.3\n"


def redacted(tmp_path: Path, members: dict[str, bytes]) -> tuple[Path, Report]:
    source = tmp_path / "source.tar"
    source.write_bytes(tar_of(members))
    output = tmp_path / "shared.tar"
    return output, redact_bundle([source], output, Pseudonyms())


def member(bundle: Path, path: str) -> bytes:
    import tarfile

    with tarfile.open(bundle) as archive:
        return archive.extractfile(path).read()  # type: ignore[union-attr]


def planted_pickle() -> bytes:
    value: dict[str, Any] = {
        "version": "2.10",
        "entries": [
            {"profiling_name": "nccl:all_reduce", "frames": [{"name": f"fetch({URL})", "filename": "t.py", "line": 1}]}
        ],
        "pg_config": {"0": {"name": "0", "desc": f"group --token {PASSWORD}", "ranks": "[0]"}},
        "api_key": PASSWORD,
        HUGGING_FACE: 1,
    }
    return pickle.dumps(value, protocol=2)


def planted_shim_log() -> bytes:
    """The sample with a canary in each text, behind the end of one, and in the unused part of its head."""
    content = bytearray((SAMPLES / "shim_log/one_of_everything.frx").read_bytes())
    content[256 : 256 + 40] = f"/x/--token={PASSWORD}".encode().ljust(40, b"\0")
    content[300 : 300 + len(CANARY)] = CANARY.encode()
    content[1700 : 1700 + len(CANARY)] = CANARY.encode()
    note = shim_layout.HEAD_BYTES + 224
    content[note : note + 64] = f"password={PASSWORD}".encode().ljust(64, b"\0")
    content[32:36] = bytes(4)
    content[32:36] = zlib.crc32(content[:2048]).to_bytes(4, "little")
    return bytes(content)


def planted_stages() -> bytes:
    content = bytearray((SAMPLES / "stage_vectors/rank_0.stages").read_bytes())
    text = json.dumps({"host": "node1", "role": f"token={PASSWORD}"}).encode()
    fields = list(stage_layout.HEADER.unpack_from(content))
    fields[11] = len(text)
    stage_layout.HEADER.pack_into(content, 0, *fields)
    content[128 : 128 + len(text)] = text
    content[900 : 900 + len(CANARY)] = CANARY.encode()
    return bytes(content)


def planted_epochs() -> bytes:
    content = (SAMPLES / "nic_epochs/simulated_0.epochs").read_bytes()
    head = np.frombuffer(content, nic_layout.HEAD, 1)[0].copy()
    begin = nic_layout.HEAD.itemsize
    text = json.loads(content[begin : begin + int(head["text_bytes"])])
    runs = np.frombuffer(content, nic_layout.RUN, int(head["runs"]), begin + int(head["text_bytes"])).copy()
    shown = json.dumps({**text, "note": URL}).encode()
    shown += b" " * (-len(shown) % 8)
    runs["offset"] += len(shown) - int(head["text_bytes"])
    rest = content[begin + int(head["text_bytes"]) + runs.nbytes :]
    head["file_bytes"] += len(shown) - int(head["text_bytes"])
    head["text_bytes"] = len(shown)
    head["checksum"] = zlib.crc32(head.tobytes()[:-4] + shown + runs.tobytes())
    return bytes(head.tobytes() + shown + runs.tobytes() + rest + CANARY.encode())


def planted_database(tmp_path: Path) -> bytes:
    path = tmp_path / "nsight.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
        database.execute("INSERT INTO StringIds VALUES (1, ?)", (PASSWORD,))
    return path.read_bytes()


def everything(tmp_path: Path) -> dict[str, bytes]:
    document = {
        "env": {"DB_PASSWORD": PASSWORD, "HF_TOKEN": HUGGING_FACE, "PIN_SECRET": 12345678, "MY_SERVICE_KEY": PASSWORD},
        "cmdline": ["python", "t.py", "--api-key", PASSWORD, "--token", HUGGING_FACE],
        "pod": [{"name": "DB_PASSWORD", "value": PASSWORD}],
        "passwords": {"password": [PASSWORD, f"x{PASSWORD}"]},
        "key": PRIVATE_KEY,
        "text": f"export TOKEN='{PASSWORD}'\n",
        "slashed": "@@",
    }
    slashed = f"https:\\/\\/me:{PASSWORD}@host\\/x"
    escaped = "".join(f"\\u{ord(char):04x}" for char in f"password={PASSWORD}")
    as_json = json.dumps(document, indent=1).replace("@@", f"{slashed} {escaped}").encode()
    environ = f"RANK=0\0WORLD_SIZE=4\0LOCAL_RANK=0\0INNOCENT={PASSWORD}\0MASTER_PORT=1\0".encode()
    lines = "\n".join(json.dumps({"message": line, "password": PASSWORD}) for line in LINES).encode()
    return {
        "bundle.json": json.dumps({"schema": "forensics.bundle/1", "nodes": ["n1"], "warnings": [URL], "ranks": {}}).encode(),
        "ranks/0/rank.json": as_json,
        "ranks/0/compact.json": json.dumps(document).encode(),
        "ranks/0/cut.json": json.dumps({"password": PASSWORD, "b": URL}).encode()[:-9],
        "ranks/0/cut_inside.json": json.dumps({"b": URL, "password": PASSWORD}).encode()[:-4],
        "ranks/0/logs/out.log": TEXT,
        "ranks/0/logs/lines.jsonl": lines,
        "ranks/0/logs/holes.log": b"step 1\n" * 2000 + bytes(64) + "\0".join(f"password={PASSWORD}").encode(),
        "ranks/0/logs/packed.log.gz": gzip.compress(TEXT),
        "ranks/0/logs/packed.log.zst": zstandard.compress(TEXT),
        "ranks/0/logs/wide.log": f"password={PASSWORD}\n".encode("utf-16"),
        "ranks/0/101_environ": environ,
        "ranks/0/fr/dump": planted_pickle(),
        "ranks/0/fr/damaged": planted_pickle()[:-30],
        "ranks/0/fr/hostile": pickle.dumps(Path(f"/{CANARY}"), protocol=2),
        "ranks/0/shim/x.frx.zst": zstandard.compress(planted_shim_log()),
        "ranks/0/shim/plain.frx": planted_shim_log(),
        "ranks/0/stages/rank_0.stages": planted_stages(),
        "nodes/n1/nic/a.epochs": planted_epochs(),
        "ranks/0/traces/trace.sqlite": planted_database(tmp_path),
        "ranks/0/traces/trace.parquet": b"PAR1" + CANARY.encode(),
        "ranks/0/core": b"\x7fELF" + bytes(60) + CANARY.encode(),
        "ranks/0/unknown.bin": bytes(range(256)) + CANARY.encode(),
        f"ranks/0/logs/{HUGGING_FACE}.log": b"step 1\n",
        f"ranks/0/logs/token={PASSWORD}.log": b"step 1\n",
    }


def test_no_canary_in_any_byte_of_the_output(tmp_path: Path) -> None:
    members = everything(tmp_path)
    source = tmp_path / "all.tar"
    source.write_bytes(tar_of(members))
    carrying = {place for place, _ in leaks(source)} - {"raw"}
    assert len(carrying) >= len(members) - 3  # the search finds what was planted
    output, report = redacted(tmp_path, members)
    assert leaks(output) == []
    assert leaks(output, (PASSWORD[2:14],)) == []
    assert not any(CANARY in f"{path}{reason}" for path, reason in report.left_out.items())


def test_what_cannot_be_rewritten_is_left_out_and_named(tmp_path: Path) -> None:
    _, report = redacted(tmp_path, everything(tmp_path))
    names = {path.rpartition("/")[2]: reason for path, reason in report.left_out.items()}
    assert set(names) == {"hostile", "trace.sqlite", "trace.parquet", "core", "unknown.bin", "wide.log"}
    assert "SQLite" in names["trace.sqlite"] and "wants to load" in names["hostile"]


def test_rewritten_json_is_the_same_document_without_the_secrets(tmp_path: Path) -> None:
    output, _ = redacted(tmp_path, everything(tmp_path))
    for path in ("ranks/0/rank.json", "ranks/0/compact.json"):
        found = json.loads(member(output, path))
        assert found["cmdline"] == ["python", "t.py", "--api-key", "<redacted>", "--token", "<redacted>"]
        assert set(found["env"]) == {"DB_PASSWORD", "HF_TOKEN", "PIN_SECRET", "MY_SERVICE_KEY"}
        assert set(found["env"].values()) == {"<redacted>"}
        assert found["pod"] == [{"name": "DB_PASSWORD", "value": "<redacted>"}]
    assert all(json.loads(line)["password"] == "<redacted>" for line in member(output, "ranks/0/logs/lines.jsonl").splitlines())


def test_an_environment_keeps_what_configures_the_training(tmp_path: Path) -> None:
    output, report = redacted(tmp_path, everything(tmp_path))
    kept = member(output, "ranks/0/101_environ")
    assert kept == b"RANK=0\0WORLD_SIZE=4\0LOCAL_RANK=0\0INNOCENT=<redacted>\0MASTER_PORT=1\0"
    assert [(one.kind, one.count) for one in report.replaced if one.path == "ranks/0/101_environ"] == [("environment", 1)]


def test_binary_formats_are_still_read(tmp_path: Path) -> None:
    output, _ = redacted(tmp_path, everything(tmp_path))
    dump, problem = load_pickle(member(output, "ranks/0/fr/dump"))
    assert problem is None and dump["entries"][0]["profiling_name"] == "nccl:all_reduce"
    assert dump["api_key"] == "<redacted>"
    before = next(one for one in read_file(io.BytesIO(planted_shim_log())) if isinstance(one, ShimFile))
    (after,) = read_file(io.BytesIO(member(output, "ranks/0/shim/plain.frx")))
    assert isinstance(after, ShimFile) and after.host == before.host and after.tables.keys() == before.tables.keys()
    assert all(np.array_equal(after.tables[kind], before.tables[kind]) for kind in (shim_layout.RECORDS, shim_layout.EPOCHS))
    (section,) = sections(member(output, "ranks/0/stages/rank_0.stages"))
    assert isinstance(section, Section) and section.host == "node1" and section.role == "token=<redacted>"


@pytest.mark.parametrize("kept", [0.55, 0.7, 0.85, 0.999])
def test_a_cut_dump_holds_what_it_held_and_is_still_cut(tmp_path: Path, kept: float) -> None:
    """Also one that breaks off inside an entry that names a secret."""
    planted = planted_pickle()
    content = planted[: int(len(planted) * kept)]
    before, problem = load_pickle(content)
    assert problem is not None
    output, report = redacted(tmp_path, {"ranks/0/fr/dump": content})
    if problem.fatal:
        assert list(report.left_out) == ["ranks/0/fr/dump"]
        return
    after, problem = load_pickle(member(output, "ranks/0/fr/dump"))
    assert problem is not None and not problem.fatal and leaks(output) == []
    assert after.keys() == before.keys()
    assert [entry["profiling_name"] for entry in after["entries"]] == [entry["profiling_name"] for entry in before["entries"]]


EDGE = (b"x" * 79 + b"\n") * 13_200


@pytest.mark.slow
@pytest.mark.parametrize("text", [PRIVATE_KEY, f"password={PASSWORD}", f"--token {PASSWORD}"])
@pytest.mark.first(1)
def test_a_secret_at_the_edge_of_a_piece_of_a_log_is_found(tmp_path: Path, text: str) -> None:
    members = {f"{spare}.log": EDGE[: (1 << 20) - spare] + f"\n{text}\n".encode() for spare in range(0, 90, 7)}
    assert leaks(redacted(tmp_path, members)[0]) == []


@pytest.mark.slow
@pytest.mark.parametrize("text", [f'"password": "{PASSWORD}"', f'"argv": ["--token", "{PASSWORD}"]'])
@pytest.mark.first(1)
def test_a_secret_at_the_edge_of_a_piece_of_a_document_is_found(tmp_path: Path, text: str) -> None:
    filler = EDGE.replace(b"\n", b"y").decode()
    members = {
        f"{spare}.json": f'{{"a": "{filler[: (1 << 20) - spare]}", "b": 1, {text}, "c": "{filler}"}}'.encode()
        for spare in range(0, 90, 7)
    }
    output, _ = redacted(tmp_path, members)
    assert leaks(output) == []
    assert all(json.loads(member(output, path))["b"] == 1 for path in members)
