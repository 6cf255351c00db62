"""A real job over two hosts hangs: one command collects from both, and what is shared of it leads to the same verdict."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.live import inputs
from tests.live.commands import INCONCLUSIVE, ROOT, diagnose, forensics
from tests.live.harness import JOBS, DumpRequest, Job, rank_env, running_rank
from tests.live.two_hosts import Host, remote_shell, two_hosts, why_not
from tests.unit.report.test_browser import BROWSER, browse

PORT = 29511
pytestmark = [pytest.mark.live, pytest.mark.alone]


@contextmanager
def job_over(hosts: tuple[Host, Host], folder: Path) -> Iterator[Job]:
    """A rank on each host; rank 0 opens a snapshot that nobody reads, and rank 1 waits for it in a barrier."""
    inputs.blocked_file(folder / "model-000020.pt")
    shared = os.environ | {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": str(PORT), "GLOO_SOCKET_IFNAME": "eth0"}
    script = [sys.executable, str(JOBS / "train_vit.py"), "--output", str(folder), "--save-every", "20"]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                running_rank(
                    folder / f"rank{rank}.log",
                    [*host.enter, *script],
                    shared | rank_env(folder, rank, DumpRequest.SERVER) | {"LOCAL_RANK": "0"},
                )
            )
            for rank, host in enumerate(hosts)
        ]
        job = Job(folder, PORT, tuple(processes))
        job.wait_steps(20)
        yield job


def test_a_job_over_two_hosts_from_the_hang_to_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    bundle, shared, page = tmp_path / "job.tar", tmp_path / "shared.tar", tmp_path / "page.html"
    with two_hosts() as hosts, job_over(hosts, tmp_path):
        monkeypatch.setenv("PATH", f"{remote_shell(tmp_path, hosts)}:{os.environ['PATH']}")
        there = f"env PYTHONPATH={ROOT} {sys.executable} -m forensics"
        options = ["--samples", "2", "--interval", "0.5", "--remote-command", there]
        forensics(["collect", "-o", str(bundle), "--hosts", "host-[1-2]", *options])
    verdict = diagnose(bundle)
    assert verdict["outcome"] == "hang" and verdict["suspects"][0]["ranks"] == [0], verdict["summary"]
    assert verdict["suspects"][0]["hosts"] == ["host-1"]
    assert {row["host"] for row in verdict["clocks"]} == {"host-1", "host-2"}
    assert all(abs(row["offset_ns"]) <= row["bound_ns"] for row in verdict["clocks"]), "both read the clock of one kernel"
    forensics(["verify", str(bundle)])
    forensics(["redact", str(bundle), "-o", str(shared), "--pseudonyms", "hosts", "--map", str(tmp_path / "map.json")])
    again = diagnose(shared)
    assert again["suspects"][0]["ranks"] == [0] and "host-1" not in json.dumps(again)
    assert len(again["clocks"]) == 2
    forensics(["diagnose", str(shared), "--format", "html", "-o", str(page)], INCONCLUSIVE)
    assert "CLOCKS OF HOSTS" in page.read_text(encoding="utf-8")
    if BROWSER is not None:
        assert "CLOCKS OF HOSTS" in browse(tmp_path, "--dump-dom").stdout
