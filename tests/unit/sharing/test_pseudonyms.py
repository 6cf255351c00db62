"""Names get consistent pseudonyms, and what looks like a name and is none stays."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from forensics.bundle.reader import open_bundle
from forensics.sharing.known_names import stated_hosts, stated_users
from forensics.sharing.pseudonyms import KINDS, Pseudonyms, from_document


def names(*kinds: str, hosts: tuple[str, ...] = (), users: tuple[str, ...] = ()) -> Pseudonyms:
    made = Pseudonyms(frozenset(kinds))
    made.know("hosts", hosts)
    made.know("users", users)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gpu-017 and GPU-017: gpu-0171 gpu-01", "host-00002 and host-00002: gpu-0171 gpu-01"),
        ("nodes/gpu-017/x gpu-017_rank3.log gpu-017.log", "nodes/host-00002/x host-00002_rank3.log host-00002.log"),
        ("gpu-017.cluster.local:29500", "host-00002:29500"),
        ("of=gpu-016.3.4100.999 job-gpu-016-0", "of=host-00001.3.4100.999 job-host-00001-0"),
        ("SLURM_JOB_NODELIST=gpu-[016-017]", "SLURM_JOB_NODELIST=host-00001,host-00002"),
        ("rows a[0-3] of x[1]", "rows a[0-3] of x[1]"),
    ],
)
def test_hosts(text: str, expected: str) -> None:
    assert names("hosts", hosts=("gpu-017", "gpu-016")).apply(text, Counter()) == expected


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1 0.0.0.0 255.255.255.0 NCCL 2.27.5 torch==2.13.0.1 999.1.1.1 v1.2.3.4",
        "std::vector c10d::abc at::add 12:34:56 ::1 dead::beef",
        "0000:0000:0000:0000",
    ],
)
def test_what_is_no_address_stays(text: str) -> None:
    assert names("addresses").apply(text, Counter()) == text


def test_addresses_are_consistent() -> None:
    made, counts = names("addresses"), Counter[str]()
    text = (
        "eth0:10.1.2.3<0> [::ffff:10.1.2.3] 10.1.2.4-rank0 fe80::1:2%ib0 "
        "b8:59:9f:00:11:22 0c42:a103:0065:ab12 2001:0:0:0:0:0:0:9"
    )
    shown = made.apply(text, counts)
    assert (
        shown
        == (
            "eth0:198.18.0.1<0> [::ffff:198.18.0.1] 198.18.0.2-rank0 2001:db8::5%ib0 "
            "02:00:00:00:00:03 0200:0000:0000:0004 2001:db8::6"
        )
        and counts["addresses"] == 7
    )


def test_paths_keep_public_code_and_file_names() -> None:
    made = names("paths", "users", users=("alice",))
    counts: Counter[str] = Counter()
    assert made.apply("/home/alice/moonshot/train.py:57", counts) == "/home/user-00001/dir-00001/train.py:57"
    assert made.apply("--data=/mnt/moonshot/corpus", counts) == "--data=/mnt/dir-00001/dir-00002"
    for kept in (
        "/usr/lib/python3.11/site-packages/torch/nn/modules/linear.py",
        "/proc/4242/task /sys/class/infiniband/mlx5_0 12 tok/s/gpu and/or https://example.org/a/b",
        "/opt/conda/lib/python3.11/site-packages/megatron/core/x.py",
    ):
        assert made.apply(kept, counts) == kept


def test_a_map_is_gone_on_with() -> None:
    first = names(*KINDS, hosts=("b",))
    again = from_document(first.document(), frozenset(KINDS))
    assert again is not None
    again.know("hosts", ["a", "b"])
    assert again.names["hosts"] == {"b": "host-00001", "a": "host-00002"}
    assert from_document({"schema": "other"}, frozenset()) is None
    assert from_document({**first.document(), "hosts": {"a": 1}}, frozenset()) is None


def test_names_are_found_where_they_are_stated(tmp_path: Path) -> None:
    (tmp_path / "bundle.json").write_text('{"nodes": ["dgx-7", "node"], "ranks": {"0": {"node": "dgx-7"}}}')
    (tmp_path / "out.log").write_text(
        "MASTER_ADDR=head-1.example.internal\nopen /home/alice/x\nUSER=bob\nuid=1000(carol) /home/root/\n"
    )
    artefacts = open_bundle([tmp_path]).artefacts
    assert stated_hosts(artefacts) == (frozenset({"dgx-7", "head-1.example.internal", "head-1"}), frozenset({"node"}))
    assert stated_users(artefacts) == {"alice", "bob", "carol"}
