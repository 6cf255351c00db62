"""What a rule is: a module `rules/<family>/<slug>.py` with a `RULE`, and its page `<slug>.md` beside it.

There is no list to edit: the engine finds every module of every family folder. A rule is two pure functions whose parameters
are types of reductions (`forensics.rules.reductions.interface`); it returns findings about roots, victims or confirmations, and
leaves the ranking to arbitration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from forensics.model import Finding

Thresholds = NewType("Thresholds", Mapping[str, float])
"""Thresholds of the rule that asks for them, by name."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A number a rule depends on: default and the reason for it; `[rules.CODE] name = value` in a TOML overrides it.

    `supplies` is the type under which reductions may ask for it too.
    """

    name: str
    default: float
    reason: str
    supplies: Callable[[float], object] | None = None


class Undecided(str):
    """Why a rule could not judge: the evidence would not have shown the fault, had it been there."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Need:
    """Evidence without which the rule cannot speak: the type of a reduction that must not be empty, and the word for it."""

    evidence: Callable[..., object]
    kind: str
    why: str


class Maturity(StrEnum):
    """How far a rule is proven: only what a stable one says may be `confirmed`.

    A stable rule has a scenario, tests with look-alikes on which it must not fire, and an exam in which it was right;
    `tests/unit/rules/test_maturity.py` lists them.
    """

    STABLE = "stable"
    INCUBATING = "incubating"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule's identity and contract.

    `evaluate` yields findings of the reductions, and of the `Thresholds`, that its parameters ask for. When it yields none,
    `clears` says what was checked and found in order; None, or why as `Undecided`, when the evidence would not have shown the
    fault, had it been there. A new rule is incubating.
    """

    code: str
    name: str
    seed: str
    needs: tuple[Need, ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    concludes: str
    evaluate: Callable[..., Iterable[Finding]]
    clears: Callable[..., str | None]
    maturity: Maturity = Maturity.INCUBATING
