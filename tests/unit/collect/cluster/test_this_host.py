"""`--local`: this host is collected by this very program, beside those that a launcher asks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.bundle.verification import Weight, verify
from tests.recordings.commands import Command
from tests.unit.collect.cluster.stand_ins import install
from tests.unit.collect.real_processes import SLEEP, running


@pytest.mark.slow
def test_this_host_is_collected_beside_one_that_does_not_answer(
    tmp_path: Path, forensics: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "bin", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    port = str(20000 + os.getpid() % 20000)
    environ = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with running(SLEEP, env=environ):
        answer = forensics(
            *("collect", "-o", tmp_path / "job.tar", "--local", "--hosts", "dead1", "--job", f"127.0.0.1:{port}"),
            *("--samples", "1", "--interval", "0.05"),
        )
    assert answer.code == 0, answer.err
    assert "dead1: node_unreachable" in answer.err
    assert "rank 1 of 2: alive" in answer.err
    bundle = open_bundle([tmp_path / "job.tar"])
    here = os.uname().nodename
    assert {"ranks/1/proc/0.json", f"nodes/{here}/node.json"} <= {artefact.path for artefact in bundle.artefacts}
    assert [one for one in verify(bundle) if one.weight is Weight.ERROR] == []
