"""The same over a real sshd of this host: the real collector on the other side, and its bundle through the real protocol."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.bundle.verification import Weight, verify
from tests.recordings.commands import Command
from tests.unit.collect.real_processes import SLEEP, eventually, running

ROOT = Path(__file__).resolve().parents[4]
SEARCHED = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Path]:
    """The folder of a running sshd, in which `bin/ssh` is a client that knows it as any host whose name starts with `h`."""
    server, client = shutil.which("sshd", path=SEARCHED), shutil.which("ssh")
    if server is None or client is None:
        pytest.skip("no sshd on this host")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    shutil.copy(tmp_path / "user.pub", tmp_path / "authorized")
    (tmp_path / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/authorized\n"
        "StrictModes no\nUsePAM no\nPidFile none\n"
    )
    trial = subprocess.run([server, "-t", "-f", tmp_path / "sshd_config"], capture_output=True, text=True, check=False)
    if trial.returncode:
        pytest.skip(f"sshd cannot be started here: {trial.stderr.strip()}")
    (tmp_path / "ssh_config").write_text(
        f"Host h*\n  HostName 127.0.0.1\n  Port {port}\n  User {getpass.getuser()}\n  IdentityFile {tmp_path}/user\n"
        "  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n"
        "Host gone\n  HostName 127.0.0.1\n  Port 1\n"
    )
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/ssh").write_text(f'#!/bin/sh\nexec {client} -F {tmp_path}/ssh_config "$@"\n')
    (tmp_path / "bin/ssh").chmod(0o755)
    with subprocess.Popen([server, "-D", "-e", "-f", tmp_path / "sshd_config"], stderr=subprocess.DEVNULL) as daemon:
        try:
            assert eventually(lambda: _listens(port))
            yield tmp_path
        finally:
            daemon.terminate()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_a_job_is_collected_over_ssh(sshd: Path, forensics: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{sshd / 'bin'}:{os.environ['PATH']}")
    address = f"127.0.0.1:{20000 + os.getpid() % 20000}"
    environ = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": address.rpartition(":")[2]}
    there = f"env PYTHONPATH={ROOT} {sys.executable} -m forensics"
    with running(SLEEP, env=environ):
        answer = forensics(
            *("collect", "-o", sshd / "job.tar", "--hosts", "h1,gone", "--remote-command", there, "--job", address),
            *("--samples", "1", "--interval", "0.05"),
        )
    assert answer.code == 0, answer.err
    assert "gone: node_unreachable: exit 255: ssh: connect to host 127.0.0.1 port 1: Connection refused" in answer.err
    assert "rank 0 of 2: alive" in answer.err
    bundle = open_bundle([sshd / "job.tar"])
    paths = {artefact.path for artefact in bundle.artefacts}
    assert {"ranks/0/proc/0.json", f"nodes/{os.uname().nodename}/node.json", "nodes/gone/collectors.jsonl"} <= paths
    assert [one for one in verify(bundle) if one.weight is Weight.ERROR] == []


def test_a_host_without_forensics_says_so(sshd: Path, forensics: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{sshd / 'bin'}:{os.environ['PATH']}")
    answer = forensics("collect", "-o", sshd / "job.tar", "--hosts", "h1", "--remote-command", "/nowhere/forensics")
    assert answer.code == 6
    assert "h1: not_found: forensics could not be started there (--remote-command names it): exit 127" in answer.err
