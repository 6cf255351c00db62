"""Cleaning values of unknown origin: what is not of the expected type or range becomes None, never an error."""

from __future__ import annotations

from typing import Any

_INT64 = 1 << 63


def integer(value: Any) -> int | None:
    """An int64 from an int, an integral float or a decimal string; JSON dumps write numbers as strings in places."""
    if type(value) is int:
        return value if -_INT64 <= value < _INT64 else None
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return int(value)
    if isinstance(value, str) and len(value) <= 20:
        digits = value.strip().removeprefix("-")
        if digits.isdecimal() and digits.isascii():
            return integer(int(value))
    return None


def positive(value: Any) -> int | None:
    """An int64 above zero: counters and times for which 0 means absent."""
    number = integer(value)
    return number if number is not None and number > 0 else None


def rank_number(value: Any) -> int | None:
    """A global rank: small and not negative."""
    number = integer(value)
    return number if number is not None and 0 <= number < 10_000_000 else None


def text(value: Any) -> str | None:
    """A string as it is, an integer as its digits."""
    if isinstance(value, str):
        return value
    number = integer(value)
    return None if number is None or isinstance(value, bool) else str(number)


def boolean(value: Any) -> bool | None:
    """A JSON or pickle boolean."""
    return value if isinstance(value, bool) else None


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; anything else in it is left out."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, (list, tuple)) else []


def strings(value: Any) -> list[str]:
    """The strings of a list; anything else in it is left out."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []
