"""Headings of nodes that tell which ranks they hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.recordings.verdicts import named, pasted


def _node(first: int, last: int, heading: str, ranks: Iterable[int] | None = None) -> str:
    said = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=88, OpType=ALLREDUCE, Timeout(ms)=600000) ran for"
    lines = (f"[rank{r}]:[E1017 23:14:08.4 ProcessGroupNCCL.cpp:632] [Rank {r}] {said} 60000{r % 10} ms\n" for r in ranks or ())
    return heading.format(first, last) + "\n" + "".join(lines)


@pytest.mark.parametrize(
    "heading", ["##### node (10.1.0.21)  ranks {0}..{1} of 12 #####", "node 2 (ranks {0}-{1})", "host-b: ranks {0} to {1}"]
)
def test_the_node_of_which_no_rank_is_heard(tmp_path: Path, heading: str) -> None:
    text = (
        _node(0, 3, heading, range(4))
        + _node(4, 7, heading)
        + "client_loop: Broken pipe\n"
        + _node(8, 11, heading, range(8, 12))
    )
    assert named(pasted(tmp_path, text)) == {4, 5, 6, 7}


@pytest.mark.parametrize(
    "heading", ["dp ranks {0}-{1} of 12", "saw ranks {0}-{1} of node 3 come", "node 1 (local ranks {0}-{1})"]
)
def test_ranges_of_ranks_that_are_no_nodes(tmp_path: Path, heading: str) -> None:
    text = _node(0, 3, heading, range(4)) + _node(4, 7, heading, range(4, 8)) + _node(8, 11, heading)
    assert named(pasted(tmp_path, text)) == set()
