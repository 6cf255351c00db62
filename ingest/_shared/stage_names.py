"""Names that trainers, frameworks and profilers give to parts of a step, as stages (patterns in stage_names.toml)."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

NAMES_VARIABLE = "FORENSICS_STAGE_NAMES"
"""Environment variable with a TOML file whose patterns come before the built-in ones."""
STAGES = ("data", "forward", "backward", "callbacks", "optimizer", "checkpoint", "eval", "other")
_OWN = Path(__file__).with_name("stage_names.toml")


@dataclass(frozen=True, slots=True)
class StageNames:
    """Compiled patterns: marks of a step, names that are no stage, and those of each stage in their order."""

    step: re.Pattern[str]
    none: re.Pattern[str]
    stages: tuple[tuple[str, re.Pattern[str]], ...]

    def is_step(self, name: str) -> bool:
        """Whether an annotation marks a whole step."""
        return bool(self.step.search(name))

    def stage(self, name: str) -> str | None:
        """The stage that a name stands for, None when it is none that is known."""
        if self.none.search(name):
            return None
        return next((stage for stage, pattern in self.stages if pattern.search(name)), None)


@cache
def stage_names() -> StageNames:
    """The patterns in force; a file that cannot be read is left out, and `problem` says so."""
    documents = [document for document in (_document(os.environ.get(NAMES_VARIABLE)), _document(str(_OWN))) if document]
    stages = [(stage, patterns) for document in documents for stage, patterns in document.get("stages", {}).items()]
    known = [(stage, patterns) for stage, patterns in stages if stage in STAGES]
    return StageNames(
        _joined(pattern for document in documents for pattern in document.get("step", [])),
        _joined(pattern for document in documents for pattern in document.get("none", [])),
        tuple((stage, _joined(patterns)) for stage, patterns in known),
    )


def problem() -> str | None:
    """Why the user's own file of names is not used, None when it is or there is none."""
    path = os.environ.get(NAMES_VARIABLE)
    return f"stage names of {path} are not used: it is no TOML file of patterns" if path and not _document(path) else None


@lru_cache(maxsize=65536)
def stage_of(name: str) -> str | None:
    """`StageNames.stage` of the patterns in force, remembered: a trace repeats its names."""
    return stage_names().stage(bare_name(name))


def bare_name(name: str) -> str:
    """The name without what frameworks and people put around it: `[pl][profile]`, `## ... ##`, the number of an operator."""
    return name[:200].replace("[pl][profile]", "").partition(", op_id")[0].strip("# ")


def schema_hash(names: Iterable[str]) -> str:
    """A short name of an ordered list of stages."""
    return sha256("\n".join(names).encode()).hexdigest()[:12]


def is_plain(name: str, stage: str) -> bool:
    """Whether a name says no more than its stage (`data`, `data.next_wait`, `model.backward_cpu_wall`)."""
    bare = re.sub(r"^(model|step|optim)\.|(\.|_)?cpu_wall$", "", name.lower())
    return bare in _PLAIN.get(stage, ()) or bare == stage


_PLAIN = {
    "data": ("data.next_wait", "next_wait"),
    "forward": ("fwd", "fwd_loss"),
    "backward": ("bwd",),
    "callbacks": ("callback",),
    "optimizer": ("optim", "step", "optim.step"),
}


@cache
def _document(path: str | None) -> dict[str, Any] | None:
    try:
        document = tomllib.loads(Path(path).read_text(encoding="utf-8")) if path else {}
        groups: list[Sequence[str]] = [document.get("step", []), document.get("none", []), *document.get("stages", {}).values()]
        for patterns in groups:
            _joined(patterns)
    except (OSError, ValueError, TypeError, AttributeError, re.error):
        return None
    return document or None


def _joined(patterns: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns) or r"(?!)", re.IGNORECASE)
