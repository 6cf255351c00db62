"""The same evidence told again: pure functions from files to files that add nothing, or take something away."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from forensics.bundle.reader import open_bundle

Files = Mapping[str, bytes]
Retelling = Callable[[Files], dict[str, bytes]]

_STACK = re.compile(r"ranks/(\d+)/stacks/(child-\d+\.)?(\d+)\.json")
_DUMP = re.compile(r"ranks/(\d+)/fr/(\d+)\.json")
_LOG = re.compile(r"ranks/(\d+)/logs/(.+)")
_NATIVE_INSIDE = (
    ("futex_wait", "libc.so.6", 0),
    ("_PyEval_EvalFrameDefault", "python3.11", 0),
)
_NATIVE_OUTSIDE = (("Py_BytesMain", "python3.11", 0), ("__libc_start_main", "libc.so.6", 0), ("_start", "python3.11", 0))


def members(bundle: Path) -> dict[str, bytes]:
    """All members of a bundle by path."""
    found = {}
    for artefact in open_bundle([bundle]).artefacts:
        with artefact.open() as stream:
            found[artefact.path] = stream.read()
    return found


def handed_over(bundle: Files) -> dict[str, bytes]:
    """What a person hands over of a bundle: newest stacks and dump of each rank, and the logs, with nothing that dates them."""
    newest: dict[str, tuple[int, bytes]] = {}
    for path, content in bundle.items():
        if match := _STACK.fullmatch(path):
            name, number = f"rank{match[1]}.{(match[2] or '').replace('-', '')}stacks.json", int(match[3])
        elif match := _DUMP.fullmatch(path):
            name, number = f"rank{match[1]}.recorder.json", int(match[2])
        elif match := _LOG.fullmatch(path):
            name, number = f"rank{match[1]}/{match[2].rpartition('/')[2]}", 0
        else:
            continue
        newest[name] = max(newest.get(name, (-1, b"")), (number, content))
    return {name: content for name, (_, content) in newest.items()}


def is_stack(path: str) -> bool:
    return path.endswith("stacks.json")


def py_spy_text(content: bytes, *, full_paths: bool = False, native: bool = False) -> bytes:
    """A JSON dump of py-spy as `py-spy dump` prints it."""
    processes: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for thread in json.loads(content):
        processes[thread["pid"]].append(thread)
    lines: list[str] = []
    for pid, threads in processes.items():
        lines += [f"Process {pid}: python train.py", "Python v3.11.9 (/usr/bin/python3.11)", ""]
        for thread in threads:
            status = ("active" if thread["active"] else "idle") + ("+gil" if thread["owns_gil"] else "")
            number = thread["os_thread_id"] or hex(thread["thread_id"])
            title = f': "{thread["thread_name"]}"' if thread["thread_name"] else ""
            lines.append(f"Thread {number} ({status}){title}")
            frames = [_text_frame(frame, full_paths) for frame in thread["frames"]]
            inside, outside = ([_native_line(*entry) for entry in side] for side in (_NATIVE_INSIDE, _NATIVE_OUTSIDE))
            lines += [*inside, *frames, *outside] if native else frames
    return ("\n".join(lines) + "\n").encode()


def _text_frame(frame: Mapping[str, Any], full_paths: bool) -> str:
    file = frame["filename"] if full_paths else shortened(frame["filename"])
    return f"    {frame['name']} ({file}{':' + str(frame['line']) if frame['line'] else ''})"


def _native_line(name: str, file: str, line: int) -> str:
    return f"    {name} ({file}{f':{line}' if line else ''})"


def shortened(filename: str) -> str:
    """The path below the folder of `sys.path`, as py-spy shortens it."""
    for pattern in (r".*/(?:site|dist)-packages/", r".*/lib(?:64)?/python3[^/]*/", r".*/"):
        cut, count = re.subn("^" + pattern, "", filename, count=1)
        if count:
            return cut
    return filename


def py_spy_json(text: bytes) -> bytes:
    """Text of py-spy as JSON, as far as the text tells."""
    found: list[dict[str, Any]] = []
    pid = 0
    for line in text.decode().splitlines():
        if match := re.match(r"Process (\d+): ", line):
            pid = int(match[1])
        elif match := re.fullmatch(r'Thread (\S+) \((\w+)(\+gil)?\)(?:: "(.*)")?', line):
            number = None if match[1].startswith("0x") else int(match[1])
            head = {"pid": pid, "thread_id": 1, "os_thread_id": number, "thread_name": match[4]}
            found.append({**head, "active": match[2] == "active", "owns_gil": bool(match[3]), "frames": []})
        elif found and (match := re.fullmatch(r"    (.*) \((.*?)(?::(\d+))?\)", line)):
            found[-1]["frames"].append({"name": match[1], "filename": match[2], "line": int(match[3] or 0)})
    return json.dumps(found).encode()


def with_native_frames(content: bytes) -> bytes:
    """A JSON dump with native frames around those of Python."""
    threads = json.loads(content)
    for thread in threads:
        inside, outside = ([_native(*entry) for entry in side] for side in (_NATIVE_INSIDE, _NATIVE_OUTSIDE))
        thread["frames"] = [*inside, *thread["frames"], *outside]
    return json.dumps(threads).encode()


def _native(name: str, file: str, line: int) -> dict[str, Any]:
    return {"name": name, "filename": file, "module": f"/usr/lib/{file}", "short_filename": file, "line": line}


def upside_down(content: bytes) -> bytes:
    """A JSON dump whose frames begin with the outermost, with bare function names."""
    threads = json.loads(content)
    for thread in threads:
        bare = [frame | {"name": frame["name"].rpartition(".")[2]} for frame in thread["frames"]]
        thread["frames"] = bare[::-1]
    return json.dumps(threads).encode()


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
        if path.endswith(".json")
    }
    return {**files, **new}


def with_dumps_of_active_entries(files: Files) -> dict[str, bytes]:
    """Every dump again, as the recorder answers when it is asked for active entries only."""
    new = {path.replace(".recorder", ".active"): _active(files[path]) for path in files if path.endswith("recorder.json")}
    return {**files, **new}


def _active(content: bytes) -> bytes:
    dump = json.loads(content)
    dump["entries"] = [entry for entry in dump.get("entries", ()) if entry.get("state") not in ("completed", "done")]
    return json.dumps(dump).encode()


def with_merged_log(files: Files) -> dict[str, bytes]:
    """All logs once more, in one file."""
    return {**files, "all.log": b"".join(files[path] for path in sorted(files) if path.endswith((".log", ".err", ".out")))}


def with_file_of_another_job(files: Files) -> dict[str, bytes]:
    """The stacks of a rank of another job, under the name of one of this."""
    path = next((path for path in sorted(files) if is_stack(path)), None)
    if path is None:
        return dict(files)
    frames = [("fit", "/home/other/fit.py", 12), ("<module>", "/home/other/fit.py", 30)]
    listed = [{"name": name, "filename": file, "line": line} for name, file, line in frames]
    thread = {"pid": 99, "thread_id": 7, "thread_name": "MainThread", "os_thread_id": 99, "active": True, "owns_gil": False}
    return {**files, f"other/{path}": json.dumps([thread | {"frames": listed}]).encode()}


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
