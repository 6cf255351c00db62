"""The same evidence stated again: pure functions from files to files that add nothing, or take something away."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from forensics.fixtures.field.pieces import evidence, newest
from forensics.fixtures.field.stacks import py_spy_json, py_spy_text, upside_down, with_native_frames
from forensics.fixtures.field.strangers import stack_of_another_job
from forensics.ingest.flight_recorder.document import read_dump

Files = Mapping[str, bytes]
Retelling = Callable[[Files], dict[str, bytes]]


def handed_over(bundle: Path) -> dict[str, bytes]:
    """What a person hands over of a bundle: newest stacks and dump of each rank, and the logs, with nothing that dates them."""
    found = {}
    for piece in newest(evidence(bundle).pieces):
        if piece.kind == "log":
            found[f"rank{piece.rank}/{piece.name}"] = piece.content
        elif piece.kind in ("stack", "child", "dump"):
            what = "recorder" if piece.kind == "dump" else "stacks"
            child = re.match(r"child-\d+\.", piece.name)
            found[f"rank{piece.rank}.{child[0].replace('-', '') if child else ''}{what}.json"] = piece.content
    return found


def is_stack(path: str) -> bool:
    return path.endswith("stacks.json")


def _added(change: Callable[[bytes], bytes], suffix: str) -> Retelling:
    """Files with another form of all stacks beside them."""

    def retold(files: Files) -> dict[str, bytes]:
        new = {path.removesuffix(".json") + suffix: change(content) for path, content in files.items() if is_stack(path)}
        return {**files, **new}

    return retold


def _replaced(change: Callable[[bytes], bytes], suffix: str) -> Retelling:
    """Files with all stacks in another form only."""

    def retold(files: Files) -> dict[str, bytes]:
        new = {path.removesuffix(".json") + suffix: change(content) for path, content in files.items() if is_stack(path)}
        return {**{path: content for path, content in files.items() if not is_stack(path)}, **new}

    return retold


def with_copies(files: Files) -> dict[str, bytes]:
    """Every file twice, the copies in a folder of their own."""
    return {**files, **{f"copy/{path}": content for path, content in files.items()}}


def with_renamed_copies(files: Files) -> dict[str, bytes]:
    """Every file of a rank again, under a name that counts."""
    return {**files, **{re.sub(r"^(rank\d+\.)", r"\1sample1.", path): content for path, content in files.items()}}


def with_reindented_copies(files: Files) -> dict[str, bytes]:
    """Every JSON file again, printed in another way."""
    new = {
        f"pretty/{path}": json.dumps(json.loads(content), indent=3).encode()
        for path, content in files.items()
        if path.endswith(".json") and not _is_pickle(content)
    }
    return {**files, **new}


def with_dumps_of_active_entries(files: Files) -> dict[str, bytes]:
    """Every dump again, as the recorder answers when it is asked for active entries only."""
    new = {path.replace(".recorder", ".active"): _active(files[path]) for path in files if path.endswith("recorder.json")}
    return {**files, **new}


def _is_pickle(content: bytes) -> bool:
    return content[:1] == b"\x80"


def _active(content: bytes) -> bytes:
    dump = read_dump(content)
    entries = [entry for entry in dump.entries if entry.get("state") not in ("completed", "done")]
    return json.dumps({**dump.values, "entries": entries}).encode()


def with_merged_log(files: Files) -> dict[str, bytes]:
    """All logs once more, in one file."""
    return {**files, "all.log": b"".join(files[path] for path in sorted(files) if path.endswith((".log", ".err", ".out")))}


def with_file_of_another_job(files: Files) -> dict[str, bytes]:
    """The stacks of a rank of another job, under the name of one of this."""
    path = next((path for path in sorted(files) if is_stack(path)), None)
    return dict(files) if path is None else {**files, f"other/{path}": stack_of_another_job()}


SAME_EVIDENCE: Mapping[str, Retelling] = {
    "text": _added(py_spy_text, ".txt"),
    "text with whole paths": _added(lambda content: py_spy_text(content, full_paths=True), ".full.txt"),
    "text with native frames": _added(lambda content: py_spy_text(content, native=True), ".native.txt"),
    "json of the text": _added(lambda content: py_spy_json(py_spy_text(content)), ".again.json"),
    "json with native frames": _added(with_native_frames, ".native.json"),
    "other line order": _added(upside_down, ".outermost.json"),
    "other indentation": _added(lambda content: re.sub(rb"(?m)^", b"\t", py_spy_text(content)), ".quoted.txt"),
    "all forms": lambda files: _added(lambda content: py_spy_text(content, native=True), ".native.txt")(
        _added(py_spy_text, ".txt")(files)
    ),
    "two texts in one file": _added(lambda content: py_spy_text(content) + py_spy_text(content, native=True), ".twice.txt"),
    "copies": with_copies,
    "renamed copies": with_renamed_copies,
    "reindented copies": with_reindented_copies,
    "dumps of active entries": with_dumps_of_active_entries,
    "merged log": with_merged_log,
    "file of another job": with_file_of_another_job,
}

SAME_FORM: Mapping[str, Retelling] = {
    "text": _replaced(py_spy_text, ".txt"),
    "text with native frames": _replaced(lambda content: py_spy_text(content, native=True), ".txt"),
    "other line order": _replaced(upside_down, ".json"),
}
