from __future__ import annotations

from collections.abc import Callable

import pytest

from forensics import ingest
from forensics.ingest import choose, discover
from forensics.ingest.interface import LAST_RESORT, Ingester

HEADS = (
    b"",
    b'{"stacks": []}',
    b"Traceback (most recent call last):\n",
    b"[rank3]: step 17 loss 2.31\n",
    b"\x80\x02}q\x00X\x07\x00\x00\x00version",
    b"ERROR: no such device\n",
    b"index, pci.bus_id\n0, 00000000:07:00.0\n",
    b"a b c\n",
)
PATHS = ("train.log", "rank3.json", "notes.txt", "notes", "app.py", "dmesg.txt")


def by_all(head: bytes, path: str) -> Ingester | None:
    """The surest of all ingesters, each of them asked."""
    scores = [(ingester.sniff(head, path), ingester) for ingester in discover()]
    best = max(score for score, _ in scores)
    return next(ingester for score, ingester in scores if score == best) if best else None


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("head", HEADS)
def test_who_is_not_asked_would_not_have_been_chosen(head: bytes, path: str) -> None:
    assert choose(head, path) is by_all(head, path)
    assert all(ingester.sniff(head, path) <= ingester.most for ingester in discover())


def test_the_first_by_name_is_chosen_among_equals_whoever_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def sure(score: int) -> Callable[[bytes, str], int]:
        return lambda head, path: score

    made = [Ingester("a", "a", sure(5), lambda artefact: iter(()), 5), Ingester("b", "b", sure(5), lambda artefact: iter(()))]
    monkeypatch.setattr(ingest, "_surest_first", lambda: tuple(reversed(made)))
    assert choose(b"x", "x") is made[0]
    made[0] = Ingester("a", "a", sure(LAST_RESORT), lambda artefact: iter(()), LAST_RESORT)
    assert choose(b"x", "x") is made[1]


@pytest.mark.parametrize(
    "head",
    [
        "Thread 1 (Thread 0x7f6aa1b82000 (LWP 4961)):\n#0  0x00007f6a in read (fd=41) at read.c:26\n#1  main () at a.c:7\n",
        'Process 88: python t.py\nThread 88 (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:25)\n',
    ],
)
def test_colours_of_a_terminal_change_no_choice(head: str) -> None:
    coloured = "".join(f"\x1b[32m{line[:9]}\x1b[0m{line[9:]}\x1b[K\n" for line in head.splitlines())
    assert choose(coloured.encode(), "a.txt") is choose(head.encode(), "a.txt") is not None


@pytest.mark.parametrize("front", ["", " 0: ", "[1,0]<stdout>:"])
def test_a_log_of_a_benchmark_is_a_log_before_it_ends(front: str) -> None:
    """Whatever the file is called, and though no line of it states an event."""
    line = ':::MLLOG {"namespace": "", "time_ms": 1746118042769, "key": "cache_clear", "value": true}'
    found = choose(f"{front}{line}\n".encode(), "result_04.txt")
    assert found is not None and found.name == "training_log" and found.sniff(f"{front}{line}\n".encode(), "x") > LAST_RESORT
