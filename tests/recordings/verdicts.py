"""The whole pipeline in one call, and the parts of a verdict that tests compare."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from forensics.case.build import open_case
from forensics.model import Confidence, Suspect, Verdict
from forensics.rules.diagnosis import diagnose


def verdict_of(*paths: Path) -> Verdict:
    """Bundle, folder or files in, verdict out."""
    connection = open_case(list(paths))
    try:
        verdict = diagnose(connection)
    finally:
        connection.close()
    assert not [label for label in verdict.labels if label.label == "rule_failed"]
    return verdict


def pasted(folder: Path, text: str) -> Verdict:
    """The verdict on one log without anything else."""
    (folder / "job.log").write_text(text)
    return verdict_of(folder)


def unnamed(folder: Path, files: Mapping[str, str]) -> Verdict:
    """The verdict on these files, by name, which accuses nobody."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    verdict = verdict_of(folder)
    assert not verdict.suspects
    return verdict


def named(verdict: Verdict) -> set[int]:
    """All ranks under any suspicion."""
    return {rank for suspect in verdict.suspects for rank in suspect.ranks}


def blamed(verdict: Verdict) -> set[int]:
    """Ranks that are named with more confidence than a mere suspicion."""
    sure = [suspect for suspect in verdict.suspects if suspect.confidence is not Confidence.SUSPECT]
    return {rank for suspect in sure for rank in suspect.ranks}


def leaders(verdict: Verdict) -> list[Suspect]:
    """The best explanation of each fault, best fault first."""
    return list({suspect.fault: suspect for suspect in reversed(verdict.suspects)}.values())[::-1]


def victims(verdict: Verdict) -> dict[int, tuple[int, ...]]:
    """Whom each victim waits for."""
    return {rank: row.waits_for for row in verdict.victims for rank in row.ranks}


def stated(verdict: Verdict) -> str:
    """All evidence of the first suspect as one text."""
    return "\n".join(line.statement for line in verdict.suspects[0].evidence) if verdict.suspects else ""


def warned(verdict: Verdict) -> dict[str, list[str]]:
    """Warnings by the file they are about."""
    found: dict[str, list[str]] = {}
    for warning in verdict.warnings:
        found.setdefault((warning.source or "").partition("#")[0], []).append(warning.statement)
    return found
