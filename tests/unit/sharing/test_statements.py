"""Reports of evidence that was never redacted: no secret in any form of them, and every other text as it was."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.ingest._shared.content import last_lines
from forensics.model import Evidence
from forensics.sharing.statements import without_secrets
from tests.recordings.collection import whole
from tests.recordings.commands import Command
from tests.recordings.job import Job
from tests.recordings.places import LOADER_QUEUE
from tests.unit.report.verdicts import HANG
from tests.unit.sharing.canaries import KEY_BODY, LINES, PASSWORD, PLANTED, PRIVATE_KEY, URL

FORMS = ("text", "json", "markdown", "html", "jsonl", "sarif", "svg")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hung job whose rank 2 printed secrets, and whose group has one in its name."""
    job = Job(4)
    job.steps(20)
    job.hang({2})
    collected = whole(job, {2: LOADER_QUEUE})
    collected.log(2, *LINES)
    folder = collected.write(tmp_path_factory.mktemp("raw") / "job")
    for dump in folder.glob("ranks/*/fr/*.json"):
        dump.write_bytes(dump.read_bytes().replace(b"default_pg", f"default {URL}".encode()))
    return folder


def leaked(shown: str) -> list[str]:
    return [canary for canary in PLANTED if canary in shown]


@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_report_has_a_secret(form: str, evidence: Path, forensics: Command) -> None:
    more = ("-v", "--why") if form in ("text", "markdown") else ()
    answer = forensics("diagnose", evidence, "--format", form, *more)
    assert answer.code == 0 and "rank" in answer.out
    assert leaked(answer.out) == []
    assert "redacted" in answer.out


def test_no_timeline_and_no_difference_has_a_secret(evidence: Path, forensics: Command, tmp_path: Path) -> None:
    assert forensics("timeline", evidence, "-o", tmp_path / "stall.json").code == 0
    assert leaked((tmp_path / "stall.json").read_text()) == []
    plain = tmp_path / "plain"
    (plain / "ranks/0/fr").mkdir(parents=True)
    (plain / "ranks/0/fr/0.json").write_bytes((evidence / "ranks/0/fr/0.json").read_bytes())
    answer = forensics("diff", plain, evidence)
    assert (answer.code, leaked(answer.out)) == (0, [])


def test_what_is_no_secret_stays_the_very_same_object() -> None:
    """Words of training that secrets are named by: tokens are counted, tokenizers have files, keys belong to dictionaries."""
    innocent = ("max_tokens=4096", "tokens: 12,345", "encode (tokenizer.py:35)", "cache_key=None", "a rank with secrets: none")
    verdict = replace(HANG, leads=innocent, last_lines=tuple(Evidence(each, "rank0.log#line=1", True) for each in innocent))
    assert without_secrets(verdict) is verdict
    assert without_secrets(replace(verdict, summary=f"password={PASSWORD}")).summary == "password=<redacted>"
    assert without_secrets(replace(verdict, summary=f"password={PASSWORD}")).leads is verdict.leads


def test_a_key_is_known_by_marks_that_are_not_among_the_last_lines(tmp_path: Path) -> None:
    """The log was cut inside of the key, whose first line stands above the lines that are kept."""
    cut = PRIVATE_KEY.rpartition("\n")[0] + f"\n{KEY_BODY}" * 12
    (tmp_path / "rank0.log").write_text(f"step 1\n{cut}\n")
    (artefact,) = open_bundle([tmp_path / "rank0.log"]).artefacts
    assert set(last_lines(artefact, 5)) == {"<redacted>"}
