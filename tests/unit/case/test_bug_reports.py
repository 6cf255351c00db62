"""Reports of `nvidia-bug-report.sh`: lines of the kernel and GPUs of their host, and nothing of older starts."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from forensics.case.build import open_case

RULE = "____________________________________________\n\n"
HEAD = f"{RULE}Start of NVIDIA bug report log file.  Please include this file\n\nuname: Linux gx-7 5.15.0 x86_64 GNU/Linux\n\n"
XID = "[8811.102215] NVRM: Xid (PCI:0000:{}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
BOOT = "[    0.000000] Linux version 5.15.0\n"


def events(folder: Path, *sections: tuple[str, str]) -> list[tuple[str, str, int]]:
    text = HEAD + "".join(f"{RULE}{name}\n\n{content}\n" for name, content in sections)
    (folder / "nvidia-bug-report.log.gz").write_bytes(gzip.compress(text.encode()))
    with open_case([folder]) as case:
        return case.execute("SELECT host, device, locator FROM device_events ORDER BY ALL").fetchall()


@pytest.mark.parametrize(
    "name", ["/usr/bin/dmesg:", "*** /var/log/kern.log", "/bin/journalctl -b -0 _COMM=x", "/usr/bin/journalctl -k -b"]
)
def test_lines_of_the_kernel_are_of_the_host(name: str, tmp_path: Path) -> None:
    found = events(tmp_path, ("*** /proc/driver/nvidia/./version", "NVRM version: x\n"), (name, BOOT + XID.format("9d")))
    text = gzip.decompress((tmp_path / "nvidia-bug-report.log.gz").read_bytes()).decode()
    assert found == [("gx-7", "0000:9d:00", text[: text.index("NVRM: Xid")].count("\n") + 1)]


def test_each_line_counts_once(tmp_path: Path) -> None:
    kernel, older = BOOT + XID.format("9d"), BOOT + XID.format("1b")
    sections = (("/bin/journalctl -b -1", older), ("/usr/bin/dmesg:", kernel), ("/bin/journalctl -b -0", kernel))
    assert [device for _, device, _ in events(tmp_path, *sections)] == ["0000:9d:00"]


def test_what_is_no_such_report(tmp_path: Path) -> None:
    (tmp_path / "dmesg.txt").write_text(BOOT + XID.format("9d"))
    with open_case([tmp_path]) as case:
        assert case.execute("SELECT path FROM sources").fetchall() == [("dmesg.txt",)]
