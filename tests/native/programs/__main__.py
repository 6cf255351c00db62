"""Replay random programs: `python -m tests.native.programs SEED [--linkage full] [--count 1] [--without kinds]`."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from tests.native.programs.building import build, collector
from tests.native.programs.comparing import Collector, difference, differing, first_change


def main() -> int:
    """Print the difference that the collector makes to one program, or a line for each of many that differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.native.programs", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--linkage", default="full", help="how the program reaches NCCL: full, inner, old, plain, opened, ...")
    parser.add_argument(
        "--count", type=int, default=1, help="this many seeds, and of each difference only the line that matters"
    )
    parser.add_argument("--without", default="", help="letters of the misfortunes to leave out (enum kind in program.h)")
    parser.add_argument("--shim", type=Path, help="a collector that is built already")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="programs-") as name:
        linkage = build(Path(name) / "programs")[chosen.linkage]
        linkage.env["PROGRAMS_WITHOUT"] = chosen.without
        watched = Collector((str(chosen.shim or collector(Path(name) / "libforensics_shim.so")),))
        if chosen.count == 1:
            text = difference(linkage, chosen.seed, watched)
            print(text or "no difference")
            return 1 if text else 0
        seeds = differing(linkage, range(chosen.seed, chosen.seed + chosen.count), watched)
        for seed in seeds:
            print(seed, first_change(difference(linkage, seed, watched)))
        print(f"{len(seeds)} of {chosen.count} differ")
        return 1 if seeds else 0


if __name__ == "__main__":
    raise SystemExit(main())
