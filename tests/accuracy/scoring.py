"""How an answer is scored against the truth of a fault."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tests.live.faults import Answer


class Score(StrEnum):
    """`EXACT`: those ranks and no others. `PARTIAL`: those and others. `WRONG`: none, or others only, or some of several."""

    EXACT = "exact"
    PARTIAL = "partial"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Row:
    """One fault: the sets of ranks that are right, and by analyser whom it named and what that is worth."""

    fault: str
    moves: bool
    dumps: int
    truth: tuple[tuple[int, ...], ...]
    named: Mapping[str, tuple[int, ...]]
    scores: Mapping[str, Score]
    remarks: Mapping[str, str]
    cause_and_stage: bool


def score(named: Collection[int], truth: Sequence[Collection[int]]) -> Score:
    """`truth` gives the sets that are right; more than one where the evidence cannot tell some ranks apart."""
    ranks, right = frozenset(named), [frozenset(one) for one in truth]
    if ranks in right:
        return Score.EXACT
    return Score.PARTIAL if any(one and one < ranks for one in right) else Score.WRONG


def is_explained(verdict: Mapping[str, Any], answer: Answer) -> bool:
    """Whether the first suspect's cause and stage, and the outcome, are those of the fault."""
    if verdict["outcome"] not in answer.outcomes:
        return False
    if not verdict["suspects"]:
        return not answer.causes
    first = verdict["suspects"][0]
    return first["cause"] in answer.causes and (not answer.stages or first["stage"]["name"] in answer.stages)
