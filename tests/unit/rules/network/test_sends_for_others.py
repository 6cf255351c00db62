"""Sends that the process of another rank makes: whose they are is shown by the queue pair that they leave on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from duckdb import DuckDBPyConnection

from forensics.case.database import insert_rows, new_case
from forensics.rules.reductions.network.flow_ends import Flow, FlowEnd, FlowState
from forensics.rules.reductions.network.flow_faults import flow_evidence
from forensics.rules.reductions.network.flow_states import Key
from forensics.rules.reductions.network.sends_for_others import sends_for_others

PROXY, OWNER, RECEIVER, NEIGHBOUR = 0, 3, 4, 5
LOGS = {PROXY: "a", OWNER: "a", RECEIVER: "b", NEIGHBOUR: "b"}
Ends = dict[Key, dict[str, FlowEnd]]


def received(number: int, posted: int, *, total: int = 10, kind: str = "all_reduce") -> tuple[Key, dict[str, FlowEnd]]:
    key = ("nccl:a", number, kind, 1, OWNER, RECEIVER)
    return key, {"recv": FlowEnd(RECEIVER, total, posted, 0, 0, 0, since_ns=1, stuck_ns=9, order=2, source="4.frx")}


@pytest.fixture
def case() -> Iterator[DuckDBPyConnection]:
    """Members 0, 3, 4, 5 have places 0 to 3: rank 0 sends on channel 1 to place 2 for somebody."""
    with new_case() as opened:
        rows: list[tuple[object, ...]] = [(rank, f"{rank}.frx", host, rank, "ok", 0) for rank, host in LOGS.items()]
        insert_rows(opened, "sources", "source_id path host rank status rows", rows)
        insert_rows(opened, "rank_logs", "source_id rank", [(rank, rank) for rank in LOGS])
        insert_rows(opened, "members", "communicator position rank", [("nccl:a", at, rank) for at, rank in enumerate(LOGS)])
        queue_pair(opened, PROXY, 70, 90, communicator=None, direction="send")
        queue_pair(opened, RECEIVER, 90, 70, communicator="nccl:a", direction="recv", peer=1)
        yield opened


def queue_pair(
    case: DuckDBPyConnection, rank: int, number: int, remote: int, *, communicator: str | None, direction: str | None,
    peer: int | None = None, channel: int | None = 1, there: str | None = None,
) -> None:  # fmt: skip
    there = there or ("b" if LOGS[rank] == "a" else "a")
    names = "source_id locator rank queue_pair nic remote_queue_pair remote_nic peer communicator channel direction number gid"
    row = (rank, number, rank, f"mlx5_0/{number}", "mlx5_0", str(remote), there, peer, communicator, channel, direction)
    insert_rows(case, "queue_pairs", names, [(*row, number, LOGS[rank])])


def sent(case: DuckDBPyConnection, *calls: tuple[int, int], peer: int = 2) -> None:
    """Open sends of the proxy, the oldest first: steps in all, and handed to the NIC."""
    names = "source_id locator time_ns rank channel peer direction total posted gpu_ready transmitted done stuck_ns"
    rows: list[tuple[object, ...]] = [
        (PROXY, -1 - at, 100, PROXY, 1, peer, "send", total, total, total, passed, 0, 9)
        for at, (total, passed) in enumerate(calls)
    ]
    insert_rows(case, "chunk_states", names, rows)
    flows: list[tuple[object, ...]] = [(PROXY, -1 - at, PROXY, 10 + at) for at in range(len(calls))]
    insert_rows(case, "flows", "source_id locator rank start_ns", flows)


def matched(case: DuckDBPyConnection, *receives: tuple[Key, Mapping[str, FlowEnd]]) -> dict[int, Any]:
    """Steps handed to the NIC, by number of the call."""
    return {key[1]: end.passed for key, end in sends_for_others(case, list(LOGS), dict(receives)).items()}


def test_the_queue_pair_tells_whose_send_it_is(case: DuckDBPyConnection) -> None:
    sent(case, (10, 0), (10, 0))
    found = sends_for_others(case, list(LOGS), dict([received(7, 4), received(8, 0)]))
    assert [key[1] for key in found] == [7, 8]
    first = next(iter(found.values()))
    assert (first.rank, first.sent_by, first.queue_pair, first.nic) == (OWNER, PROXY, "mlx5_0/70", "mlx5_0")
    assert (first.posted, first.ready, first.passed, first.done, first.since_ns) == (10, 10, 0, 0, 91)


def test_calls_of_other_lengths_are_not_the_same_ones(case: DuckDBPyConnection) -> None:
    sent(case, (10, 0), (6, 0))
    assert matched(case, received(7, 4), received(8, 0)) == {7: 0}
    assert matched(case, received(7, 4, total=12)) == {}


def test_an_earlier_or_a_later_call_is_not_taken_for_it(case: DuckDBPyConnection) -> None:
    sent(case, (10, 10))
    assert matched(case, received(7, 4)) == {}, "all was handed on: its receive may be through"
    assert matched(case, received(7, 10)) == {}, "all buffers were there: its send may be through"


def test_another_place_is_another_connection(case: DuckDBPyConnection) -> None:
    sent(case, (10, 0), peer=3)
    assert matched(case, received(7, 4)) == {}


def test_messages_among_collectives_have_no_known_order(case: DuckDBPyConnection) -> None:
    sent(case, (10, 0), (10, 0))
    assert matched(case, received(7, 4), received(8, 0, kind="p2p")) == {}


@pytest.mark.parametrize(
    ("number", "remote", "channel"), [(71, 0, None), (71, 0, 1), (71, 91, 1)], ids=["not at work yet", "no log", "two groups"]
)
def test_a_queue_pair_that_may_carry_it_too_leaves_it_open(
    case: DuckDBPyConnection, number: int, remote: int, channel: int | None
) -> None:
    sent(case, (10, 0))
    assert matched(case, received(7, 4)) == {7: 0}
    queue_pair(case, PROXY, number, remote, communicator=None, direction="send" if channel else None, channel=channel)
    if remote:  # a communicator in which rank 4 has place 2 as well
        insert_rows(case, "members", "communicator position rank", [("nccl:b", 0, OWNER), ("nccl:b", 2, RECEIVER)])
        queue_pair(case, RECEIVER, remote, number, communicator="nccl:b", direction="recv", peer=0)
    assert matched(case, received(7, 4)) == {}


def test_a_process_of_another_host_sends_for_nobody_here(case: DuckDBPyConnection) -> None:
    sent(case, (10, 0))
    case.execute("UPDATE sources SET host = 'c' WHERE rank = 3")
    assert matched(case, received(7, 4)) == {}


def test_the_link_is_that_of_the_process_that_sends() -> None:
    (label, number, kind, channel, sender, receiver), ends = received(7, 10)
    send = FlowEnd(OWNER, 10, 10, 10, 0, 0, since_ns=1, stuck_ns=9, order=2, source="0.frx", sent_by=PROXY)
    flow = Flow(label, number, kind, channel, sender, receiver, send, ends["recv"], FlowState.CREDIT_LOST)
    assert flow.proxy == PROXY and replace(flow, send=replace(send, sent_by=None)).proxy == OWNER
    assert replace(flow, state=FlowState.GPU_NOT_READY).holder == OWNER
    assert replace(flow, state=FlowState.NOT_SERVED).holder == PROXY
    assert "over the NIC of rank 0 (PXN)" in next(flow_evidence(flow)).statement
