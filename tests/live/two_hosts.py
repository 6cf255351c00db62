"""Two hosts made of namespaces: each has processes, a name and a network of its own; a cable leads from one to the other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.live.harness import die_with_the_parent, wait_for

_TOOLS = ("ip", "unshare", "nsenter")
_NEW = ("unshare", "--uts", "--pid", "--mount", "--net", "--fork", "--mount-proc", "--kill-child")
_CABLE = "eth0"


@dataclass(frozen=True, slots=True)
class Host:
    """One host: its name, its address, and the process that keeps it up."""

    name: str
    address: str
    pid: int

    @property
    def enter(self) -> tuple[str, ...]:
        """Words before a command that is to run on this host."""
        return ("nsenter", f"--target={self.pid}", "--uts", "--pid", "--mount", "--net", "--")


def why_not() -> str | None:
    """Why there can be no such hosts here; None when there can."""
    if os.geteuid() != 0:
        return "namespaces of a network need root"
    if missing := [name for name in _TOOLS if shutil.which(name) is None]:
        return f"{', '.join(missing)} not installed"
    made = subprocess.run([*_NEW, "ip", "link", "add", _CABLE, "type", "veth"], capture_output=True, text=True, check=False)
    return f"namespaces cannot be made here: {made.stderr.strip()}" if made.returncode else None


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Both, until the block ends; whatever runs on them ends with them."""
    with ExitStack() as stack:
        one, other = (stack.enter_context(_host(f"host-{number}", f"10.77.0.{number}")) for number in (1, 2))
        cable = ("ip", "link", "add", _CABLE, "netns", str(one.pid), "type", "veth")
        _run(*cable, "peer", "name", _CABLE, "netns", str(other.pid))
        for host in (one, other):
            _run(*host.enter, "ip", "address", "add", f"{host.address}/24", "dev", _CABLE)
            for link in ("lo", _CABLE):
                _run(*host.enter, "ip", "link", "set", link, "up")
        yield one, other


def remote_shell(folder: Path, hosts: Sequence[Host]) -> Path:
    """A folder with an `ssh` that runs the command on one of the hosts."""
    enter = "\n".join(f'    {host.name}) exec {" ".join(host.enter)} sh -c "$2" ;;' for host in hosts)
    tool = folder / "ssh"
    tool.write_text(f'#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\ncase "$1" in\n{enter}\nesac\nexit 255\n')
    tool.chmod(0o755)
    return folder


@contextmanager
def _host(name: str, address: str) -> Iterator[Host]:
    keeper = ["sh", "-c", f"hostname {name} && echo up && exec sleep infinity"]
    with subprocess.Popen([*_NEW, *keeper], stdout=subprocess.PIPE, text=True, preexec_fn=die_with_the_parent) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            yield Host(name, address, _child(process.pid))
        finally:
            process.kill()


def _child(pid: int) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_for(lambda: bool(children.read_text().split()), 10, lambda: f"no child of {pid}")
    return int(children.read_text().split()[0])


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)
