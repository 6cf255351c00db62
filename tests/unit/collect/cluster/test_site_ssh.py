"""What a site has written down for clush counts for `--hosts`, and what is not there stays as it is without ClusterShell."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from forensics.collect.cluster.launchers import Places, targets, usual_width
from forensics.collect.cluster.site_ssh import site_ssh
from forensics.errors import ForensicsError

COMMAND = ["forensics", "collect"]


@pytest.fixture
def clush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The clush.conf of the user; that of the site is empty of what these tests set."""
    monkeypatch.delenv("CLUSTERSHELL_CFGDIR", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "clustershell").mkdir()
    return tmp_path / "clustershell/clush.conf"


def test_path_options_user_and_fanout_are_those_of_the_site(clush: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ana")
    clush.write_text(
        "[Main]\nfanout: 8\nconnect_timeout: 7.5\nssh_user: ops\n"
        "ssh_path: sshpass -f ~/key /opt/ssh\nssh_options: -i ~/.ssh/cluster -oProxyJump=%r@login\n"
    )
    (target,) = targets(Places(hosts="gpu1"), COMMAND)
    argv = list(target.argv)
    assert argv[:7] == ["sshpass", "-f", "/home/ana/key", "/opt/ssh", "-i", "/home/ana/.ssh/cluster", "-oProxyJump=%r@login"]
    assert argv[-5:] == ["-l", "ops", "--", "gpu1", "forensics collect"]
    assert argv.index("ConnectTimeout=8") < argv.index("ConnectTimeout=15")
    assert "BatchMode=yes" in argv
    assert usual_width(Places(hosts="gpu1")) == 8


def test_what_the_file_leaves_out_is_ours(clush: Path) -> None:
    clush.write_text("[Main]\nssh_options:\nfanout: 0\n")
    (target,) = targets(Places(hosts="gpu1"), COMMAND)
    assert target.argv[0] == "ssh" and "-l" not in target.argv
    assert usual_width(Places(hosts="gpu1")) == 64


def test_the_fanout_of_ssh_is_not_that_of_slurm(clush: Path) -> None:
    clush.write_text("[Main]\nfanout: 8\n")
    assert usual_width(Places(slurm="77")) == 64


@pytest.mark.parametrize(
    ("text", "words"),
    [("fanout: 8\n", "no section headers"), ("[Main]\nfanout: many\n", "many"), ("[Main]\nssh_path: 'a\n", "quotation")],
)
def test_a_file_that_is_none_is_named(text: str, words: str, clush: Path) -> None:
    clush.write_text(text)
    with pytest.raises(ForensicsError, match=f"clush.conf of ClusterShell: .*{words}"):
        site_ssh()


def test_without_cluster_shell_its_files_are_not_read(clush: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clush.write_text("[Main]\nssh_user: ops\n")
    monkeypatch.setitem(sys.modules, "ClusterShell.Defaults", None)
    assert site_ssh().argv[0] == "ssh" and "-l" not in site_ssh().argv
