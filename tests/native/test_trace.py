"""The native reader of traces keeps what the reader in Python keeps: in every layout, cut, damaged, in blocks of any size."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forensics.ingest.kineto import native as trace_native
from forensics.ingest.kineto.columns import Tally, TraceColumns
from forensics.ingest.kineto.events import read_slowly
from forensics.ingest.kineto.native import read_native

ROOT = Path(__file__).parents[2]
SAMPLE = ROOT / "fixtures/samples/kineto/rank-0.pt.trace.json"
COMPILER = shutil.which("cc")
LAYOUTS: dict[str, dict[str, Any]] = {
    "compact": {"separators": (",", ":")}, "spaces": {}, "one": {"indent": 1}, "two": {"indent": 2}, "tabs": {"indent": "\t"},
}  # fmt: skip
CATEGORIES = [
    "cpu_op",
    "kernel",
    "cuda_runtime",
    "gpu_memcpy",
    "user_annotation",
    "gpu_user_annotation",
    "ac2g",
    "python_function",
]
NAMES = [
    "aten::add",
    "record_param_comms",
    "autograd::engine::evaluate_function: X",
    "aten::_fused_adamw_",
    "cudaLaunchKernel",
    "cudaFree",
    'a "b" \\',
    "ü",
]

required = {
    "ph": st.sampled_from("XXXif"), "cat": st.sampled_from(CATEGORIES), "name": st.sampled_from(NAMES),
    "ts": st.integers(0, 1 << 50) | st.decimals(0, 1 << 50, places=3).map(float),
}  # fmt: skip
arguments = st.dictionaries(
    st.sampled_from(["External id", "correlation", "Collective name", "Ev Idx", "Input Dims"]),
    st.integers(0, 1 << 40) | st.sampled_from(["allreduce", "{", "17"]) | st.lists(st.integers(0, 9), max_size=3),
)
durations = st.one_of(st.integers(-1, 9999), st.decimals(0, 9999, places=3).map(float), st.just("long"))
event = st.fixed_dictionaries(
    required,
    optional={"dur": durations, "pid": st.integers(0, 9), "tid": st.sampled_from([1, "stream 7", ""]), "args": arguments},
)


@pytest.fixture(autouse=True)
def library(built: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FORENSICS_NATIVE_DIR", str(built))
    trace_native._library.cache_clear()
    yield
    trace_native._library.cache_clear()


def native(content: bytes, block: int = 1 << 22) -> tuple[TraceColumns, Tally]:
    tally = Tally()
    columns = read_native([content[at : at + block] for at in range(0, len(content), block)], tally)
    assert columns is not None
    return columns, tally


def slowly(content: bytes) -> tuple[TraceColumns, Tally]:
    tally = Tally()
    return read_slowly([content], tally), tally


def rows(columns: TraceColumns) -> list[tuple[Any, ...]]:
    everything = np.arange(len(columns.kinds))
    details = [json.loads(columns.detail_texts[code]) if code >= 0 else None for code in columns.details.tolist()]
    tracks = [columns.track_texts[code] for code in columns.tracks.tolist()]
    numbers = (columns.kinds, columns.durations, columns.externals, columns.correlations)
    return list(zip(*(each.tolist() for each in numbers), columns.named(everything), tracks, details, strict=True))


def are_alike(found: TraceColumns, expected: TraceColumns) -> bool:
    return rows(found) == rows(expected) and found.begins.tolist() == expected.begins.tolist()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@settings(deadline=None, max_examples=25)
@given(st.lists(event, max_size=8), st.integers(20, 400), st.sampled_from([[], [{"id": 0}]]))
def test_events_of_any_kind_are_read_alike(
    layout: dict[str, Any], events: list[dict[str, Any]], block: int, devices: list[Any]
) -> None:
    """Also operators, which are kept where there is no device."""
    document = {"schemaVersion": 1, "deviceProperties": devices, "traceEvents": events, "traceName": "x"}
    content = json.dumps(document, **layout).encode()
    found, tally = native(content, block)
    assert are_alike(found, slowly(content)[0])
    assert tally.broken == 0 and tally.problem is None


def test_the_sample_is_read_alike_wherever_it_is_cut() -> None:
    content = SAMPLE.read_bytes()
    whole = native(content)[0]
    assert len(whole.kinds) > 100 and are_alike(whole, slowly(content)[0])
    for size in random.Random(3).sample(range(len(content)), 40):
        assert are_alike(native(content[:size], 5000)[0], slowly(content[:size])[0])


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_broken_event_costs_only_itself(layout: dict[str, Any]) -> None:
    mark = {"ph": "X", "cat": "user_annotation", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    events = [{**mark, "name": f"ProfilerStep#{number}"} for number in range(6)]
    content = json.dumps({"traceEvents": events}, **layout).encode()
    damaged = content.replace(b"ProfilerStep#3", b'Profiler"Step#3')
    found, tally = native(damaged)
    assert found.named(np.arange(len(found.kinds))) == [f"ProfilerStep#{number}" for number in (0, 1, 2, 4, 5)]
    assert tally.broken == 1 and tally.first_broken is not None
    assert damaged[tally.first_broken :].lstrip().startswith(b"{") and b"#3" in damaged[tally.first_broken :]


def test_braces_and_commas_in_a_text_do_not_part_events() -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "a}, {b", "ts": 1, "dur": 2, "args": {"Collective name": "}]},{"}}
    found, tally = native(json.dumps({"traceEvents": [kernel, kernel]}).encode(), 30)
    assert found.named(np.arange(len(found.kinds))) == ["a}, {b"] * 2 and tally.broken == 0


def test_nanoseconds_since_1970_are_exact() -> None:
    text = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "ts": 1712195495519689.047, "dur": 0.0015}]}'
    for found, _ in (native(text), slowly(text)):
        assert found.begins.tolist() == [1712195495519689047] and found.durations.tolist() == [2]


@pytest.mark.parametrize(
    "written", ["0.0005", "0.0004999", "1712195495519689.0475", "-0.0015", "12.5", "9.99949999999999999", "1e3", "1.5E2"]
)
@pytest.mark.parametrize("more", ["", ', "args": {"ts": 0.00051, "dur": 1.25}', ', "args": {"ts": 1712195495519689.04751}'])
def test_decimals_are_rounded_alike(written: str, more: str) -> None:
    kernel = f'{{"ph": "X", "cat": "kernel", "name": "k", "ts": {written}, "dur": 1.25{more}}}'
    text = f'{{"traceEvents": [{kernel}]}}'.encode()
    assert native(text)[0].begins.tolist() == slowly(text)[0].begins.tolist()


def test_an_event_without_a_track_is_kept() -> None:
    text = b'{"traceEvents": [%s]}' % b", ".join([b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}'] * 3)
    assert native(text)[0].track_texts == slowly(text)[0].track_texts == ["/"]


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_cut_last_event_is_stated(layout: dict[str, Any]) -> None:
    events = [{"ph": "X", "cat": "kernel", "name": f"k{number}", "ts": 1, "dur": 1} for number in range(4)]
    content = json.dumps({"traceEvents": events}, **layout).encode()
    cut = content[: content.index(b"k3") + 2]
    for found, tally in (native(cut), native(cut, 33), slowly(cut)):
        assert len(found.kinds) == 3 and tally.broken == 1 and tally.first_broken is not None
        assert b"k3" in cut[tally.first_broken :] and b"k2" not in cut[tally.first_broken :]


@pytest.mark.parametrize("value", ["1e9", "-", "99999999999999999999", "4000000000000000.5", "null", "true", '"5"x'])
def test_what_is_no_time_is_no_event(value: str) -> None:
    kernel = '{"ph": "X", "cat": "kernel", "name": "%s", "ts": %s, "dur": 1}'
    found, _ = native(f'{{"traceEvents": [{kernel % ("k", value)}, {kernel % ("l", 1)}]}}'.encode())
    assert found.named(np.arange(len(found.kinds))) == ["l"]


def test_an_event_without_end_does_not_take_all_memory() -> None:
    endless = iter([b'{"traceEvents": [\n  {\n    "ph": "X"\n  },\n  {"name": "', *[b"x" * (1 << 22)] * 100])
    tally = Tally()
    assert read_native(endless, tally) is not None
    assert tally.problem == "an event that does not end" and next(endless, None) is not None


@pytest.mark.slow
@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_sanitizers_find_nothing_in_damaged_traces(tmp_path: Path) -> None:
    assert COMPILER is not None
    program = tmp_path / "driver"
    flags = [
        "-std=c11",
        "-g",
        "-O1",
        "-fsanitize=address,undefined",
        "-fno-sanitize-recover=all",
        f"-I{ROOT / 'native/include'}",
    ]
    files = [str(Path(__file__).with_name("trace_driver.c")), *map(str, sorted((ROOT / "native/trace").glob("*.c")))]
    made = subprocess.run([COMPILER, *flags, "-o", program, *files], capture_output=True, text=True, check=False)
    if made.returncode and "cannot find" in made.stderr:
        pytest.skip("the compiler has no sanitizers")
    assert made.returncode == 0, made.stderr
    ran = subprocess.run([program, *_damaged(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert int(ran.stdout) > 0


def _damaged(folder: Path) -> Iterator[Path]:
    dice = random.Random(11)
    sample = SAMPLE.read_bytes()
    document = json.loads(sample)
    document["traceEvents"] = document["traceEvents"][:60]
    whole = [json.dumps(document, **layout).encode() for layout in LAYOUTS.values()] + [
        b'{"traceEvents":[' + b"[" * 500,
        b"{",
        b'"',
    ]
    for number in range(200):
        content = bytearray(dice.choice(whole))
        for _ in range(dice.randrange(6)):
            content[dice.randrange(len(content))] = (
                dice.choice(b'{}[]",:\\\n 07eE-.') if dice.random() < 0.7 else dice.randrange(256)
            )
        path = folder / f"{number}.json"
        path.write_bytes(content[: dice.randrange(1, len(content) + 1)] if dice.random() < 0.3 else content)
        yield path
