"""What the configuration of the training says: sizes of groups, microbatches, schedule (docs/formats/training-config.md)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from duckdb import DuckDBPyConnection

from forensics.rules.reductions.interface import reduction
from forensics.rules.reductions.pipeline.axes import Axis

SIZES = {
    Axis.TENSOR: "parallel.tensor",
    Axis.CONTEXT: "parallel.context",
    Axis.EXPERT: "parallel.expert",
    Axis.DATA: "parallel.data",
    Axis.PIPELINE: "parallel.pipeline",
}
"""Keys of the sizes of groups."""
_SETTINGS = """
SELECT key, value, confidence, min(path) FROM job_config LEFT JOIN sources USING (source_id)
WHERE regexp_matches(key, '^(parallel|pipeline|batch|model|data|tensor)\\.') AND value IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value and the artefact it was read from; `is_given` where the user named the file."""

    value: str
    source: str
    is_given: bool = False


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings by key; those of which files say different things are `disputed`, and have no value."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    disputed: Mapping[str, tuple[Setting, ...]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.settings)

    def text(self, key: str) -> str | None:
        """The value of a key."""
        found = self.settings.get(key)
        return found.value if found else None

    def number(self, key: str) -> int | None:
        """The value of a key that is a number above zero."""
        value = self.text(key) or ""
        return int(value) if value.isascii() and value.isdecimal() and int(value) > 0 else None

    def size(self, axis: Axis) -> int | None:
        """Ranks in one group of an axis."""
        return self.number(SIZES[axis]) if axis in SIZES else None


@reduction
def configuration(connection: DuckDBPyConnection) -> Configuration:
    """Read the settings of the training; a file that the user named counts before all that was found."""
    found: dict[str, list[Setting]] = defaultdict(list)
    for key, value, confidence, path in connection.execute(_SETTINGS).fetchall():
        found[key].append(Setting(value, path or "", confidence == "given"))
    chosen = {key: [each for each in values if each.is_given] or values for key, values in found.items()}
    return Configuration(
        {key: values[0] for key, values in chosen.items() if len({each.value for each in values}) == 1},
        {key: tuple(values) for key, values in chosen.items() if len({each.value for each in values}) > 1},
    )
