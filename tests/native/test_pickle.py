"""The native reader of pickled dumps says what Python's restricted unpickler says, or nothing."""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.bundle.artefact import Artefact
from forensics.ingest import flight_recorder
from forensics.ingest.flight_recorder import native as recorder_native
from forensics.ingest.flight_recorder.native import NativeDump, open_dump
from forensics.ingest.interface import Batch, Problem
from tests.benchmarks.dumps import dump as large_dump
from tests.recordings.job import Job, as_pickle

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "native/pickle"
COMPILER = shutil.which("cc")

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def library(built: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(built))
    recorder_native._library.cache_clear()
    yield
    recorder_native._library.cache_clear()


def facts(content: bytes) -> list[Any]:
    items = flight_recorder.rows(Artefact("dump", len(content), lambda: io.BytesIO(content)))
    return [
        (item.table, {name: list(column) for name, column in item.columns.items()}) if isinstance(item, Batch) else item
        for item in items
    ]


def without_library(content: bytes) -> list[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder_native, "_library", lambda: None)
        return facts(content)


def read(content: bytes) -> NativeDump | None:
    with open_dump(content) as found:
        return found


def hung_job() -> Job:
    job = Job(4, "nccl")
    job.steps(5)
    job.hang(absent=[2])
    return job


def real_dumps() -> list[Path]:
    return sorted((ROOT / "fixtures/samples/flight_recorder").glob("*.pickle"))


@pytest.mark.parametrize("path", real_dumps(), ids=lambda path: path.name)
def test_recorded_dumps_give_the_same_facts(path: Path) -> None:
    assert facts(path.read_bytes()) == without_library(path.read_bytes())


def test_a_large_dump_gives_the_same_facts() -> None:
    content = large_dump(3, 16)
    assert read(content) is not None
    assert facts(content) == without_library(content)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_protocol_of_plain_data_is_read(protocol: int) -> None:
    content = pickle.dumps(hung_job().dump(1), protocol)
    assert read(content) is not None
    assert facts(content) == without_library(content)


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(["state", "record_id", "frames", "duration_ms", "is_p2p"]), plain), max_size=6))
def test_entries_of_any_plain_values_give_the_same_facts(values: list[dict[str, Any]]) -> None:
    entries = [{"profiling_name": "nccl:all_reduce", **entry} for entry in values]
    content = pickle.dumps({"version": "2.10", "entries": entries}, 2)
    assert facts(content) == without_library(content)


@settings(deadline=None)
@given(plain)
def test_members_are_the_values_python_reads(value: Any) -> None:
    content = pickle.dumps({"version": "2.10", "pg_config": value, "entries": []}, 2)
    found = read(content)
    assert found is not None
    assert found.values["pg_config"] == json.loads(json.dumps(value))


def test_a_cut_or_damaged_dump_never_gives_other_facts() -> None:
    content = as_pickle(hung_job().dump(1))
    dice = random.Random(7)
    for _ in range(400):
        damaged = bytearray(content[: dice.randrange(1, len(content))] if dice.random() < 0.5 else content)
        for _ in range(dice.randrange(3)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        if read(bytes(damaged)) is not None:
            assert facts(bytes(damaged)) == without_library(bytes(damaged))


def nested(levels: int) -> bytes:
    return b"\x80\x02}X\x07\x00\x00\x00entries](}(X\x0e\x00\x00\x00profiling_nameX\x01\x00\x00\x00aX\x06\x00\x00\x00frames" + (
        b"](" * levels + b"e" * levels + b"ues."
    )


HOSTILE = {
    "a class": b"\x80\x02cos\nsystem\n(X\x04\x00\x00\x00trueo.",
    "a reduction": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
    "a persistent reference": b"\x80\x02Pabc\n.",
    "a memo of 64 GiB": b"\x80\x02}r\xff\xff\xff\xffs.",
    "an integer of 2 GiB": b"\x80\x02\x8b\xff\xff\xff\x7f",
    "a text that is no UTF-8": b"\x80\x02}X\x01\x00\x00\x00\xffNs.",
    "a text longer than the file": b"\x80\x02}X\xff\xff\xff\xff",
    "nothing on the stack": b"\x80\x02.",
    "an item for nothing": b"\x80\x02Na.",
    "a mark that is not open": b"\x80\x02e.",
    "half a pair": b"\x80\x02}(NuN.",
    "a frame that does not end": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.",
    "no end": b"\x80\x02}",
    "an unknown memo": b"\x80\x02h\x07.",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_what_is_not_plain_and_sound_is_left_to_python(content: bytes) -> None:
    assert read(content) is None
    assert all(isinstance(item, Problem) for item in facts(content))


def test_a_list_in_itself_and_one_nested_too_deep_are_nulls() -> None:
    in_itself = (
        b"\x80\x02}X\x07\x00\x00\x00entries](}(X\x0e\x00\x00\x00profiling_nameX\x01\x00\x00\x00a"
        b"X\x06\x00\x00\x00frames]q\x01(h\x01eues."
    )
    for content in (in_itself, nested(200), nested(100_000)):
        assert read(content) is not None
        ((table, columns), *_) = facts(content)
        assert (table, columns["call_path"]) == ("operations", [None])


def test_references_to_references_take_no_time() -> None:
    bomb = (
        b"\x80\x02}X\x07\x00\x00\x00entries](}(X\x0e\x00\x00\x00profiling_nameX\x01\x00\x00\x00aX\x06\x00\x00\x00frames]q\x00"
    )
    for level in range(40):
        bomb += b"0](" + b"h" + bytes([level]) + b"h" + bytes([level]) + b"eq" + bytes([level + 1])
    found = facts(bomb + b"ues.")
    assert all(not isinstance(item, Problem) or not item.fatal for item in found)


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_sanitizers_find_nothing_in_damaged_dumps(tmp_path: Path) -> None:
    assert COMPILER is not None
    program = tmp_path / "driver"
    flags = ["-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    files = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    command = [
        COMPILER,
        *flags,
        "-I",
        str(ROOT / "native/include"),
        "-o",
        str(program),
        str(Path(__file__).with_name("pickle_driver.c")),
    ]
    built = subprocess.run([*command, *files, "-lm"], capture_output=True, text=True, check=False)
    if built.returncode and "cannot find" in built.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert built.returncode == 0, built.stderr
    paths = list(_damaged(tmp_path))
    ran = subprocess.run([program, *paths], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert int(ran.stdout) > 0


def _damaged(folder: Path) -> Iterator[Path]:
    dice = random.Random(11)
    whole = [path.read_bytes() for path in real_dumps()] + list(HOSTILE.values()) + [nested(5000)]
    for number in range(600):
        content = bytearray(dice.choice(whole))
        for _ in range(dice.randrange(6)):
            content[dice.randrange(len(content))] = dice.randrange(256)
        path = folder / f"{number}.pickle"
        path.write_bytes(content[: dice.randrange(1, len(content) + 1)] if dice.random() < 0.3 else content)
        yield path
