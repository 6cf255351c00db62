"""Files of 1 MB made to take a reader's time or memory, for every format that ingest reads."""

from __future__ import annotations

import gzip
import json
import struct
import tarfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path

SIZE = 1_000_000
SAMPLES = Path(__file__).parents[2] / "fixtures" / "samples"
_HEAD = b"\x80\x02}X\x07\x00\x00\x00entries]("
_NAME = b"X\x0e\x00\x00\x00profiling_name"
MERSENNE = (1 << 61) - 1


def text(value: str) -> bytes:
    raw = value.encode()
    return b"X" + struct.pack("<I", len(raw)) + raw


def integer(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(raw)]) + raw


def entry(inner: bytes) -> bytes:
    return b"}(" + _NAME + text("nccl:all_reduce") + inner + b"u"


def dump(entries: bytes) -> bytes:
    return _HEAD + entries + b"es."


def filled(part: bytes, size: int) -> bytes:
    return part * max(1, size // len(part))


def laughs(levels: int, width: int = 2) -> bytes:
    """A list of lists, each of which holds the one before several times; without an opcode that plain data does not need."""
    made = b"](]q\x00"
    for level in range(levels):
        made += b"](" + (b"h" + bytes([level])) * width + b"eq" + bytes([level + 1])
    return made + b"e"


def pickles(size: int = SIZE) -> Iterator[tuple[str, bytes]]:
    for key in ("frames", "input_sizes", "process_group", "state"):
        yield f"laughs in {key}", dump(entry(text(key) + laughs(60, 2)))
    yield "laughs of 20 levels", b"\x80\x02}(X\x07\x00\x00\x00entries]X\x09\x00\x00\x00pg_config" + laughs(20, 2) + b"u."
    yield "laughs as a member", b"\x80\x02}(X\x07\x00\x00\x00entries]X\x09\x00\x00\x00pg_config" + laughs(60, 2) + b"u."
    long = text("x" * (size // 2)) + b"q\x00"
    yield "one long text many times", dump(entry(text("frames") + b"](" + long + filled(b"h\x00", size // 2) + b"e"))
    frame = b"}(" + text("name") + text("f" * 200) + text("line") + b"K\x07uq\x00"
    yield "one frame many times", dump(entry(text("frames") + b"](" + frame + filled(b"h\x00", size) + b"e"))
    shared = b"](" + filled(b"K\x07", size // 2) + b"eq\x00"
    yield "one list many times", dump(entry(text("input_sizes") + b"](" + shared + filled(b"h\x00", size // 2) + b"e"))
    row = entry(text("input_sizes") + b"](](" + filled(b"K\x07", 120) + b"ee") + b"q\x00"
    yield "one entry many times", dump(row + filled(b"h\x00", size))
    wide = b"}(" + _NAME + text("nccl:x") + b"".join(text(f"k{n}") + b"N" for n in range(size // 24)) + b"uq\x00"
    yield "one wide entry many times", dump(wide + filled(b"h\x00", size // 2))
    two = entry(text("state") + text("a")) + b"q\x00" + entry(text("state") + text("b")) + b"q\x01"
    yield "two entries many times", dump(two + filled(b"h\x00h\x01", size))
    yield "rows with other keys", dump(b"".join(b"}(" + _NAME + b"Nh" + text(f"k{n}") + b"Nu" for n in range(size // 40)))
    yield "rows without a key", dump(b"}" * (size // 10))
    few = b"".join(entry(text(f"k{n:05d}") + b"N") for n in range(size // 70))
    yield "rows each with a key of its own", dump(few)
    many_keys = b"".join(text(f"k{n:06d}") + b"N" for n in range(size // 80))
    yield "wide rows", dump(b"".join(b"}(" + _NAME + text("x") + many_keys[: len(many_keys) // 4] + b"u" for _ in range(4)))
    chosen = range(1, size // 13)
    colliding = [integer(7 + MERSENNE * n) for n in chosen]
    yield "keys with one hash", b"\x80\x02}(" + b"".join(key + b"N" for key in colliding) + b"u."
    yield "values with one hash", dump(b"".join(entry(text("state") + key) for key in colliding[: size // 70]))
    yield (
        "tuples as keys",
        b"\x80\x02}("
        + b"".join(integer(1 << 40) + integer(n) + b"\x86N" for n in range(1 << 30, (1 << 30) + size // 15))
        + b"u.",
    )
    spread = b"".join(b"M" + struct.pack("<H", n & 0xFFFF) for n in range(size // 3))
    yield "many integers", dump(entry(text("input_sizes") + b"](](" + spread + b"ee"))
    yield (
        "integers 2^32 apart",
        dump(entry(text("input_sizes") + b"](" + b"".join(integer(n << 40) for n in range(1, size // 10)) + b"e")),
    )
    for name, opcode in (
        ("lists", b"]"),
        ("dictionaries", b"}"),
        ("sets", b"\x8f"),
        ("marks", b"("),
        ("nones", b"N"),
        ("memos", b"N\x94"),
    ):
        yield f"nothing but {name}", b"\x80\x04" + filled(opcode, size) + b"."
    yield "cut in the middle", dump(filled(b"}(" + _NAME + text("a") + text("state") + text("b") + b"u", size))[:-20]
    yield "cut among nones", b"\x80\x02(" + filled(b"N", size)
    yield "cut among tuples", b"\x80\x02(" + filled(b"K\x01\x85", size)
    yield "lists in lists", dump(entry(text("frames") + b"](" * (size // 4) + b"e" * (size // 4)))
    yield (
        "small entries",
        dump(filled(b"}h\x00h\x01s", size).replace(b"}h\x00h\x01s", b"}" + _NAME + b"q\x00" + text("a") + b"q\x01s", 1)),
    )
    yield "a memo far away", b"\x80\x02Nr\xff\xff\xff\x00." + filled(b"N", size)
    yield "a memo farther away", b"\x80\x02Nr\xff\xff\xff\xff."
    yield "empty lists", dump(entry(text("input_sizes") + b"](" + filled(b"]", size) + b"e"))


def recorder_json(size: int = SIZE) -> Iterator[tuple[str, bytes]]:
    head = b'{"version":"2.10","pg_config":{},"entries":['
    row = b'{"profiling_name":"nccl:x","frames":[],"input_sizes":[[1]]}'
    yield "small entries", head + b",".join([b'{"profiling_name":"a"}'] * (size // 23)) + b"]}"
    yield "entries", head + b",".join([row] * (size // len(row))) + b"]}"
    yield "cut", head + b",".join([row] * (size // len(row))) + b',{"a'
    for name, part in (("lists", b"[],"), ("dictionaries", b"{},"), ("lists in lists", b"[[]],"), ("numbers", b"7,")):
        yield name, head + filled(part, size).rstrip(b",") + b"]}"
        yield f"{name}, cut", head + filled(part, size)
    yield "depth", head + b"[" * size
    yield "commas", head + b"," * size
    yield "blanks", head + b" " * size
    yield "keys", b'{"entries":[],"pg_config":{' + b",".join(b'"%d":{}' % n for n in range(size // 12)) + b"}}"
    yield "keys, cut", b'{"entries":[],' + b",".join(b'"%d":{}' % n for n in range(size // 12))
    yield "statuses", b'{"entries":[],"pg_status":{' + b",".join(b'"%d":{}' % n for n in range(size // 12)) + b"}}"
    yield "digits", head + b'{"profiling_name":"a","record_id":' + b"7" * size + b"}]}"
    yield "ranks", b'{"entries":[],"pg_config":{"a":{"name":"a","ranks":"[' + b"1 ," * (size // 3) + b'x"}}}'
    yield "a name of words", head + b'{"profiling_name":"' + b"a:" * (size // 2) + b' 1"}]}'
    yield "a name of blanks", head + b'{"profiling_name":"a' + b" " * size + b'x"}]}'


def traces(size: int = SIZE) -> Iterator[tuple[str, bytes]]:
    head = b'{"schemaVersion":1,"distributedInfo":{"rank":0,"world_size":2},"traceEvents":['
    mark = b'{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":1,"tid":%d,"ts":%d.5,"dur":10}'
    kernel = b'{"ph":"X","cat":"kernel","name":"k%d","pid":1,"tid":7,"ts":%d,"dur":1,"args":{"correlation":%d}}'
    count = size // len(mark)
    yield "steps on a line", head + b",".join(mark % (n, 1, n * 20) for n in range(count)) + b"]}"
    yield "steps in steps", head + b",".join(mark % (n, 1, n) for n in range(count)) + b"]}"
    yield "steps of threads", head + b",".join(mark % (n, n, n * 20) for n in range(count)) + b"]}"
    yield (
        "stages in a step",
        head
        + mark % (1, 1, 0)
        + b","
        + b",".join(
            b'{"ph":"X","cat":"user_annotation","name":"forward","pid":1,"tid":1,"ts":%d,"dur":%d}' % (n % 7, n % 5)
            for n in range(count)
        )
        + b"]}",
    )
    yield (
        "stages one in another",
        head
        + mark.replace(b'"dur":10', b'"dur":99999999') % (1, 1, 0)
        + b","
        + b",".join(
            b'{"ph":"X","cat":"user_annotation","name":"%b","pid":1,"tid":1,"ts":%d,"dur":%d}'
            % ((b"forward", b"backward", b"optimizer")[n % 3], n, 2 * (count - n))
            for n in range(count)
        )
        + b"]}",
    )
    yield "kernels of other names", head + b",".join(kernel % (n, n, n) for n in range(count)) + b"]}"
    launch = (
        b'{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%d,"dur":9,"args":{"correlation":1}}'
    )
    yield "one correlation", head + b",".join([kernel % (1, n, 1) + b"," + launch % n for n in range(count // 2)]) + b"]}"
    call = b'{"ph":"X","cat":"cpu_op","name":"record_param_comms","ts":1,"dur":2,"args":{"Collective name":"allreduce"}}'
    yield "calls", head + b",".join([call] * (size // len(call))) + b"]}"
    gradient = b'{"ph":"X","cat":"cpu_op","name":"autograd::engine::evaluate_function: X","ts":%d,"dur":2}'
    yield (
        "gradients in steps",
        head + b",".join(gradient % (n % 99) + b"," + mark % (n, 1, n % 7) for n in range(count // 2)) + b"]}",
    )
    for name, part in (
        ("needles", b'"kernel" '),
        ("braces", b"{"),
        ("opened", b'{"a":['),
        ("broken", b'{"kernel" "ph"},'),
        ("brackets", b"[{"),
        ("quotes", b'"'),
        ("slashes", b"\\"),
        ("quoted", b'\\"'),
        ("blanks", b" "),
        ("breaks", b"\n"),
        ("odd", b'{"x},{"x'),
        ("open events", b'{"ph":"X","cat":"kernel","name":"a'),
        ("keys", b'{"traceEvents":'),
        ("parted", b"} , {"),
    ):
        yield f"nothing but {name}", head + filled(part, size)
        yield f"lines of {name}", head + b'\n  {\n    "ph": "X"\n  },\n' + filled(b"  {" + part + b"\n", size)
    yield "heads", b'{"schemaVersion":1,' + filled(b'"distributedInfo": ', size)
    yield "bases", b'{"schemaVersion":1,' + filled(b'"baseTimeNanoseconds"   ', size)
    yield "a head without end", b'{"schemaVersion":1,"distributedInfo":' + b"{" * size
    groups = b",".join(b'{"pg_name":"%d","ranks":[%b]}' % (n, b"0," * 50 + b"1") for n in range(size // 140))
    yield (
        "groups",
        b'{"schemaVersion":1,"distributedInfo":{"rank":0,"pg_config":[' + groups + b'],"world_size":2},"traceEvents":[]}',
    )
    yield (
        "names",
        head
        + b",".join(
            b'{"ph":"X","cat":"user_annotation","name":"nccl:%b%d","ts":1,"dur":2}' % (b"a" * 100, n)
            for n in range(size // 160)
        )
        + b"]}",
    )
    yield (
        "kernels by name",
        head
        + b",".join(
            b'{"ph":"X","cat":"kernel","name":"nccl%b","ts":1,"dur":2}' % (b"Kernel" * 2000) for _ in range(size // 12_050)
        )
        + b"]}",
    )


def samples() -> Sequence[Path]:
    return sorted(path for path in SAMPLES.rglob("*") if path.parent.name != "samples" and path.is_file())


def grown(size: int = SIZE) -> Iterator[tuple[str, str, bytes]]:
    """(name, file name, content): each sample with a part of itself over and over, and behind its head each kind of filling."""
    for path in samples():
        content = path.read_bytes()
        middle = content[len(content) // 3 : len(content) // 3 + 3000]
        yield f"{path.parent.name}/{path.name} grown", path.name, content[: len(content) // 2] + filled(middle or b"x", size)
        yield f"{path.parent.name}/{path.name} twice and again", path.name, filled(content or b"x", size)
        for part in (b"\0", b"\xff", b"[", b'{"', b"<a>", b" "):
            yield f"{path.parent.name}/{path.name} with {part!r}", path.name, content[:2000] + filled(part, size)


def documents(size: int = SIZE) -> Iterator[tuple[str, str, bytes]]:
    """(name, file name, content): JSON samples of which each list and dictionary in turn is a hundred times as long."""
    for path in samples():
        if path.suffix != ".json":
            continue
        try:
            document = json.loads(path.read_bytes())
        except ValueError:
            continue
        for place, larger in _widened(document, size):
            yield f"{path.parent.name}/{path.name} widened at {place}", path.name, json.dumps(larger).encode()[: 2 * size]


def _widened(document: object, size: int, place: str = "", depth: int = 3) -> Iterator[tuple[str, object]]:
    items: list[tuple[object, object]] = (
        list(document.items())
        if isinstance(document, dict)
        else list(enumerate(document))
        if isinstance(document, list)
        else []
    )
    if not items or depth == 0:
        return
    one = len(json.dumps(items[0][1])) + 12
    if isinstance(document, list):
        yield place, [items[0][1]] * (size // one)
    elif isinstance(document, dict):
        yield place, {**document, **{str(n): items[0][1] for n in range(size // one)}}
    for key, value in items[:8]:
        for inner, larger in _widened(value, size, f"{place}/{key}", depth - 1):
            copy = dict(items) if isinstance(document, dict) else [item for _, item in items]
            copy[key] = larger  # type: ignore[call-overload]
            yield inner, copy


def packed(size: int = SIZE) -> Iterator[tuple[str, str, bytes]]:
    """Archives and compressed files of 1 MB at most that hold far more."""
    zeros = b'{"schemaVersion":1,"traceEvents":[' + b" " * (200 * size)
    yield "gzip of blanks", "rank0.pt.trace.json.gz", gzip.compress(zeros, 9)
    import zstandard

    yield "zstd of blanks", "rank0.pt.trace.json.zst", zstandard.compress(zeros)
    stream = BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for number in range(size // 1024):
            archive.addfile(tarfile.TarInfo(f"ranks/{number}/a"), BytesIO())
    yield "tar of nothing", "bundle.tar", stream.getvalue()


Maker = Callable[[int], Iterator[tuple[str, bytes]]]
