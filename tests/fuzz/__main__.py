"""Fuzzes the native readers, and compares them with those in Python: `make fuzz` (SECONDS=60, SEED=1).

Whatever is found is written to build/fuzz/findings, and the run ends with 1. Fixed, it belongs into tests/fuzz/reproducers.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from tests.fuzz.building import READERS, ROOT, NoSanitizers, build, files_of
from tests.fuzz.differential import disagreement

_FOLDER = ROOT / "build/fuzz"
_COMPARING = 5
"""One part in so many of the time goes into comparing."""
_MOST_MEMORY_MB = 512
# What was freed and is kept to be watched counts as memory of the reader: the usual 256 MB would leave it half of the most.
_OPTIONS = {
    "ASAN_OPTIONS": f"detect_leaks=1:hard_rss_limit_mb={_MOST_MEMORY_MB}:allocator_may_return_null=1:quarantine_size_mb=32",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}
_PICKLE = (
    b"h\x00",
    b"h\x01",
    b"q\x00",
    b"\x94",
    b"0",
    b"2",
    b"e",
    b"a",
    b"s",
    b"u",
    b"(",
    b"]",
    b"}",
    b"N",
    b"K\x01",
    b"\x85",
    b"\x88",
)
_JSON = (b"{", b"}", b"[", b"]", b",", b":", b'"', b"1.5", b"1e3", b"null", b"\n", b'"ph":"X",', b'"cat":"kernel",', b'"ts":7,')


def main() -> int:
    """Build, fuzz each reader, compare, and say what was found."""
    arguments = argparse.ArgumentParser(prog="make fuzz")
    arguments.add_argument("--seconds", type=float, default=60)
    arguments.add_argument("--seed", type=int, default=1)
    chosen = arguments.parse_args()
    findings = _FOLDER / "findings"
    findings.mkdir(parents=True, exist_ok=True)
    share = chosen.seconds / len(READERS)
    code = 0
    for reader in READERS:
        code |= _drive(reader, share * (_COMPARING - 1) / _COMPARING, chosen.seed, findings)
        code |= _compare(reader, share / _COMPARING, chosen.seed, findings)
    return code


def _drive(reader: str, seconds: float, seed: int, findings: Path) -> int:
    try:
        program = build(reader, _FOLDER)
    except NoSanitizers:
        print(f"{reader}: the compiler has no sanitizers; not fuzzed")
        return 0
    known = [str(path) for kind in ("corpus", "reproducers") for path in files_of(reader, kind)]
    raw = findings / f"{reader}.raw"
    command = [str(program), str(max(1, round(seconds))), str(seed), str(raw), *known]
    done = subprocess.run(command, env={**os.environ, **_OPTIONS}, capture_output=True, text=True, check=False)
    print(f"{reader}: {done.stdout.strip() or 'found something'}", flush=True)
    if done.returncode:
        content = raw.read_bytes()
        size = int.from_bytes(content[:8], sys.byteorder)
        _store(findings / f"{reader}-seed-{seed}", content[8 : 8 + size], done.stderr[-4000:])
    raw.unlink(missing_ok=True)
    return int(done.returncode != 0)


def _compare(reader: str, seconds: float, seed: int, findings: Path) -> int:
    """Mutated inputs through both readers of a kind, for as long as they agree."""
    dice = random.Random(seed)
    corpus = [path.read_bytes() for kind in ("corpus", "reproducers") for path in files_of(reader, kind)]
    tokens = _PICKLE if reader == "pickle" else _JSON
    end, runs = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        content = _mutated(dice, corpus, tokens)
        runs += 1
        stated = disagreement(reader, content)
        if stated is not None:
            _store(findings / f"{reader}-differs-seed-{seed}", content, stated)
            return 1
    print(f"{reader}: {runs} inputs compared", flush=True)
    return 0


def _mutated(dice: random.Random, corpus: list[bytes], tokens: tuple[bytes, ...]) -> bytes:
    content = bytearray(dice.choice(corpus))
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(content) + 1)
        size = dice.choice((0, 0, 1, 2, 8))
        other = dice.choice(corpus)
        start = dice.randrange(len(other) + 1)
        piece = dice.choice((dice.choice(tokens), dice.randbytes(1), b"", other[start : start + dice.randrange(40)]))
        content[at : at + size] = piece
    return bytes(content[: 1 << 14])


def _store(path: Path, content: bytes, stated: str) -> None:
    path.write_bytes(content)
    print(f"{stated}\nkept as {path}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
