"""Configuration of a training as a file: DeepSpeed's JSON, torchtitan's TOML, YAML of Accelerate, NeMo and Megatron.

Known by its content: names that no other file has, in a document of their form. Of YAML the lines `key: value` are
read, in their sections; anchors, lists and text over several lines are not.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from forensics.bundle.artefact import Artefact
from forensics.ingest._shared.content import from_first_character, parse_json, read_document
from forensics.ingest._shared.training_settings import TELLING, of_line, setting_batches, settings
from forensics.ingest.interface import Batch, Ingester, Item, Problem

_SURE = 70
MAX_BYTES = 1 << 20
MAX_DEPTH = 8
_YAML = re.compile(r"( {0,40})(?:- )?[\"']?([A-Za-z_][\w.-]{0,80})[\"']?:(?:[ \t]+([^#\n]{1,200}?))?[ \t]*(?:#.*)?")
_TOML = re.compile(r"\[{1,2}[\w.\"'-]+\]{1,2}|[\w.\"'-]+[ \t]*=[ \t]*\S.*|[\]}),].*|[ \t]+\S.*")
_JSON_KEY = re.compile(r'"([A-Za-z_]\w{3,60})"\s*:')
_COMMENT = ("#", ";")
_LEAST = 2


def sniff(head: bytes, path: str) -> int:
    """Mostly lines of one form, with a telling name among them; or a JSON object with one."""
    if b"\0" in head or not any(name.encode() in head for name in TELLING):
        return 0
    text = from_first_character(head).decode("utf-8", "replace")
    if text.startswith("{"):
        return _SURE if TELLING & set(_JSON_KEY.findall(text)) and not re.match(r'\{\s*"schema', text) else 0
    lines = [line for line in text.splitlines()[: -1 if len(head) >= 4096 else None] if _is_written(line)]
    forms = (_is_yaml(lines), _is_toml(lines))
    return _SURE if len(lines) >= _LEAST and any(forms) else 0


def _is_written(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith(_COMMENT) and line.strip() != "---"


def _is_yaml(lines: list[str]) -> bool:
    fitting = [said[2] for line in lines if (said := _YAML.fullmatch(line))]
    return 0.9 * len(lines) <= len(fitting) + sum(line.lstrip().startswith("- ") for line in lines) and _tells(fitting)


def _is_toml(lines: list[str]) -> bool:
    fitting = [line for line in lines if _TOML.fullmatch(line)]
    names = [line.partition("=")[0].strip().rpartition(".")[2] for line in fitting if "=" in line]
    return 0.9 * len(lines) <= len(fitting) and _tells(names)


def _tells(names: list[str]) -> bool:
    return any(name in TELLING for name in names)


def rows(artefact: Artefact) -> Iterator[Item]:
    """One row of `job_config` for each setting that is known."""
    content = read_document(artefact) if artefact.stored_bytes <= MAX_BYTES else Problem("too large", fatal=True)
    if isinstance(content, Problem):
        yield content
        return
    yield from read_settings(content)


def read_settings(content: bytes) -> Iterator[Batch | Problem]:
    """Settings of a file of any of the known forms, of a log, or of a script with the command that starts the training."""
    text = from_first_character(content).decode("utf-8", "replace")
    pairs: list[tuple[str, Any]] = []
    problem: Problem | None = None
    if text.startswith("{"):
        parsed = parse_json(content)
        problem = parsed if isinstance(parsed, Problem) else None
        pairs = [] if problem else list(_leaves(parsed))
    else:
        try:
            pairs = list(_leaves(tomllib.loads(text)))
        except (tomllib.TOMLDecodeError, RecursionError):
            pairs = [*_of_yaml(text), *(pair for line in text.splitlines() for pair in of_line(line[:4096]))]
    found = settings(pairs)
    yield from setting_batches(found, rank=None)
    if problem is not None:
        yield problem
    elif not found:
        yield Problem("no setting of a training that is known")
    for key, values in sorted(found.items()):
        if len(values) > 1:
            yield Problem(f"{key} has several values: {', '.join(values)}; none of them counts")


def _leaves(value: Any, name: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Values of nested objects by their dotted names."""
    if isinstance(value, dict) and depth < MAX_DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key), depth + 1)
    elif isinstance(value, (str, int, float)) and name:
        yield name, value


def _of_yaml(text: str) -> Iterator[tuple[str, str]]:
    """Values of lines `key: value` by the dotted names that their indentation gives them."""
    sections: list[tuple[int, str]] = []
    for line in text.splitlines():
        said = _YAML.fullmatch(line) if len(line) < 400 and _is_written(line) else None
        if said is None:
            continue
        indent = len(said[1])
        sections = [section for section in sections if section[0] < indent]
        if said[3] is None:
            sections.append((indent, said[2]))
        else:
            yield ".".join([*(section for _, section in sections), said[2]]), said[3]


INGESTER = Ingester("training_config", "training_config", sniff, rows, most=_SURE)
