"""One explanation out of many findings: their order, what is merged, what is an alternative, and what is withheld."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forensics.case.build import open_case
from forensics.model import (
    Anomaly,
    Belief,
    Cause,
    Component,
    Confidence,
    Evidence,
    Family,
    Finding,
    Granularity,
    Impact,
    Mechanism,
    Members,
    Resource,
    Role,
    StageName,
    StageRef,
    Suspect,
)
from forensics.rules.arbitration import Judgement
from forensics.rules.diagnosis import judge
from forensics.rules.engine import supply_of
from forensics.rules.explain import joined
from forensics.rules.facts.families import SourceFamilies
from forensics.rules.facts.symptoms import Findings
from forensics.rules.reductions.waits.graph import Wait, WaitGraph
from forensics.rules.supply import Supply
from tests.recordings.collection import loose, whole, write
from tests.recordings.hang import two_halves
from tests.recordings.job import Job, as_json
from tests.recordings.places import HOST_CODE, LOADER_QUEUE
from tests.recordings.verdicts import verdict_of


def finding(
    rank: int,
    belief: Belief = Belief.BEHIND_AND_BUSY,
    rule: str = "FX1",
    *,
    role: Role = Role.ROOT,
    cause: Cause = Cause.HOST_STALL,
    confidence: Confidence = Confidence.LIKELY,
) -> Finding:
    return Finding(
        rule=rule,
        ranks=(rank,),
        role=role,
        cause=cause,
        stage=StageRef(name=StageName.DATA),
        belief=belief,
        confidence=confidence,
        evidence=(Evidence(f"rank {rank} by {rule}"),),
    )


def hung(world: int = 4, absent: int = 2) -> Job:
    job = Job(world)
    job.steps(10)
    job.hang({absent})
    return job


def reduced(folder: Path) -> Supply:
    return supply_of(open_case([folder]))


@pytest.fixture(scope="module")
def stalled(tmp_path_factory: pytest.TempPathFactory) -> Supply:
    """A job that stands still for sure."""
    return reduced(whole(hung(), {2: HOST_CODE}).write(tmp_path_factory.mktemp("stalled")))


@pytest.fixture(scope="module")
def undated(tmp_path_factory: pytest.TempPathFactory) -> Supply:
    """One capture of a hang that nothing dates."""
    return reduced(loose(hung(), tmp_path_factory.mktemp("undated")))


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Supply:
    job = Job(4)
    job.steps(10)
    files = {f"rank{rank}.fr.0.json": as_json(job.dump(rank)) for rank in range(4)}
    job.steps(5)
    job.hang({2})
    files |= {f"rank{rank}.fr.1.json": as_json(job.dump(rank)) for rank in range(4)}
    return reduced(write(tmp_path_factory.mktemp("moving"), files))


def ranked(job: Supply, findings: list[Finding], known: dict[str, Family] | None = None) -> tuple[Suspect, ...]:
    return judgement(job, findings, known).suspects


def judgement(job: Supply, findings: list[Finding], known: dict[str, Family] | None = None) -> Judgement:
    return judge(job, Findings(tuple(findings)), SourceFamilies(known or {}))


def said(rank: int, *sources: str, against: str | None = None, **changes: Any) -> Finding:
    """A finding whose statements were read in `sources`, and one against it in `against`."""
    lines = [Evidence(f"as {source} shows", f"{source}#entry=1") for source in sources]
    lines += [Evidence("it was seen elsewhere", f"{against}#entry=1", supports=False)] if against else []
    return replace(finding(rank, **changes), evidence=tuple(lines))


def test_who_explains_more_waits_stands_first_whatever_the_words(stalled: Supply) -> None:
    judged = judgement(stalled, [finding(3, confidence=Confidence.CONFIRMED), finding(2, confidence=Confidence.SUSPECT)])
    assert [(suspect.fault, suspect.ranks) for suspect in judged.suspects] == [(1, (2,))]
    assert [each.withheld for each in judged.assessments] == [None, "it explains nothing that was observed, rank 2 4 of it"]


def test_who_explains_all_that_another_does_and_more_settles_it(tmp_path: Path) -> None:
    """Rank 0 waits for rank 1, and that one for rank 2: unless something speaks against rank 2, or nothing for it."""
    job = Job(3)
    groups = [job.group((0, 1), "LOW"), job.group((1, 2), "HIGH")]
    for _ in range(8):
        for group in groups:
            job.call(group)
    job.hang({1}, groups[0])
    job.hang({2}, groups[1])
    case = reduced(whole(job, {2: HOST_CODE}).write(tmp_path))
    known = {"a": Family.STACK, "b": Family.LOG}
    assert [suspect.ranks for suspect in ranked(case, [said(2, "a"), finding(1)], known)] == [(2,)]
    assert [suspect.ranks for suspect in ranked(case, [finding(2), finding(1)], known)] == [(2,), (1,)]
    doubted = said(2, "a", against="b")
    assert [suspect.ranks for suspect in ranked(case, [doubted, said(1, "a")], known)] == [(1,), (2,)]


def slow(ranks: tuple[int, ...], source: str, state: str = "slow_flow", against: str | None = None) -> Finding:
    """Flows of some ranks are slow: of one, or of several of which one is."""
    found = said(ranks[0], source, against=against, cause=Cause.NETWORK_SLOW if len(ranks) > 1 else Cause.NIC_OR_PCIE_SLOW)
    members = Members.EACH if len(ranks) == 1 else Members.ONE_OF
    shown = replace(found, ranks=ranks, members=members, anomaly=Anomaly.FAIL_SLOW, mechanism=Mechanism(state))
    return replace(shown, impact=Impact(None, 0.1 * len(ranks), None, "arrival"), rule=f"FX{len(ranks)}")


def test_who_is_named_by_another_family_is_the_one_of_two(moving: Supply) -> None:
    """Slow in the same way, and nothing speaks against it: the two are one account."""
    known = {"a": Family.SHIM, "b": Family.NIC, "c": Family.LOG}
    for state in ("slow_flow", "late_end"):  # a GPU that hands chunks over late slows its links
        (suspect,) = ranked(moving, [slow((0, 2), "a"), slow((2,), "b", state)], known)
        assert (suspect.ranks, suspect.rules) == ((2,), ("FX1", "FX2"))
    for other in (slow((2,), "a"), slow((2,), "b", "late_start"), slow((2,), "b", against="c"), slow((1,), "b")):
        assert ranked(moving, [slow((0, 2), "a"), other], known)[0].ranks == (0, 2)


def test_one_fault_of_the_same_ranks_has_the_mechanism_that_either_rule_states(moving: Supply) -> None:
    flow = replace(slow((2,), "a", "late_end"), cause=Cause.PCIE_DEGRADED)
    late = replace(flow, mechanism=None, rule="FX2", confidence=Confidence.LIKELY)
    for findings in ([flow, late], [late, flow]):
        (suspect,) = ranked(moving, findings)
        assert suspect.mechanism == Mechanism("late_end") and set(suspect.rules) == {"FX1", "FX2"}


def test_a_fault_is_in_the_operation_that_either_rule_states(stalled: Supply) -> None:
    """A failed request knows its queue pair, a stuck chunk the call that it is of."""
    call = StageRef(StageName.FORWARD, Component.COMMUNICATION, operation="all_gather", communicator="w", sequence=8)
    chunk = replace(finding(2, rule="FX2"), stage=call)
    request = replace(finding(2, Belief.DIRECT_RECORD), stage=StageRef(component=Component.COMMUNICATION))
    (suspect,) = ranked(stalled, [request, chunk])
    assert (suspect.rules, suspect.stage) == (("FX1", "FX2"), call)
    (other,) = ranked(stalled, [replace(request, stage=replace(request.stage, operation="send")), chunk])
    assert (other.stage.operation, other.stage.communicator) == ("send", None)


def test_one_of_two_that_is_late_for_no_known_reason_is_the_one_whose_nic_is_slow(moving: Supply) -> None:
    """A rank with a slow NIC comes late to calls as well; which of two it is calls alone may leave open."""
    known = {"a": Family.NIC, "b": Family.RECORDER, "c": Family.LOG}
    nic = replace(slow((2,), "a"), impact=Impact(None, 0.5, None, "arrival"))
    late = replace(slow((0, 2), "b"), cause=Cause.UNKNOWN, mechanism=None, confidence=Confidence.SUSPECT)
    (found,) = ranked(moving, [late, nic], known)
    assert (found.ranks, found.cause, found.rules) == ((2,), Cause.NIC_OR_PCIE_SLOW, ("FX1", "FX2"))
    doubted = replace(slow((2,), "a", against="c"), impact=nic.impact)
    others = (
        [replace(late, cause=Cause.COMPUTE_SLOW), nic],
        [replace(late, ranks=(0, 1)), nic],
        [late, doubted],
        [replace(late, confidence=Confidence.LIKELY), replace(nic, confidence=Confidence.SUSPECT)],
    )
    for findings in others:
        assert any(len(each.ranks) == 2 for each in ranked(moving, findings, known))


def test_an_open_link_of_ranks_that_are_named_for_the_same_cause_is_evidence_of_it(moving: Supply) -> None:
    """Ranks that share a narrow NIC, and the link to each of their peers, of which either end may be slow."""
    narrow = replace(slow((2,), "a"), cause=Cause.PCIE_DEGRADED, impact=Impact(None, 0.5, None, "arrival"))
    shared = replace(narrow, ranks=(2, 3), granularity=Granularity.NIC)
    links = [replace(slow((peer, 2, 3), "a"), cause=Cause.PCIE_DEGRADED) for peer in (0, 1)]
    (found,) = ranked(moving, [*links, shared], {"a": Family.NIC})
    assert (found.ranks, found.cause) == ((2, 3), Cause.PCIE_DEGRADED)


def long_passes(cause: Cause) -> Finding:
    """All ranks are long in a stage, which costs most of the time."""
    found = finding(0, Belief.GROUP_SYMPTOM, rule="FX170", cause=cause)
    impact = Impact(10**10, 0.4, 10, "frontier_gain")
    return replace(found, ranks=(), anomaly=Anomaly.FAIL_SLOW, granularity=Granularity.JOB, impact=impact)


def test_passes_that_are_long_on_all_ranks_are_those_that_wait_for_the_slow_ones(moving: Supply) -> None:
    """Ranks of a pipeline wait in their passes; alone, or with a cause of its own, that a stage is slow is said."""
    ranks = [replace(slow((rank,), f"frx{rank}"), impact=Impact(10**9, 0.1, 9, "arrival")) for rank in (1, 2)]
    for cause in (Cause.UNKNOWN, Cause.HOST_STALL, Cause.COMPUTE_SLOW):
        assert [suspect.ranks for suspect in ranked(moving, [long_passes(cause), *ranks])] == [(1,), (2,)]
        assert [suspect.ranks for suspect in ranked(moving, [long_passes(cause)])] == [()]
    assert ranked(moving, [long_passes(Cause.DATALOADER_STALL), *ranks])[0].ranks == ()


def test_the_order_of_findings_does_not_matter(stalled: Supply) -> None:
    found = [finding(rank, belief) for rank, belief in enumerate(Belief)]
    assert ranked(stalled, found) == ranked(stalled, found[::-1])


def test_a_contradiction_weighs_more_than_any_number_of_facts(stalled: Supply) -> None:
    doubted = said(2, "a", "b", "c", against="d", cause=Cause.DATALOADER_STALL)
    found = ranked(stalled, [doubted, said(2, "a", rule="FX2")], {"a": Family.STACK, "b": Family.LOG, "d": Family.PROCESS})
    assert [suspect.cause for suspect in found] == [Cause.HOST_STALL, Cause.DATALOADER_STALL]


def test_a_rival_account_puts_a_finding_behind(stalled: Supply) -> None:
    weak = replace(finding(2, cause=Cause.GIL_HELD), rivals=("a read that keeps the lock is still a read",))
    assert [s.cause for s in ranked(stalled, [weak, finding(2, rule="FX2")])] == [Cause.HOST_STALL, Cause.GIL_HELD]


def test_independent_families_come_before_a_narrow_cause(stalled: Supply) -> None:
    both = said(2, "a", "b", rule="FX2")
    found = ranked(stalled, [said(2, "a", cause=Cause.DATALOADER_STALL), both], {"a": Family.STACK, "b": Family.LOG})
    assert [suspect.cause for suspect in found] == [Cause.HOST_STALL, Cause.DATALOADER_STALL]
    again = ranked(stalled, [said(2, "a", cause=Cause.DATALOADER_STALL), both], {"a": Family.STACK, "b": Family.STACK})
    assert [suspect.cause for suspect in again] == [Cause.DATALOADER_STALL, Cause.HOST_STALL], "one family counts once"


def test_every_hypothesis_is_kept_with_what_it_explains(moving: Supply, stalled: Supply) -> None:
    judged = judgement(stalled, [finding(2), finding(3)])
    assert [(each.explains, each.leaves, each.fault) for each in judged.assessments] == [(4, 0, 1), (0, 4, None)]
    (refused,) = judgement(moving, [finding(2)]).assessments
    assert refused.fault is None and refused.withheld and "advanced" in refused.withheld


def test_victims_and_confirmations_are_no_suspects(stalled: Supply) -> None:
    assert ranked(stalled, [finding(1, role=Role.VICTIM), finding(2, role=Role.CONFIRMATION)]) == ()


def test_two_rules_with_one_answer_are_one_suspect_with_both_names(stalled: Supply) -> None:
    (only,) = ranked(stalled, [finding(2, rule="FX2"), finding(2, rule="FX1")])
    assert only.rules == ("FX1", "FX2")
    assert {line.statement for line in only.evidence} == {"rank 2 by FX1", "rank 2 by FX2"}


def test_a_further_fault_needs_symptoms_that_are_left_and_a_fact_of_its_own(tmp_path: Path) -> None:
    job = reduced(whole(two_halves(2, 4), {2: HOST_CODE, 4: HOST_CODE}).write(tmp_path))
    known = {"a": Family.STACK}
    both = ranked(job, [said(2, "a", cause=Cause.DATALOADER_STALL), said(4, "a")], known)
    assert [(suspect.fault, suspect.ranks) for suspect in both] == [(1, (2,)), (2, (4,))]
    guessed = ranked(job, [said(2, "a", cause=Cause.DATALOADER_STALL), said(4)], known)
    assert [suspect.fault for suspect in guessed] == [1, 1], "what is left over accuses nobody by itself"


def test_a_group_symptom_joins_the_strongest_fault(stalled: Supply) -> None:
    group = replace(finding(0, Belief.GROUP_SYMPTOM, "FX3", cause=Cause.UNKNOWN), ranks=(1, 2), members=Members.ONE_OF)
    (found,) = ranked(stalled, [group, finding(2)])
    assert (found.ranks, found.rules) == ((2,), ("FX1", "FX3"))


def test_one_of_two_stays_one_of_two_however_often_it_is_said(stalled: Supply) -> None:
    """A link is down: what both ends send to each other hangs in both directions."""
    group = replace(finding(0, Belief.GROUP_SYMPTOM, cause=Cause.UNKNOWN), ranks=(0, 1), members=Members.ONE_OF)
    (found,) = ranked(stalled, [group, replace(group, evidence=(Evidence("the other direction"),))])
    assert (found.ranks, found.members, len(found.evidence)) == ((0, 1), Members.ONE_OF, 2)


def test_that_one_of_two_is_to_blame_says_less_than_what_is_wrong_between_them(stalled: Supply) -> None:
    group = replace(finding(0, Belief.GROUP_SYMPTOM, "FX3", cause=Cause.UNKNOWN), ranks=(0, 2), members=Members.ONE_OF)
    link = replace(finding(2, cause=Cause.NETWORK_DOWN), ranks=(0, 2), members=Members.ONE_OF, granularity=Granularity.LINK)
    (found,) = ranked(stalled, [group, link])
    assert (found.ranks, found.cause, found.rules) == ((0, 2), Cause.NETWORK_DOWN, ("FX1", "FX3"))


def test_a_group_symptom_alone_is_a_fault(stalled: Supply) -> None:
    group = replace(finding(0, Belief.GROUP_SYMPTOM), ranks=(0, 1), members=Members.ONE_OF)
    assert [suspect.fault for suspect in ranked(stalled, [group])] == [1]


def test_a_moving_job_has_no_suspects(moving: Supply) -> None:
    found = [finding(2, belief) for belief in (Belief.BEHIND_AND_BUSY, Belief.MISMATCH, Belief.GROUP_SYMPTOM)]
    assert ranked(moving, found) == ()


def test_nothing_but_a_direct_record_is_confirmed_without_proof_of_a_stall(undated: Supply) -> None:
    behind = ranked(undated, [finding(2, Belief.BEHIND_AND_BUSY, confidence=Confidence.CONFIRMED)])
    record = ranked(undated, [finding(2, Belief.DIRECT_RECORD, confidence=Confidence.CONFIRMED)])
    assert [suspect.confidence for suspect in behind] == [Confidence.LIKELY]
    assert [suspect.confidence for suspect in record] == [Confidence.CONFIRMED]


def test_a_proven_stall_may_be_confirmed(stalled: Supply) -> None:
    (only,) = ranked(stalled, [finding(2, confidence=Confidence.CONFIRMED)])
    assert only.confidence is Confidence.CONFIRMED


def test_equal_stalls_that_the_same_waits_wait_for_are_one_suspect(tmp_path: Path) -> None:
    job = Job(4)
    job.steps(10)
    job.hang({1, 2})
    verdict = verdict_of(whole(job, {1: LOADER_QUEUE, 2: LOADER_QUEUE}).write(tmp_path))
    (only,) = verdict.suspects
    assert (only.ranks, only.members, only.granularity) == ((1, 2), Members.EACH, Granularity.GROUP)
    assert any("rank 1" in line.statement for line in only.evidence)
    assert any("rank 2" in line.statement for line in only.evidence)


def test_merged_stalls_are_as_sure_as_the_weaker_one(stalled: Supply) -> None:
    """Ranks 0 and 3 are waited for by nobody, so they are at the same fault by their waits."""
    (only,) = ranked(stalled, [finding(0, confidence=Confidence.CONFIRMED), finding(3, confidence=Confidence.SUSPECT)])
    assert (only.ranks, only.confidence) == ((0, 3), Confidence.SUSPECT)


def test_what_slows_a_rank_is_told_by_more_sources_and_not_by_how_much_is_lost(moving: Supply) -> None:
    """One rule counts what came late in long steps, another one in each call: neither figure says why."""
    known = {"a": Family.RECORDER, "b": Family.NIC}
    host = replace(said(2, "a"), anomaly=Anomaly.FAIL_SLOW, impact=Impact(None, 0.3, 2, "arrival"))
    narrow = said(2, "a", "b", rule="FX2", cause=Cause.PCIE_DEGRADED)
    narrow = replace(narrow, anomaly=Anomaly.FAIL_SLOW, impact=Impact(None, 0.2, 99, "arrival"))
    assert [each.cause for each in ranked(moving, [host, narrow], known)] == [Cause.PCIE_DEGRADED]
    alone = replace(narrow, evidence=(Evidence("as b shows", "b#entry=1"),), cause=Cause.UNKNOWN, ranks=(1,))
    assert ranked(moving, [host, alone], known)[0].ranks == (2,), "who it is, the loss tells"


def test_slow_by_an_unknown_cause_agrees_with_slow_by_a_known_one(moving: Supply) -> None:
    """Both are of the same rank: who tells cause and stage is not hidden behind who tells neither."""
    stated = replace(finding(2, rule="FX1", confidence=Confidence.SUSPECT), anomaly=Anomaly.FAIL_SLOW)
    unknown = replace(stated, rule="FX3", cause=Cause.UNKNOWN)
    late = replace(unknown, rule="FX2", stage=StageRef(operation="all_reduce"), confidence=Confidence.LIKELY)
    (only,) = ranked(moving, [late, stated])
    assert (only.cause, only.stage.name, only.rules) == (Cause.HOST_STALL, StageName.DATA, ("FX1", "FX2"))
    (only,) = ranked(moving, [late, unknown])
    assert (only.cause, only.stage.name, only.stage.operation) == (Cause.UNKNOWN, StageName.DATA, "all_reduce")


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        ({"cause": Cause.COMPUTE_SLOW}, Cause.COMPUTE_SLOW),
        ({"cause": Cause.GPU_THROTTLED, "confidence": Confidence.SUSPECT}, Cause.GPU_THROTTLED),
        ({"cause": Cause.GPU_THROTTLED, "against": "c"}, Cause.HOST_STALL),
        ({"cause": Cause.NETWORK_SLOW}, None),
    ],
)
def test_where_a_rank_is_late_and_why_is_one_account_of_it(moving: Supply, other: dict[str, Any], cause: Cause | None) -> None:
    """Two words for one lateness are one suspect with what both rules saw; what transfers take is another matter."""
    known = {"a": Family.RECORDER, "b": Family.STACK, "c": Family.LOG}
    late = replace(said(2, "a", rule="FX175"), anomaly=Anomaly.FAIL_SLOW)
    again = replace(said(2, "b", rule="FX160", **other), anomaly=Anomaly.FAIL_SLOW)
    for given in ([late, again], [again, late]):
        found = ranked(moving, given, known)
        if cause is None:
            assert [suspect.ranks for suspect in found] == [(2,), (2,)]
        else:
            (only,) = found
            assert (only.cause, sorted(only.rules)) == (cause, ["FX160", "FX175"])
            assert {"as a shows", "as b shows"} <= {line.statement for line in only.evidence}


def test_the_summary_names_the_first_suspect_and_counts_those_that_wait(tmp_path: Path) -> None:
    verdict = verdict_of(whole(hung(), {2: LOADER_QUEUE}).write(tmp_path))
    assert verdict.summary.startswith("hang: rank 2, stage data, dataloader_stall")
    assert "3 of 4 ranks wait" in verdict.summary


@pytest.mark.parametrize(("communicator", "peer", "held"), [("nccl:1", 1, [0]), ("nccl:1", 5, []), ("w", 5, [0])], ids=str)
def test_a_flow_holds_up_the_operation_that_both_of_its_ends_are_in(communicator: str, peer: int, held: list[int]) -> None:
    """Flows are of a communicator of the library, which a process group is called differently from."""
    wait = Wait("w", 7, {1: None, 2: None}, (), left=(3,), unended=(0,))
    flow = replace(
        finding(0, Belief.DIRECT_RECORD), stage=StageRef(communicator=communicator), resource=Resource(peer_ranks=(peer,))
    )
    assert list(joined(flow, WaitGraph((wait,), (), {}))) == held
