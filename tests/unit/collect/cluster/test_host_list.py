from __future__ import annotations

import pytest

from forensics.collect.cluster.host_list import MOST_HOSTS, expand_hosts


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a[01-03]", ["a01", "a02", "a03"]),
        ("a[8-11]", ["a8", "a9", "a10", "a11"]),
        ("a[098-101]", ["a098", "a099", "a100", "a101"]),
        ("a[1,3-4,07]", ["a1", "a3", "a4", "a07"]),
        ("a[0-8/4]-ib", ["a0-ib", "a4-ib", "a8-ib"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
        ("b, a[1-2]\nb c.example.org", ["b", "a1", "a2", "c.example.org"]),
        ("root@gpu-1,10.0.0.7,fe80::1", ["root@gpu-1", "10.0.0.7", "fe80::1"]),
    ],
)
def test_lists_as_people_write_them(text: str, hosts: list[str]) -> None:
    assert list(expand_hosts(text)) == hosts


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "no host"),
        (" , ", "no host"),
        ("a[1-", "brackets"),
        ("a]1[", "brackets"),
        ("a[[1]]", "brackets"),
        ("a[3-1]", "3-1"),
        ("a[x]", "'x'"),
        ("a[]", "''"),
        ("a[0-99999999]", "range of hosts"),
        ("a[0-999]b[0-999]", str(MOST_HOSTS)),
        ("-oProxyCommand=reboot", "-oProxyCommand"),
        ("a;reboot", "a;reboot"),
        ("$(reboot)", "reboot"),
        ("../a", "../a"),
    ],
)
def test_what_is_no_list_is_refused_with_its_part(text: str, word: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        expand_hosts(text)
    assert word in str(refused.value)


def test_set_operations_are_those_of_cluster_shell() -> None:
    assert list(expand_hosts("a[1-4]!a3")) == ["a1", "a2", "a4"]
    with pytest.raises(ValueError, match="hosts, or names"):
        expand_hosts("@nosuchgroup")


def test_set_operations_without_cluster_shell_say_what_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ClusterShell.NodeSet", None)
    with pytest.raises(ValueError, match="need ClusterShell"):
        expand_hosts("@compute")
