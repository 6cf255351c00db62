"""Where one of a hundred words stands in a block of bytes: by three rare bytes of each word, for a whole block at once.

An expression of all words looks at each byte for itself, and takes four times as long.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)
# Most lines of a log are like these: a word is looked for by three bytes that do not stand here.
_COMMON = (
    b"\n[rank0]: [default0]:2026-03-21 00:00:00,000 - trainer - INFO - step:  0  loss:  0.0  lr: 0.0e-00  memory: 0.0GiB(0.0%)"
    b"  tps: 0,000  mfu: 0.0%  grad_norm: 0.0  epoch: 0\n"
    b" [2026-03-21 00:00:00.000000] iteration  0/ 0000 | consumed samples:  0000 | elapsed time per iteration (ms): 0.0 | "
    b"throughput per GPU (TFLOP/s/GPU): 0.0 | learning rate: 0.0E-00 | global batch size: 00 | lm loss: 0.0E+00 | loss scale: "
    b"0.0 | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
    b"node-0:00:00 [0] NCCL INFO Channel 00/0 : 0[0] -> 0[0] [send] [receive] via P2P/CUMEM/read NET/IB/0/GDRDMA/Shared\n"
    b"W0000 00:00:00.000 torch/distributed/process_group.py:000] [WARNING] peer worker retrying in 0 seconds\n"
    b"Epoch 0:  0%|# | 0/000 [00:00<00:00, 0.00it/s, v_num=0, train_loss=0.0]\n"
    b"{'loss': 0.0, 'grad_norm': 0.0, 'learning_rate': 0e-00, 'epoch': 0.0}\n"
)


@dataclass(frozen=True, slots=True)
class Words:
    """What is looked for.

    `table` says of the hash of three bytes whether some word has them, `exact` has the bytes of all words as sorted numbers;
    `known` gives for the bytes how far into a word they stand, and what must match where it begins.
    """

    table: Any
    exact: Any
    known: Mapping[bytes, list[tuple[int, re.Pattern[bytes]]]]


def words(literals: Iterable[str], expressions: Mapping[str, str]) -> Words:
    """Words as they are, and expressions by what they begin with, in which a 0 stands for any digit."""
    sought = {**{word: re.escape(word) for word in literals}, **expressions}
    table = np.zeros(1 << 16, dtype=bool)
    known: dict[bytes, list[tuple[int, re.Pattern[bytes]]]] = defaultdict(list)
    for word, expression in sought.items():
        plain = word.encode().translate(_DIGITS)
        place = _rare_place(plain)
        three = plain[place : place + 3]
        known[three].append((place, re.compile(expression.encode())))
        table[_hashes(three)] = True
    return Words(table, np.array(sorted(int.from_bytes(three) for three in known), dtype=np.uint32), dict(known))


def _rare_place(word: bytes) -> int:
    """Where in a word three bytes begin that stand in few lines."""

    def commonness(place: int) -> tuple[bool, int]:
        three = word[place : place + 3]
        return three in _COMMON, sum(_COMMON.count(three[at : at + 1]) for at in range(3))

    return min(range(len(word) - 2), key=commonness)


def _hashes(text: bytes) -> Any:
    """Of each three bytes of a text."""
    values = np.frombuffer(text, dtype=np.uint8).astype(np.uint16)
    return values[:-2] * np.uint16(40503) + values[1:-1] * np.uint16(961) + values[2:]


def _numbers(text: bytes, places: Any) -> Any:
    """The three bytes at each place as one number: what has the hash of a word need not have its bytes."""
    values = np.frombuffer(text, dtype=np.uint8)
    high, middle, low = (values[places + more].astype(np.uint32) for more in range(3))
    return (high << 16) | (middle << 8) | low


class Places:
    """Where words stand in one block."""

    def __init__(self, sought: Words, block: bytes) -> None:
        self._block, self._known = block, sought.known
        self._plain = block.translate(_DIGITS)
        # `clip` spares numpy the comparison of each index with the size of the table.
        hits = np.flatnonzero(sought.table.take(_hashes(self._plain), mode="clip")) if len(block) > 2 else np.empty(0, int)
        self._hits: list[int] = hits[np.isin(_numbers(self._plain, hits), sought.exact)].tolist()

    def first(self, start: int) -> int | None:
        """The beginning of the first word at `start` or behind it."""
        for at in range(bisect_left(self._hits, start), len(self._hits)):
            hit = self._hits[at]
            for place, regex in self._known.get(self._plain[hit : hit + 3], ()):
                if hit - place >= start and regex.match(self._block, hit - place):
                    return hit - place
        return None
