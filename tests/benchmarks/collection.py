"""A collection beside eight ranks on this host: how long it takes, and what it costs the ranks.

`python -m tests.benchmarks.collection`. The ranks are Python processes that compute a little, fifty times a second, and leave
the processors free: what another process takes from them shows.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

RANKS = 8
_PORT = 29877
_WARM_S = 3.0
_WORK = "import time\nwhile True: sum(range(9000)); time.sleep(0.02)"
_TICK = os.sysconf("SC_CLK_TCK")


@contextmanager
def ranks() -> Iterator[list[int]]:
    """Process numbers of the ranks, until the block ends."""
    shared = os.environ | {"WORLD_SIZE": str(RANKS), "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1"}
    with ExitStack() as stack:
        started: list[int] = []
        for rank in range(RANKS):
            environ = shared | {"RANK": str(rank), "LOCAL_RANK": str(rank), "MASTER_PORT": str(_PORT)}
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", _WORK], env=environ))
            stack.callback(process.kill)
            started.append(process.pid)
        time.sleep(_WARM_S)
        yield started


def used(pids: Sequence[int]) -> float:
    """Processor time of the processes so far (s)."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split() for pid in pids]
    return sum(int(ticks) for each in fields for ticks in each[11:13]) / _TICK


def beside(pids: Sequence[int], work: Callable[[], object]) -> tuple[float, float]:
    """(wall time of the work in s, share of a core that a rank used meanwhile)."""
    before, begin = used(pids), time.monotonic()
    work()
    wall = time.monotonic() - begin
    return wall, (used(pids) - before) / len(pids) / wall


def main() -> None:
    """Print both, without and with a collection, twice in turn."""
    with tempfile.TemporaryDirectory() as folder, ranks() as pids:
        command = [sys.executable, "-m", "forensics", "collect", "--force", "--job", f"127.0.0.1:{_PORT}", "-o"]
        collect = [*command, f"{folder}/bundle.tar"]
        for _ in range(2):
            wall, share = beside(pids, lambda: time.sleep(10))
            print(f"nothing beside: {share:.2%} of a core a rank")
            wall, share = beside(pids, lambda: subprocess.run(collect, check=True, stderr=subprocess.DEVNULL))
            print(f"collection: {wall:.1f} s, {share:.2%} of a core a rank")


if __name__ == "__main__":
    main()
