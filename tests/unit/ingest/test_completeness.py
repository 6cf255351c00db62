from __future__ import annotations

from pathlib import Path

import pytest

from forensics.ingest import choose, discover
from forensics.ingest.interface import Ingester

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "fixtures" / "samples"


@pytest.mark.parametrize("ingester", discover(), ids=lambda ingester: ingester.name)
def test_every_ingester_has_samples_that_only_it_claims_and_a_page_that_names_it(ingester: Ingester) -> None:
    samples = [path for path in sorted((SAMPLES / ingester.name).glob("*")) if path.is_file()]
    assert samples
    for path in samples:
        assert choose(path.read_bytes()[:4096], path.name) is ingester, path
    page = "collection" if ingester.kind == "collection" else ingester.name.replace("_", "-")
    assert (ROOT / "docs/formats" / f"{page}.md").is_file()


def test_samples_name_no_machine() -> None:
    for path in SAMPLES.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert not [word for word in (b"/root/",) if word in content], path


@pytest.mark.parametrize("head", [b"", b"\0" * 4096, b"PK\x03\x04", b"<nvidia_smi_log>", b"[]", b"{}", b"\x80\x04K\x01."])
def test_other_content_is_left_alone(head: bytes) -> None:
    assert choose(head, "thing.dat") is None
