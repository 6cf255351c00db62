"""The same evidence stated again changes nothing, and evidence that is taken away names nobody else (ADR 14).

What is handed over is made of recorded bundles: the newest stacks and dump of each rank and its logs, as loose files that
nothing dates. Each retelling of tests/recordings/retellings.py is one more way in which people hand over the same.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from forensics.fixtures.field.stacks import py_spy_text
from forensics.model import Confidence, Outcome, Verdict
from tests.recordings.collection import Collection, write
from tests.recordings.hang import CULPRIT, collected
from tests.recordings.places import ALL_REDUCE, FORWARD, HOST_CODE
from tests.recordings.retellings import SAME_EVIDENCE, SAME_FORM, Files, handed_over, is_stack
from tests.recordings.verdicts import named, verdict_of

ROOT = Path(__file__).parents[2]
SECONDS = 10**9


@cache
def scenario(name: str) -> dict[str, bytes]:
    """What is handed over of a recorded bundle."""
    return handed_over(ROOT / f"fixtures/scenarios/{name}/bundle.tar.zst")


def recorded() -> list[str]:
    """Scenarios with stacks or dumps to hand over."""
    folders = sorted(path.parent.name for path in (ROOT / "fixtures/scenarios").glob("*/expected.json"))
    return [name for name in folders if any(is_stack(path) or "recorder" in path for path in scenario(name))]


# A few that differ in what they have: stacks alone, a busy and a waiting culprit, children, a job that moves.
USUAL = ("job-moving", "host-busy", "dataloader-stalled", "dataloader-without-recorder", "checkpoint-stalled")
OFTEN = ("text", "text with native frames", "json with native frames", "two texts in one file", "renamed copies")


def marks(name: str, how: str) -> tuple[pytest.MarkDecorator, ...]:
    """Each form of the evidence of one scenario in every run; all forms of the few in the slow one."""
    if name not in USUAL or how not in OFTEN:
        return (pytest.mark.deep,)
    return () if USUAL.index(name) == OFTEN.index(how) else (pytest.mark.slow,)


PAIRS = [pytest.param(name, how, marks=marks(name, how), id=f"{name}-{how}") for name in recorded() for how in SAME_EVIDENCE]


def judged(files: Files, folder: Path, dates: Mapping[str, int] | None = None) -> Verdict:
    """The verdict on files of one date, or of the dates (seconds) that are given."""
    write(folder, files)
    for path in files:
        at = 1_700_000_000 + (dates or {}).get(path, 0)
        os.utime(folder / path, (at, at))
    return verdict_of(folder)


def answer(verdict: Verdict) -> tuple[Outcome, list[tuple[object, ...]]]:
    return verdict.outcome, [(suspect.ranks, suspect.cause) for suspect in verdict.suspects]


def strength(verdict: Verdict) -> list[int]:
    order = tuple(Confidence)
    return [-order.index(suspect.confidence) for suspect in verdict.suspects]


@cache
def plain(name: str, folder: Path) -> Verdict:
    return judged(scenario(name), folder)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("handed-over")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "how"), PAIRS)
def test_the_same_stated_again_changes_nothing(name: str, how: str, place: Path, tmp_path: Path) -> None:
    usual = plain(name, place / name)
    found = judged(SAME_EVIDENCE[how](scenario(name)), tmp_path)
    assert answer(found) == answer(usual), (usual.summary, found.summary)
    assert all(now <= before for now, before in zip(strength(found), strength(usual), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n in USUAL[:2] else pytest.param(n, marks=pytest.mark.deep) for n in recorded()])
def test_another_form_beside_a_bundle_changes_nothing(name: str, tmp_path: Path) -> None:
    """The bundle proves its moments; what lies beside it without a time only repeats one of them."""
    bundle = ROOT / f"fixtures/scenarios/{name}/bundle.tar.zst"
    forms = {f"{path}.txt": py_spy_text(body) for path, body in scenario(name).items() if is_stack(path)}
    usual = verdict_of(bundle)
    found = verdict_of(bundle, write(tmp_path / "beside", forms)) if forms else usual
    assert answer(found) == answer(usual)
    assert strength(found) == strength(usual)


@pytest.mark.parametrize("name", [n if n in USUAL[:2] else pytest.param(n, marks=pytest.mark.deep) for n in recorded()])
def test_dates_of_files_do_not_change_one_moment(name: str, place: Path, tmp_path: Path) -> None:
    """Copies and other forms with dates of their own repeat what is there: only contents that differ make a date tell."""
    files = SAME_EVIDENCE["text"](scenario(name))
    found = judged(files, tmp_path, {path: 600 * (path.endswith(".txt")) for path in files})
    assert answer(found) == answer(plain(name, place / name))


# A rank whose only stack is lost and that has no dump is taken for the silent rank that its peers wait for.
SILENT = ("group-not-created", "microbatch-left-out")


def removals() -> Iterator[object]:
    for name in recorded():
        known = pytest.mark.xfail(reason="a rank of which nothing is left is accused for its silence", strict=True)
        usual = (pytest.mark.slow,) if name in USUAL[2:3] else (pytest.mark.deep,)
        yield pytest.param(name, 1, marks=(*usual, known) if name in SILENT else usual, id=name)
    yield pytest.param(USUAL[2], 5, id="a few")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "every"), list(removals()))
def test_a_source_that_is_taken_away_names_nobody_else(name: str, every: int, place: Path, tmp_path: Path) -> None:
    files = scenario(name)
    expected = json.loads((ROOT / f"fixtures/scenarios/{name}/expected.json").read_text())
    right = {rank for suspect in expected["suspects"] for rank in suspect["ranks"]}
    usual = plain(name, place / name)
    if not named(usual) or not named(usual) <= right:
        pytest.skip("the loose files do not name the right rank")
    for number, lost in enumerate(sorted(files)[::every]):
        found = judged({path: body for path, body in files.items() if path != lost}, tmp_path / str(number))
        wrong = [s for s in found.suspects if not set(s.ranks) <= right and s.members != "one_of"]
        assert not wrong, (lost, found.summary)


@pytest.mark.parametrize("how", SAME_FORM)
@pytest.mark.parametrize(
    "name",
    [n if n in USUAL[:1] else pytest.param(n, marks=pytest.mark.slow if n in USUAL else pytest.mark.deep) for n in recorded()],
)
def test_the_form_itself_does_not_matter(name: str, how: str, place: Path, tmp_path: Path) -> None:
    usual = plain(name, place / name)
    found = judged(SAME_FORM[how](scenario(name)), tmp_path)
    assert (answer(found), strength(found)) == (answer(usual), strength(usual))


def sampled(first: Files, second: Files, apart: int, folder: Path) -> Verdict:
    """Two rounds of stacks as loose files, the second so many seconds after the first by their dates."""
    later = {path.replace(".stacks", ".later.stacks"): body for path, body in second.items()}
    return judged({**first, **later}, folder, dict.fromkeys(later, apart))


def round_of(*places: object) -> dict[str, bytes]:
    found = Collection(len(places), 0)
    for rank, at in enumerate(places):
        found.stacks(rank, at)  # type: ignore[arg-type]
    return {f"rank{path.split('/')[1]}.stacks.json": body for path, body in found.members.items()}


def test_contents_that_differ_at_dates_far_apart_are_two_moments(tmp_path: Path) -> None:
    one, two = round_of(ALL_REDUCE, FORWARD), round_of(FORWARD, ALL_REDUCE)
    assert "it moves" in sampled(one, two, 120, tmp_path / "apart").summary
    assert "it moves" not in sampled(one, two, 2, tmp_path / "together").summary


@pytest.mark.parametrize(
    "how", [how if how in OFTEN[:2] else pytest.param(how, marks=pytest.mark.slow) for how in SAME_EVIDENCE]
)
def test_one_moment_in_any_form_is_never_healthy_and_proves_no_standstill(how: str, tmp_path: Path) -> None:
    files = round_of(ALL_REDUCE, ALL_REDUCE, HOST_CODE)
    once = judged(files, tmp_path / "once")
    found = judged(SAME_EVIDENCE[how](files), tmp_path / "again")
    assert found.outcome is not Outcome.HEALTHY
    assert strength(found) <= strength(once)


def test_stacks_with_times_above_them_in_one_file_are_moments(tmp_path: Path) -> None:
    stacks = round_of(ALL_REDUCE, ALL_REDUCE, HOST_CODE)
    times = (b"== 2026-05-05T12:00:00Z ==\n", b"== 2026-05-05T12:00:30Z ==\n")
    stated = {path: b"".join(time + py_spy_text(body) for time in times) for path, body in stacks.items()}
    found = judged({path.replace("stacks.json", "txt"): body for path, body in stated.items()}, tmp_path)
    assert named(found) == {2}
    assert "3 ranks stayed at the same place" in " ".join(str(row) for row in found.ruled_out) + found.summary


def test_proven_moments_still_prove_that_a_job_stands(tmp_path: Path) -> None:
    verdict = verdict_of(write(tmp_path, collected().finished()))
    assert named(verdict) == {CULPRIT}
    assert verdict.suspects[0].confidence is Confidence.CONFIRMED
