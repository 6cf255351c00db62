"""The comparison with other analysers, without a live job: repairs, the rule, what torchfrtrace prints, scores, the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.accuracy import page
from tests.accuracy.analysers import missing_rank_rule, printed_ranks
from tests.accuracy.dumps import STRANGER, latest, members, repaired
from tests.accuracy.scoring import Row, Score, score
from tests.recordings.hang import CULPRIT, collected, hung
from tests.recordings.job import Job, as_json

KNOWN = ("all_reduce", "broadcast", "barrier")
EVERYBODY = {"0": frozenset(range(4))}


def raw(job: Job) -> dict[int, bytes]:
    return {rank: as_json(job.dump(rank)) for rank in range(job.world)}


def test_a_repaired_dump_names_its_groups_and_what_is_done() -> None:
    dump = repaired(raw(hung()), EVERYBODY, KNOWN)[0]
    assert dump["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3]"}}
    assert [entry["state"] for entry in dump["entries"]] == ["completed"] * 12 + ["scheduled"]
    assert dump["entries"][0]["process_group"] == ("0", "default_pg")
    assert dump["pg_status"]["0"]["last_enqueued_collective"] == 13
    assert dump["pg_status"]["0"]["last_completed_collective"] == 12


def test_what_torchfrtrace_does_not_know_stays_different() -> None:
    job = Job(2)
    job.call(job.everyone, "sparse_all_reduce", shapes=())
    (entry,) = repaired(raw(job), {"0": frozenset((0, 1))}, KNOWN)[0]["entries"]
    assert entry["profiling_name"] == f"gloo:{STRANGER}"
    assert entry["input_sizes"] == [[]]


def test_the_last_dump_of_each_rank_and_the_members_come_from_the_bundle(tmp_path: Path) -> None:
    found = collected()
    found.dump(hung(steps=20), 0, 1)
    bundle = found.tar(tmp_path / "bundle.tar")
    dumps = repaired(latest(bundle), members(bundle), KNOWN)
    assert sorted(dumps) == [0, 1, 2, 3]
    assert len(dumps[0]["entries"]) == 21
    assert members(bundle) == EVERYBODY


def test_the_rule_names_who_has_nothing_pending() -> None:
    assert missing_rank_rule(repaired(raw(hung()), EVERYBODY, KNOWN), EVERYBODY).ranks == {CULPRIT}


def test_the_rule_names_victims_too() -> None:
    """A rank that waits in another group is missing in this one."""
    job = Job(3)
    pair = job.group((0, 1), "PAIR")
    job.hang({2}, pair)
    job.hang({0, 1})
    groups = {"0": frozenset(range(3)), "1": frozenset((0, 1))}
    assert missing_rank_rule(repaired(raw(job), groups, KNOWN), groups).ranks == {0, 1}


def test_without_a_dump_nobody_is_named() -> None:
    assert missing_rank_rule({}, {}).remark == "no dump"


def test_ranks_are_read_from_what_torchfrtrace_prints() -> None:
    text = (
        "Not all ranks joining collective, sequence number: 3\nmissing ranks: {1, 2}\nexpected ranks: {0, 1, 2, 7}\n"
        "error msg: Culprit rank 4; Error type: SIZE_OR_SYNTAX_MISMATCH, Culprit rank 5; Error type: COLLECTIVE_TYPE_MISMATCH\n"
        "because we missed FR dumps from ranks ({6}) so"
    )
    assert printed_ranks(text) == {1, 2, 4, 5, 6}


@pytest.mark.parametrize(
    ("named", "truth", "expected"),
    [
        ((2,), ((2,),), Score.EXACT),
        ((0, 1), ((2,), (0, 1)), Score.EXACT),
        ((1, 2), ((2,),), Score.PARTIAL),
        ((0,), ((0, 1),), Score.WRONG),
        ((), ((2,),), Score.WRONG),
        ((), ((),), Score.EXACT),
        ((1,), ((),), Score.WRONG),
    ],
)
def test_scores(named: tuple[int, ...], truth: tuple[tuple[int, ...], ...], expected: Score) -> None:
    assert score(named, truth) is expected


def test_the_page_counts_and_lists() -> None:
    named = dict.fromkeys(page.ANALYSERS, (2,)) | {page.RULE: ()}
    scores = dict.fromkeys(page.ANALYSERS, Score.EXACT) | {page.RULE: Score.WRONG}
    row = Row("shard_never_opens", False, 4, ((2,),), named, scores, {page.RULE: "no dump"}, True)
    text = page.render([row], {"torch": "2.13"})
    assert "| torchfrtrace | 1 | 0 | 0 | 0 |" in text
    assert "| missing-rank rule | 0 | 0 | 0 | 1 |" in text
    assert "| shard never opens | 2 | exact: 2 | exact: 2 | exact: 2 | wrong: no dump | right |" in text
