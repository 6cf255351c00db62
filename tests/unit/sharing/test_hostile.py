"""Input made to hang, to confuse or to break the readers is rewritten or left out, in the time of ordinary input."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forensics.sharing.json_text import is_json, redact_json
from forensics.sharing.pseudonyms import Pseudonyms
from forensics.sharing.scrub import Scrub
from tests.unit.sharing.canaries import PASSWORD

HOSTS = Pseudonyms(frozenset({"hosts", "addresses", "paths"}))
HOSTS.know("hosts", ["gpu-1"])


def scrubbed(content: bytes, size: int = 1 << 16) -> bytes:
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    return b"".join(redact_json(chunks, Scrub(HOSTS, Counter())))


@pytest.mark.slow
@pytest.mark.parametrize(
    "content",
    [
        b'["' + b'\\"' * 1_500_000,
        b'["' + b'\\"' * 1_500_000 + b"\\",
        b"[" + b"-Infinity," * 100_000 + b"x",
        b'["' + b"gpu-" * 500_000 + b'"]',
        b"[" * 1_000_000,
        b'["' + b"/a" * 500_000 + b'"]',
        b'["' + b"a:" * 500_000 + b'"]',
        b'["' + b"1." * 500_000 + b'"]',
    ],
)
@pytest.mark.first(3)
def test_what_is_made_to_hang_ends(content: bytes) -> None:
    assert len(scrubbed(content)) >= len(content) // 20


@pytest.mark.parametrize("content", [b'{"a": 1', b'[{"x": "y"}]', b'{"a": "cut', b'\xef\xbb\xbf{"a": tru', b"[1, 2]"])
def test_documents_are_known(content: bytes) -> None:
    assert is_json(content)


@pytest.mark.parametrize("content", [b"[rank0]: step 1", b"[0] NCCL INFO", b"[12:30:01] 5", b"step", b"", b"{a}"])
def test_logs_are_no_documents(content: bytes) -> None:
    assert not is_json(content)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text('abc "\\/\n', max_size=6), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.integers(1, 40))
def test_a_document_without_secrets_keeps_its_bytes(value: object, ascii_only: bool, size: int) -> None:
    content = json.dumps(value, ensure_ascii=ascii_only).encode()
    quiet = Scrub(Pseudonyms(), Counter())
    chunks = (content[at : at + size] for at in range(0, len(content), size))
    made = b"".join(redact_json(chunks, quiet))
    assert made == content or quiet.counts  # whatever the drawing takes for a secret


@given(VALUES, st.integers(1, 40))
def test_a_secret_under_its_name_is_gone_wherever_it_stands(value: object, size: int) -> None:
    content = json.dumps([value, {"api_key": PASSWORD, "next": value}, value]).encode()
    found = json.loads(scrubbed(content, size))
    assert found[1]["api_key"] == "<redacted>" and PASSWORD.encode() not in scrubbed(content, size)
