"""The analysers that are compared: each is given the dumps of one job and names ranks."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from forensics.report import json as json_report
from tests.accuracy import in_rank_order
from tests.accuracy.dumps import PREFIX, Dump, Members, write_pickles
from tests.recordings.verdicts import verdict_of

LIMIT_S = 180.0
_MISSING = re.compile(r"missing ranks: \{([\d, ]+)\}")
_CULPRIT = re.compile(r"Culprit rank (\d+);")
_NO_DUMP = re.compile(r"missed FR dumps from ranks \(\{([\d, ]+)\}\)")


@dataclass(frozen=True, slots=True)
class Named:
    """The ranks that an analyser names, and a word on how it ended when that was not ordinary."""

    ranks: frozenset[int]
    remark: str = ""


def forensics_on_bundle(bundle: Path) -> tuple[Named, dict[str, Any]]:
    """Everything that was collected, and the verdict that says more than ranks."""
    verdict = diagnose(bundle)
    return Named(_suspected(verdict)), verdict


def forensics_on_dumps(dumps: Mapping[int, Dump]) -> Named:
    """The very files that the other analysers get, and nothing else."""
    if not dumps:
        return Named(frozenset(), "no dump")
    with tempfile.TemporaryDirectory() as name:
        write_pickles(dumps, Path(name))
        return Named(_suspected(diagnose(Path(name))))


def diagnose(path: Path) -> dict[str, Any]:
    """The verdict on a bundle or a folder, schema `forensics.verdict/1`."""
    verdict: dict[str, Any] = json.loads(json_report.render(verdict_of(path)))
    return verdict


def _suspected(verdict: Mapping[str, Any]) -> frozenset[int]:
    """All ranks of all suspects, alternatives included."""
    return frozenset(rank for suspect in verdict["suspects"] for rank in suspect["ranks"])


def torchfrtrace(dumps: Mapping[int, Dump]) -> Named:
    """What PyTorch's analyser prints: ranks that miss a collective, culprits of a mismatch, and ranks without a dump."""
    if not dumps:
        return Named(frozenset(), "no dump")
    with tempfile.TemporaryDirectory() as name:
        write_pickles(dumps, Path(name))
        printed = Path(name) / "printed"
        # A fork has torch loaded already, which takes longer than the analysis.
        run = get_context("fork").Process(target=in_rank_order.main, args=(name, PREFIX, str(printed)))
        run.start()
        run.join(LIMIT_S)
        if run.exitcode is None:
            run.kill()
            run.join()
            return Named(frozenset(), "no end")
        return Named(printed_ranks(printed.read_text()), f"stopped with code {run.exitcode}" if run.exitcode else "")


def printed_ranks(text: str) -> frozenset[int]:
    """The ranks in what torchfrtrace prints."""
    lists = [*_MISSING.findall(text), *_NO_DUMP.findall(text), *_CULPRIT.findall(text)]
    return frozenset(int(rank) for ranks in lists for rank in ranks.split(","))


def missing_rank_rule(dumps: Mapping[int, Dump], groups: Members) -> Named:
    """The rule of nvidia-resiliency-ext (fr_attribution.py at commit d8686d9), written from its description.

    Of every group in which somebody waits: the members without a pending operation, and the members that issued fewer
    operations than the furthest of those who wait. Windows of one group are taken together.
    """
    if not dumps:
        return Named(frozenset(), "no dump")
    waiting: dict[str, set[int]] = {}
    issued: dict[tuple[str, int], int] = {}
    for rank, dump in dumps.items():
        for entry in dump["entries"]:
            name = entry["process_group"][0]
            issued[name, rank] = dump["pg_status"][str(entry["pg_id"])]["last_enqueued_collective"]
            if entry["state"] == "scheduled":
                waiting.setdefault(name, set()).add(rank)
    missing: set[int] = set()
    for name, ranks in waiting.items():
        furthest = max(issued[name, rank] for rank in ranks)
        behind = {rank for rank in groups[name] if issued.get((name, rank), furthest) < furthest}
        missing |= (groups[name] - ranks) | behind
    return Named(frozenset(missing))
