"""Statements without secrets: what a report quotes of evidence that was never redacted goes into tickets and mails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

from forensics.bundle.redaction import may_hold_secret, redact

Statements = TypeVar("Statements")
_PLAIN = frozenset({int, float, bool, type(None)})


def without_secrets(stated: Statements) -> Statements:
    """The same dataclass, tuple or text, with each text in it redacted; what holds no secret is the same object."""
    return cast(Statements, _cleaned(stated, cache(_text)))


def _text(text: str) -> str:
    kept = redact(text, Counter()) if may_hold_secret(text.lower()) else text
    return text if kept == text else kept


def _cleaned(value: Any, text: Callable[[str], str]) -> Any:
    """Members of enumerations are texts by type only and stay."""
    if type(value) is str:
        return text(value)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, tuple):
        kept = [_cleaned(each, text) for each in value]
        return value if all(one is other for one, other in zip(value, kept, strict=True)) else _as_before(value, kept)
    if is_dataclass(value) and not isinstance(value, type):
        cleaned = {field.name: _cleaned(getattr(value, field.name), text) for field in fields(value)}
        changed = {name: each for name, each in cleaned.items() if each is not getattr(value, name)}
        return replace(value, **changed) if changed else value
    return value


def _as_before(value: tuple[Any, ...], kept: list[Any]) -> tuple[Any, ...]:
    return type(value)(*kept) if hasattr(value, "_fields") else tuple(kept)
