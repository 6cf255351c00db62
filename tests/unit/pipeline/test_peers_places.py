"""Where a rank stopped whose program differs: in the pass in which its peers make the call that it should have made."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import create_autospec

import pytest

from forensics.model import Cause, StageRef, Suspect
from forensics.rules.located import _places
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.steps.records import Record

OWN = CallPlace(stage=1)
PASS = CallPlace("backward", 5, stage=1, in_pass=True)
BESIDE = CallPlace(stage=2)
STOP = CallPlace("forward", 7, stage=1, in_pass=True)


@pytest.mark.parametrize(
    ("cause", "own", "peer", "microbatches"),
    [
        (Cause.COLLECTIVE_MISMATCH, OWN, PASS, [5]),
        (Cause.COLLECTIVE_MISMATCH, OWN, BESIDE, [None]),
        (Cause.COLLECTIVE_MISMATCH, OWN, None, [None]),
        (Cause.COLLECTIVE_MISMATCH, CallPlace("forward", 2, in_pass=True), PASS, [2]),
        (Cause.HOST_STALL, OWN, PASS, [None]),
        (Cause.HOST_STALL, None, PASS, [5]),
    ],
    ids=["peers are in a pass", "in none", "no peer", "its own pass is known", "a program like the others", "no record"],
)
def test_whose_pass_counts(cause: Cause, own: CallPlace | None, peer: CallPlace | None, microbatches: list[int | None]) -> None:
    stage = StageRef(operation="all_reduce", communicator="tp", sequence=9)
    suspect = create_autospec(Suspect, instance=True, cause=cause, ranks=(1,), stage=stage)
    places = create_autospec(CallPlaces, instance=True)
    places.of_call.side_effect = lambda rank, *_: own if rank == 1 else peer
    places.of_stop.return_value = None
    places.has.return_value = True
    found = list(_places(suspect, places, {"tp": (0, 1)}))
    assert [each.microbatch for each in found] == microbatches
    assert [each.stage for each in found][:1] == [2 if peer is BESIDE and own is None else (own or PASS).stage]


@pytest.mark.parametrize(
    ("cause", "behind", "found"),
    [(Cause.PROCESS_DEAD, 3, STOP), (Cause.PROCESS_DEAD, 0, PASS), (Cause.HOST_STALL, 3, PASS)],
    ids=["its host went on", "its last call", "alive"],
)
def test_a_process_ended_where_its_own_record_ends(cause: Cause, behind: int, found: CallPlace) -> None:
    """Peers wait in the first call that its device did not finish; its host had made others behind that."""
    stage = StageRef(operation="all_reduce", communicator="tp", sequence=9)
    suspect = create_autospec(Suspect, instance=True, cause=cause, ranks=(1,), stage=stage)
    places = create_autospec(CallPlaces, instance=True)
    places.of_call.return_value, places.of_stop.return_value, places.has.return_value = PASS, STOP, True
    record = create_autospec(Record, instance=True)
    record.issued.return_value, record.__len__.return_value = 20, 21 + behind
    places.steps.return_value.record = record
    assert list(_places(suspect, places, {"tp": (0, 1)})) == [found]


@pytest.mark.parametrize(
    ("cut", "found"), [(frozenset[int](), STOP), (frozenset({1}), replace(PASS, opens=True)), (frozenset({0}), STOP)]
)
def test_a_record_that_is_cut_shows_no_next_call(cut: frozenset[int], found: CallPlace) -> None:
    """Where it went on behind the cut, those that are in the call of the suspect show how far."""
    stage = StageRef(operation="all_reduce", communicator="tp", sequence=9)
    suspect = create_autospec(Suspect, instance=True, cause=Cause.GPU_FAULT, ranks=(1,), stage=stage)
    places = create_autospec(CallPlaces, instance=True)
    places.of_call.side_effect = lambda rank, *_: None if rank == 1 else PASS
    places.of_stop.return_value, places.has.return_value = STOP, True
    assert list(_places(suspect, places, {"tp": (0, 1)}, cut)) == [found]
