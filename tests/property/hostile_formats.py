"""Files of 1 MB of the formats that are neither dumps nor traces, made to take a reader's time or memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from forensics.fixtures.simulator.writers.nic_epochs import packed
from tests.property import hostile_nsight
from tests.property.hostile import SAMPLES, SIZE, filled

File = tuple[str, str, str, bytes]
"""(name, ingester, file name, content)."""


def repeated(head: bytes, part: bytes, tail: bytes, size: int, parting: bytes = b"") -> bytes:
    """Head, the part with %d as its number over and over, and tail."""
    count = max(1, size // (len(part) + 4))
    return head + parting.join(part.replace(b"%d", b"%d" % number) for number in range(count)) + tail


def nvidia_smi(size: int = SIZE) -> Iterator[File]:
    head = b'<?xml version="1.0" ?>\n<nvidia_smi_log>'
    gpu = b'<gpu id="0:%d"><uuid>a</uuid><clocks><sm_clock>7 MHz</sm_clock></clocks></gpu>'
    for name, content in (
        ("gpus", repeated(head, gpu, b"", size)),
        ("empty gpus", repeated(head, b"<gpu/>", b"", size)),
        ("texts", repeated(head + b"<gpu>", b"<a%d>7</a%d>", b"", size)),
        ("processes", repeated(head + b"<gpu><processes>", b"<process_info><pid>%d</pid></process_info>", b"", size)),
        ("elements", head + b"<gpu>" + filled(b"<a/>", size)),
        ("attributes", repeated(head + b"<gpu ", b"a%d='' ", b">", size)),
        ("one text", head + b"<gpu><a>" + filled(b"&lt;", size)),
        ("one name", head + b"<gpu><" + b"a" * size + b">"),
        ("comments", head + filled(b"<!---->", size)),
        ("an open comment", head + b"<!--" + b"-" * size),
        ("an open name", head + b"<" + b"a" * size),
        ("depth", head + filled(b"<a>", size)),
        (
            "reasons",
            repeated(
                head + b"<gpu><clocks_event_reasons>", b"<clocks_event_reason_a%d>Active</clocks_event_reason_a%d>", b"", size
            ),
        ),
    ):
        yield f"nvidia-smi: {name}", "nvidia_smi", "smi.xml", content + b"</gpu></nvidia_smi_log>"


def stage_vectors(size: int = SIZE) -> Iterator[File]:
    from forensics.recorder import layout

    whole = (SAMPLES / "stage_vectors/rank_0.stages").read_bytes()
    yield "stages: sections", "stage_vectors", "rank_0.stages", filled(whole, size)
    empty = bytearray(whole[: layout.SLOTS_OFFSET])
    fields = list(layout.HEADER.unpack_from(whole))
    slot, one = fields[5], whole[layout.SLOTS_OFFSET :][: fields[5]]
    for most in (1, 2, 15, fields[6]):
        fields[5] = layout.slot_bytes(most)
        fields[6] = 0
        layout.HEADER.pack_into(empty, 0, *fields)
        yield f"stages: sections of {most} without slots", "stage_vectors", "rank_0.stages", filled(bytes(empty), size)
    for most in (1, 8):
        count = size // layout.slot_bytes(most)
        yield f"stages: slots of {most}", "stage_vectors", "rank_0.stages", slots(whole, most, count, layout)
    fields[5], fields[6] = slot, size // slot
    layout.HEADER.pack_into(empty, 0, *fields)
    yield "stages: one slot", "stage_vectors", "rank_0.stages", bytes(empty) + filled(one, size)


def slots(whole: bytes, most: int, count: int, layout: Any) -> bytes:
    """Small slots that are sound, each with another order of stages."""
    fields = list(layout.HEADER.unpack_from(whole))
    fields[5], fields[6] = layout.slot_bytes(most), count
    head = bytearray(whole[: layout.SLOTS_OFFSET])
    layout.HEADER.pack_into(head, 0, *fields)
    dice = np.random.default_rng(1)
    step = np.frombuffer(whole, np.uint8, layout.STEP.size, layout.SLOTS_OFFSET)
    span = np.frombuffer(whole, np.uint8, layout.SPAN.size, layout.SLOTS_OFFSET + layout.STEP.size)
    table = np.zeros((count, fields[5]), np.uint8)
    table[:, : layout.STEP.size] = step
    for place in range(most):
        at = layout.STEP.size + place * layout.SPAN.size
        table[:, at : at + layout.SPAN.size] = span
        table[:, at] = dice.integers(0, 8, count)
    serials = np.arange(1, count + 1, dtype="<u8")
    table[:, :8] = serials.view(np.uint8).reshape(-1, 8)
    table[:, -layout.TAIL.size :] = serials.view(np.uint8).reshape(-1, 8)
    return bytes(head) + table.tobytes()


def nic_epochs(size: int = SIZE) -> Iterator[File]:
    text: dict[str, Any] = {
        "host": "n1", "rank": 3, "nic": "mlx5_2", "epoch_ns": 32_000, "clock": "realtime", "first_epoch": 0, "epochs": 1 << 40,
        "lost": [], "queue_pairs": [{"number": 77}],
    }  # fmt: skip
    bytes_of = np.array([5], np.uint32)
    runs = [(0, 0, 2 * number, bytes_of) for number in range(size // 36)]
    lost = [[number, 1] for number in range(size // 12)]
    pairs = [{"number": number} for number in range(size // 18)]
    for name, content in (
        ("runs", packed(text, runs)),
        ("empty runs", packed(text, [(0, 0, number, bytes_of[:0]) for number in range(size // 32)])),
        ("the same run", packed(text, [(0, 0, 1, bytes_of)] * (size // 36))),
        ("one long run", packed(text, [(0, 0, 1, np.ones(size // 4, np.uint32))])),
        ("runs of the same values", overlapping(text, size)),
        ("losses", packed({**text, "lost": lost}, runs[:9])),
        ("losses and runs", packed({**text, "lost": lost[: len(lost) // 2]}, runs[: len(runs) // 2])),
        ("queue pairs", packed({**text, "queue_pairs": pairs}, runs[:9])),
    ):
        yield f"nic epochs: {name}", "nic_epochs", "0.epochs", content


def overlapping(text: dict[str, Any], size: int) -> bytes:
    """Runs that all point to the same long list of values."""
    from forensics.ingest.nic_epochs import layout

    content = packed(text, [(0, 0, 1, np.ones(size // 8, np.uint32))] + [(0, 0, 1, np.ones(1, np.uint32))] * (size // 72))
    head = np.frombuffer(content[:32], layout.HEAD).copy()
    begin = 32 + int(head["text_bytes"][0])
    count = int(head["runs"][0])
    table = np.frombuffer(content, layout.RUN, count, begin).copy()
    first = table[0].copy()
    table[:] = first
    end = begin + count * 32
    made = content[:begin] + table.tobytes() + content[end:]
    head["checksum"] = zlib.crc32(made[32:end], zlib.crc32(head.tobytes()[:28]))
    return head.tobytes() + made[32:]


def ras(size: int = SIZE) -> Iterator[File]:
    head = b'{"nccl_version":"2.30","communicators_count":1,"cuda_driver_version":1,"communicators":['
    rank = b'{"rank":%d,"collective_counts":{"AllReduce":%d}}'
    counts = b",".join(b'"a%d":1' % number for number in range(60))
    ranks = head + b'{"hash":"0x1","ranks":['
    other = b",".join(b'{"rank":%d,"collective_counts":{"k%d":1}}' % (n, n) for n in range(size // 50))
    for name, content in (
        ("communicators", repeated(head, b'{"hash":"0x%d"}', b"]}", size, b",")),
        ("nameless", repeated(head, b"{}", b"]}", size, b",")),
        ("ranks", repeated(ranks, rank, b"]}]}", size, b",")),
        ("small ranks", repeated(ranks, b'{"rank":%d}', b"]}]}", size, b",")),
        ("missing", repeated(head + b'{"hash":"0x1","missing_ranks":[', b"{}", b"]}]}", size, b",")),
        ("kinds", ranks + b'{"rank":1,"collective_counts":{' + counts + b"}}," + filled(b'{"rank":1},', size) + b"{}]}]}"),
        ("other kinds", ranks + other + b"]}]}"),
        ("no comma", head + filled(b'"nvml_dev": 1 "status"', size)),
        ("blanks", head + filled(b'"nvml_dev": 1' + b" " * 63, size)),
    ):
        yield f"ras: {name}", "nccl_ras", "ras.json", content


def stacks(size: int = SIZE) -> Iterator[File]:
    thread = b'{"pid":1,"thread_id":%d,"thread_name":"a","active":true,"owns_gil":false,"frames":[]}'
    frame = b'{"name":"f%d","filename":"a.py","line":%d}'
    head = b'[{"pid":1,"thread_id":1,"thread_name":"a","active":true,"owns_gil":false,"frames":['
    yield "py-spy: threads", "python_stacks", "rank0.0.json", repeated(b"[", thread, b"]", size, b",")
    yield "py-spy: small threads", "python_stacks", "rank0.0.json", repeated(b"[", b'{"frames":[]}', b"]", size, b",")
    yield "py-spy: nothings", "python_stacks", "rank0.0.json", repeated(b"[", b"{}", b"]", size, b",")
    yield "py-spy: frames", "python_stacks", "rank0.0.json", repeated(head, frame, b"]}]", size, b",")
    yield "py-spy: empty frames", "python_stacks", "rank0.0.json", repeated(head, b"{}", b"]}]", size, b",")
    for name, part in (
        ("threads", b'Thread %d (idle): "a"\n'),
        ("frames", b"    f%d (a.py:%d)\n"),
        ("faults", b"Thread 0x%d (most recent call first):\n"),
        ("files", b'  File "a", line 1 in f\n'),
        ("processes", b"Process %d: a\n"),
        ("small frames", b"    a (b:1)\n"),
    ):
        first = b'Process 1: a\nPython v3.11\n\nThread 1 (idle): "MainThread"\n    a (b.py:1)\n'
        yield f"stacks: {name}", "python_stacks_text", "stacks.txt", repeated(first, part, b"", size)


def line_records(size: int = SIZE) -> Iterator[File]:
    """Formats of which each line is a record."""
    call = b"[save_count 1] [%d.000000001] [Rank 0] Fun AllReduce Data 1 stream 0x1 opCount %d groupHash %d\n"
    yield "megatrace: calls", "megatrace_log", "rank_0.log", repeated(b"", call, b"", size)
    yield "megatrace: the same call", "megatrace_log", "rank_0.log", filled(call.replace(b"%d", b"1"), size)
    inspected = (SAMPLES / "nccl_inspector/handmade_node-1-pid7321.log").read_bytes().splitlines()[0]
    yield "inspector: lines", "nccl_inspector", "node-1-pid1.log", filled(inspected + b"\n", size)
    yield "inspector: no lines", "nccl_inspector", "node-1-pid1.log", inspected + b"\n" + filled(b"{}\n", size)
    header = b'{"header":{"id":"0x%d","rank":3,"n_ranks":8},"coll_perf":{"coll":"AllReduce","coll_sn":%d}}\n'
    yield "inspector: communicators", "nccl_inspector", "node-1-pid1.log", repeated(inspected + b"\n", header, b"", size)
    run = b'{"id":"a","status":"ok"}\n'
    yield "collectors: runs", "collector_runs", "collectors.jsonl", filled(run, size)
    yield "collectors: no runs", "collector_runs", "collectors.jsonl", filled(b"a\n", size)
    yield "collectors: empty", "collector_runs", "collectors.jsonl", b"\n" * size
    for name, part in (("ranks", b'"%d":{}'), ("statuses", b'"%d":{"a":"ok"}')):
        for key in ("ranks", "status", "node_status"):
            content = repeated(b'{"schema":"x","%b":{' % key.encode(), part, b"}}", size, b",")
            yield f"manifest: {name} in {key}", "bundle_manifest", "bundle.json", content
    listed = repeated(b'{"ranks":[', b'{"rank":%d}', b"]}", size, b",")
    yield "manifest: list", "bundle_manifest", "bundle.json", listed
    yield "manifest: warnings", "bundle_manifest", "bundle.json", repeated(b'{"warnings":[', b'"a"', b"]}", size, b",")


def shim_logs(size: int = SIZE) -> Iterator[File]:
    """The sample with numbers changed: what it says of its own sizes."""
    whole = (SAMPLES / "shim_log/one_of_everything.frx").read_bytes()
    dice = np.random.default_rng(1)
    for number in range(40):
        raw = np.frombuffer(whole.ljust(size, b"\1" if number % 2 else b"\0"), np.uint8).copy()
        for place in dice.integers(2048, len(whole), 60):
            raw[place] = dice.choice([0, 1, 0x7F, 0xFF])
        yield f"shim: changed {number}", "shim_log", "a.frx", raw.tobytes()
    yield from shim_sections(whole, size)


def shim_sections(whole: bytes, size: int) -> Iterator[File]:
    """Sections that say that they take all the file, each of them and one after the other."""
    from forensics.ingest.shim_log import layout

    for kinds in ([kind] for kind in range(1, 8)):
        raw = bytearray(whole.ljust(size, b"\0"))
        head = np.frombuffer(raw, layout.HEAD, 1).copy()
        for section in head["sections"][0]:
            if section["kind"] in kinds and section["entry_bytes"]:
                section["count"] = (size - int(section["offset"])) // int(section["entry_bytes"])
                part = bytes(raw[int(section["offset"]) :][: int(section["entry_bytes"])])
                raw[int(section["offset"]) :] = filled(part, size - int(section["offset"])).ljust(
                    size - int(section["offset"]), b"\0"
                )
        head["file_bytes"] = size
        head["checksum"] = 0
        raw[: layout.HEAD.itemsize] = head.tobytes()
        head["checksum"] = zlib.crc32(bytes(raw[: layout.HEAD.itemsize]))
        raw[: layout.HEAD.itemsize] = head.tobytes()
        yield f"shim: section {kinds}", "shim_log", "a.frx", bytes(raw)


MAKERS = (hostile_nsight.exports, nvidia_smi, stage_vectors, nic_epochs, ras, stacks, line_records, shim_logs)


def formats(size: int = SIZE) -> Iterator[File]:
    """Every file of every format here."""
    for make in MAKERS:
        yield from make(size)
