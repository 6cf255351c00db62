"""XML of `nvidia-smi -q -x` as texts by path, GPU by GPU; bounded, and without anything that a DTD could make of it.

The document type names an external DTD, which is never loaded. Declarations inside the document are refused: nvidia-smi
writes none, and entities are how a small document becomes a large one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from forensics.bundle.artefact import Artefact
from forensics.ingest.interface import Problem

MAX_BYTES = 32 << 20
MAX_DEPTH = 24
MAX_GPUS = 1_024
MAX_TEXTS = 4_096
MAX_TEXT = 512
_CHUNK = 1 << 16
_LISTS = ("supported_clocks", "accounted_processes", "mig_devices")


@dataclass(slots=True)
class SmiProcess:
    """One `process_info`: texts by name, and the line where it begins."""

    line: int
    texts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class SmiGpu:
    """One `gpu` element: place (-1: not known), address, texts by path below it (`clocks/sm_clock`), processes."""

    index: int
    address: str
    line: int
    texts: dict[str, str] = field(default_factory=dict)
    processes: list[SmiProcess] = field(default_factory=list)


class RefusedError(Exception):
    """The document has what no output of nvidia-smi has."""


class _Builder:
    """Handlers of one parser; `done` holds the GPUs that are complete, `open` the one that is not."""

    def __init__(self) -> None:
        self.done: list[SmiGpu] = []
        self.open: SmiGpu | None = None
        self.process: SmiProcess | None = None
        self.path: list[str] = []
        self.text: list[str] = []
        self.count = 0
        self.parser = expat.ParserCreate()
        self.parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._declared
        self.parser.ExternalEntityRefHandler = self._external

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self.path.append(name[:MAX_TEXT])
        self.text.clear()
        if len(self.path) > MAX_DEPTH:
            raise RefusedError(f"nested more than {MAX_DEPTH} deep")
        if self.path == ["nvidia_smi_log", "gpu"]:
            if self.count == MAX_GPUS:
                raise RefusedError(f"more than {MAX_GPUS} GPUs")
            address = attributes.get("id", "")[:MAX_TEXT]
            self.open = SmiGpu(self.count, address, self.parser.CurrentLineNumber)
            self.count += 1
        elif self.open and self.path[2:] == ["processes", "process_info"]:
            self.process = SmiProcess(self.parser.CurrentLineNumber)

    def _characters(self, text: str) -> None:
        if self.open and len(self.text) < MAX_TEXT:
            self.text.append(text[:MAX_TEXT])

    def _end(self, name: str) -> None:
        text = "".join(self.text).strip()[:MAX_TEXT]
        self.text.clear()
        if self.open and text:
            self._keep(self.open, text)
        self.path.pop()
        if self.open and len(self.path) == 1:
            self.done.append(self.open)
            self.open = self.process = None
        elif self.open and self.process and self.path[2:] == ["processes"]:
            self.finish(self.open)

    def _keep(self, gpu: SmiGpu, text: str) -> None:
        if len(self.path) < 3 or self.path[2] in _LISTS:
            return
        texts = self.process.texts if self.process else gpu.texts
        key = "/".join(self.path[4:] if self.process else self.path[2:])
        if len(texts) < MAX_TEXTS:
            texts.setdefault(key, text)

    def finish(self, gpu: SmiGpu) -> None:
        """Keep the process that is open."""
        if self.process and len(gpu.processes) < MAX_TEXTS:
            gpu.processes.append(self.process)
        self.process = None

    def _doctype(self, name: str, system: str | None, public: str | None, internal: bool) -> None:
        if internal:
            raise RefusedError("declarations inside the document")

    def _declared(self, *declaration: object) -> None:
        raise RefusedError("an entity declaration")

    def _external(self, *reference: object) -> int:
        raise RefusedError("a reference to another document")


def read_gpus(artefact: Artefact) -> Iterator[SmiGpu | Problem]:
    """GPUs as they are complete; where the document ends early, the GPU it ends in as far as it goes, and a Problem."""
    builder = _Builder()
    problem: Problem | None = None
    for problem in _feed(artefact, builder):
        yield from builder.done
        builder.done.clear()
        if problem is not None:
            break
    if problem is not None:
        if builder.open is not None:
            builder.finish(builder.open)
            yield builder.open
        yield problem


def _feed(artefact: Artefact, builder: _Builder) -> Iterator[Problem | None]:
    """Give the parser a piece at a time; a Problem ends it."""
    size, said = 0, None
    try:
        with artefact.open() as stream:
            while (chunk := stream.read(_CHUNK)) and said is None:
                size += len(chunk)
                said = f"larger than {MAX_BYTES} bytes" if size > MAX_BYTES else _parse(builder, chunk, last=False)
                yield _problem(builder, said)
        if said is None:
            yield _problem(builder, _parse(builder, b"", last=True))
    except OSError as error:
        yield _problem(builder, f"cannot be read: {error}")


def _parse(builder: _Builder, chunk: bytes, *, last: bool) -> str | None:
    try:
        builder.parser.Parse(chunk, last)
    except RefusedError as error:
        return f"refused: {error}"
    except expat.ExpatError as error:
        return f"cut or damaged: {expat.ErrorString(error.code)}"
    return None


def _problem(builder: _Builder, said: str | None) -> Problem | None:
    if said is None:
        return None
    return Problem(f"{said}; read up to here", f"line={builder.parser.CurrentLineNumber}", fatal=builder.count == 0)
