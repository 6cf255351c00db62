"""Whether a rank stopped amid a pass: inside a run of equal calls, that is, and not where a step may begin."""

from __future__ import annotations

from unittest.mock import create_autospec

import duckdb
import pytest

from forensics.rules.reductions.calls.positions import Communicator, Communicators, Operation
from forensics.rules.reductions.calls.shim_calls import Calls
from forensics.rules.reductions.progress.amid_pass import amid_pass, is_amid
from forensics.rules.reductions.ranks.roster import RankFacts, Roster
from forensics.rules.reductions.waits.graph import Wait, WaitGraph

TP, DP, LOSS = ("tp", "all_reduce", "[[64]]"), ("dp", "all_reduce", "[[9]]"), ("world", "all_reduce", "[[1]]")
LAST = ("dp", "all_reduce", "[[5]]")
STEP = (TP, TP, TP, TP, DP, LOSS)


@pytest.mark.parametrize(
    ("since", "awaited", "amid"),
    [
        ((TP, TP), TP, True),
        ((TP,), TP, False),
        ((), TP, False),
        ((TP, TP), DP, False),
        ((TP, TP, TP, TP), TP, False),
        ((TP, TP, TP, TP), DP, False),
    ],
    ids=["in a run", "its first call", "a step begins", "another call", "no run was longer", "a run ended"],
)
def test_only_inside_a_run_that_was_longer_before(
    since: tuple[tuple[str, str, str], ...], awaited: tuple[str, str, str], amid: bool
) -> None:
    assert is_amid((*STEP, *STEP, *since), awaited) is amid


RECV, SEND = ("pipe", "recv", "[[64]]"), ("pipe", "send", "[[64]]")


@pytest.mark.parametrize(
    ("step", "since", "amid"),
    [
        ((RECV, TP, TP, SEND, DP, LOSS), (RECV,), True),
        ((RECV, TP, TP, SEND, DP, LOSS), (RECV, TP), True),
        ((RECV, TP, TP, SEND, DP, LOSS), (), False),
        ((RECV, DP, TP, TP, SEND, LOSS), (RECV,), False),
        ((RECV, TP, SEND, DP, LOSS), (RECV, TP), False),
        ((SEND, TP, TP, RECV, DP, LOSS), (SEND, TP), False),
    ],
    ids=["message", "its first call", "a step begins", "other calls follow", "no run was longer", "behind a send"],
)
def test_behind_a_message_comes_its_pass(
    step: tuple[tuple[str, str, str], ...], since: tuple[tuple[str, str, str], ...], amid: bool
) -> None:
    assert is_amid((*step, *step, *since), TP) is amid


def test_a_run_of_gradients_may_go_on_over_the_end_of_a_step() -> None:
    """One replica evaluates alone between the second and the third of four equal buckets in a row."""
    step = (DP, DP, LAST, DP, DP)
    assert not is_amid((*step, *step, *step), DP)


def test_a_record_without_another_call_shows_no_begin_of_a_run() -> None:
    assert not is_amid((TP,) * 9, TP) and not is_amid((), TP)


def found(members: tuple[int, ...], *own: tuple[str, str, str], peers: tuple[int, int] | None = None) -> frozenset[int]:
    """What is said of rank 0, that the others of a group of four ranks wait for."""
    call = Operation("all_reduce", "[[64]]", 1, None, "1#entry=9")
    wait = Wait("tp", 9, dict.fromkeys(members[1:], call), (0,), peers=peers)
    group = create_autospec(Communicator, instance=True, label="tp", members=members)
    roster = Roster({rank: RankFacts(rank) for rank in range(4)}, 4)
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE latest_call (rank INT, communicator TEXT, kind TEXT, input_sizes TEXT, family TEXT, record_id INT, "
            "locator INT)"
        )
        for number, made in enumerate(own):
            connection.execute("INSERT INTO latest_call VALUES (0, ?, ?, ?, 'recorder', ?, 0)", [*made, number])
        graph = create_autospec(WaitGraph, instance=True, waits=(wait,))
        return amid_pass(Calls(connection, frozenset({0, 1})), graph, Communicators((group,)), roster)


def test_a_part_of_the_job_is_asked_for() -> None:
    assert found((0, 1), *STEP, TP, TP) == {0}
    assert not found((0, 1, 2, 3), *STEP, TP, TP), "each may have the whole model"
    assert not found((0, 1), *STEP, TP, TP, peers=(0, 1)), "messages wait for all that a stage does"
    assert not found((0, 1)), "without a record"
