"""Leave out the folders of a tracker of experiments whose run was over long before the newest one beside them began.

wandb keeps all runs of a directory, `wandb/run-20260311_060000-zz9kd`, each called by the local time of its start, and writes
how long a run took (`_runtime` of `files/wandb-summary.json`) again and again. Each rank of a job may track a run of its own:
these begin about together. Runs of another program are of no former start of this one.

Upstream: wandb/sdk/wandb_settings.py (`sync_dir`), wandb/sdk/internal of wandb/wandb.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from forensics.bundle.artefact import Artefact
from forensics.case.database import Connection
from forensics.case.other_runs import reject

_PATH = re.compile(
    r"(?P<base>.*?)(?P<run>(?:offline-)?run-(?P<start>\d{8}_\d{6})-[\w-]{1,64})/(?:files|logs)/(?P<file>[^/]{1,255})"
)
_SUMMARY, _METADATA = "wandb-summary.json", "wandb-metadata.json"
_MOST_BYTES = 1 << 22
_APART = timedelta(hours=1)
"""Ranks of one job begin within less, and a program that is started again at once continues it."""


class _Run(NamedTuple):
    """The folder of one run with its sources; `end` by what it wrote of itself, where it did."""

    folder: str
    start: datetime
    end: datetime | None
    program: object
    sources: list[int]


def leave_out_former_tracked_runs(connection: Connection, artefacts: Mapping[int, Artefact]) -> None:
    """Take the rows of such runs out of the case."""
    for runs in _beside_each_other(artefacts).values():
        newest = max(runs, key=lambda run: (run.start, run.folder))
        for run in runs:
            is_over = run.end is not None and run.end + _APART <= newest.start
            if is_over and run.program == newest.program:
                reject(connection, run.folder, run.sources, f"its run was over before that of {newest.folder} began")


def _beside_each_other(artefacts: Mapping[int, Artefact]) -> Mapping[str, list[_Run]]:
    files: dict[tuple[str, str, str], dict[str, int]] = defaultdict(dict)
    for source_id, artefact in artefacts.items():
        if found := _PATH.fullmatch(artefact.path):
            files[found["base"], found["run"], found["start"]][artefact.path] = source_id
    by_base: dict[str, list[_Run]] = defaultdict(list)
    for (base, run, start), sources in files.items() if len(files) > 1 else ():
        by_base[base] += _run(f"{base}{run}", start, sources, artefacts)
    return by_base


def _run(folder: str, started: str, sources: Mapping[str, int], artefacts: Mapping[int, Artefact]) -> Iterator[_Run]:
    said = {name: _document(artefacts.get(sources.get(f"{folder}/files/{name}", -1))) for name in (_SUMMARY, _METADATA)}
    took = said[_SUMMARY].get("_runtime")
    try:
        start = datetime.strptime(started, "%Y%m%d_%H%M%S")
        end = start + timedelta(seconds=float(took)) if isinstance(took, int | float) else None
    except (ValueError, OverflowError):
        return
    yield _Run(folder, start, end, said[_METADATA].get("program"), [*sources.values()])


def _document(artefact: Artefact | None) -> Mapping[str, Any]:
    """What such a file holds; nothing where it cannot be read."""
    if artefact is None or artefact.stored_bytes > _MOST_BYTES:
        return {}
    try:
        found = json.loads(artefact.begin(_MOST_BYTES))
    except (ValueError, OSError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
