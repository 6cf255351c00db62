"""Words in blocks of bytes: each is found where a plain search finds it, whatever stands around it."""

from __future__ import annotations

import random
import re

import pytest

from forensics.ingest._job_logs import nodes, stack_dumps, torchrun
from forensics.ingest._job_logs.wanted_words import wanted
from forensics.ingest._job_logs.word_places import Places, words
from tests.unit.ingest.reading import read

LITERALS = ("Watchdog caught", "exitcode", "rdzv", "- Init ", "_rank=3")
EXPRESSIONS = {**torchrun.EXPRESSIONS, **stack_dumps.EXPRESSIONS, **nodes.EXPRESSIONS}


@pytest.mark.parametrize("seed", range(20))
def test_every_word_is_found_where_it_stands(seed: int) -> None:
    drawn = random.Random(seed)
    pieces = [
        *LITERALS,
        "_04:05:59",
        "ip=10",
        "[rank8",
        "[rank12]",
        "[rank7]",
        "host : n4",
        "Watchdog",
        "exit",
        "_rank=4",
        "\n",
    ]
    block = "".join(drawn.choice(pieces) if drawn.random() < 0.3 else drawn.choice(" aex0_ikr\n") for _ in range(400)).encode()
    sought = re.compile("|".join([*map(re.escape, LITERALS), *EXPRESSIONS.values()]).encode())
    places, start, found = Places(words(LITERALS, EXPRESSIONS), block), 0, []
    while (place := places.first(start)) is not None:
        found.append(place)
        start = place + 1
    assert found == [place for place in range(len(block)) if sought.match(block, place)]


@pytest.mark.parametrize("block", [b"", b"r", b"rd", b"rdz", b"\xff\xff\xff"])
def test_blocks_shorter_than_any_word(block: bytes) -> None:
    assert Places(words(LITERALS, EXPRESSIONS), block).first(0) is None


def test_what_is_known_is_no_longer_looked_for() -> None:
    line = b"[rank9]: node0:1:2 [1] NCCL INFO Channel 00/0 : 9[0] -> 1[1] via NET/IB/3"
    assert Places(wanted(False, False), line).first(0) == 0
    assert Places(wanted(True, False), line).first(0) == line.index(b"NCCL")
    assert Places(wanted(True, True), line).first(0) is None


def test_a_rank_that_only_progress_tells_is_that_of_its_process() -> None:
    steps = "".join(f"(Worker pid={90 + rank}) [rank{rank}]: step {step} loss 2.1\n" for step in range(4) for rank in range(12))
    raised = "(Worker pid=101) Traceback (most recent call last):\n(Worker pid=101) ValueError: no such shard\n"
    assert read((steps + raised).encode(), "job.log").row("log_events", kind="exception")["rank"] == 11
