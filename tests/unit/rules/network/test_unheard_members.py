"""Who may have waited for a rank that left no log, on made-up calls of a small job."""

from __future__ import annotations

import duckdb
import pytest

from forensics.rules.reductions.network.unheard_members import HeardGroup, heard_groups, may_wait_unseen

DATA = (2, 3)
TENSOR, PIPE = False, True


def group(*ranks: int, messages: bool = TENSOR, partial: bool = True) -> HeardGroup:
    return HeardGroup(f"of {ranks}", frozenset(ranks), messages, partial)


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([], False),
        ([group(2, messages=PIPE)], True),
        ([group(2, messages=PIPE, partial=False)], False),
        ([group(2)], True),
        ([group(3, messages=PIPE)], False),
        ([group(2, 3, 4)], False),
        ([group(2, 6, partial=False), group(6, messages=PIPE)], True),
        ([group(2, 6, partial=False), group(6, 7)], False),
        ([group(2, 6, messages=PIPE, partial=False), group(6, messages=PIPE)], False),
    ],
    ids=[
        "all are heard",
        "messages of one that is not heard",
        "messages of one that is heard",
        "calls with one that is not heard",
        "only another member waits",
        "a group of all delays all alike",
        "who works in step waits for messages",
        "gradients of who works in step",
        "messages that came late are seen",
    ],
)
def test_who_may_wait_for_one_without_a_log(groups: list[HeardGroup], expected: bool) -> None:
    assert may_wait_unseen(2, DATA, [group(*DATA, partial=False), *groups]) is expected


def test_a_group_is_partial_where_a_member_is_unknown_or_has_no_calls() -> None:
    with duckdb.connect() as opened:
        opened.execute("CREATE TABLE communicators (communicator VARCHAR, size INTEGER, method VARCHAR)")
        opened.execute(
            "CREATE TABLE operations (source_id INTEGER, op_id INTEGER, communicator VARCHAR, rank INTEGER, is_p2p BOOL)"
        )
        opened.execute(
            "INSERT INTO communicators VALUES ('whole', 2, 'reported'), ('silent', 3, 'reported'), ('unknown', 1, 'peers'),"
            " ('pipe', 2, 'reported'), ('unused', 1, 'peers')"
        )
        opened.execute(
            "INSERT INTO operations VALUES (1, 5, 'whole', 1, false), (2, 5, 'whole', 2, NULL), (1, 6, 'silent', 1, false),"
            " (2, 6, 'silent', 2, false), (2, 7, 'unknown', 2, true), (1, 8, 'pipe', 1, true), (1, 0, 'unused', 1, false)"
        )
        found = {each.communicator: (set(each.ranks), each.is_partial) for each in heard_groups(opened, {1, 2})}
    assert found == {
        "pipe": ({1}, False),
        "silent": ({1, 2}, True),
        "unknown": ({2}, True),
        "whole": ({1, 2}, False),
    }
