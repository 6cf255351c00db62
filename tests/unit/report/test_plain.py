from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.report.plain import brief, plain

INVISIBLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("\x1b[2J\x1b[31mall fine", "\\x1b[2J\\x1b[31mall fine"),
        ("a\nHEALTHY\r\tb", "a\\nHEALTHY\\r\\tb"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("read\udc80", "read\\udc80"),
        ("[nccl:all_reduce] größe 計算", "[nccl:all_reduce] größe 計算"),
    ],
)
def test_what_cannot_be_seen_becomes_visible(raw: str, shown: str) -> None:
    assert plain(raw) == shown


@given(st.text())
def test_nothing_invisible_is_left(raw: str) -> None:
    assert not {unicodedata.category(char) for char in plain(raw)} & INVISIBLE


@given(st.text(), st.integers(4, 60))
def test_brief_keeps_its_limit(raw: str, limit: int) -> None:
    assert len(brief(raw, limit)) <= limit
