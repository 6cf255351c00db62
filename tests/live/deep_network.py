"""Ranks that live in network namespaces of their own, so that a link between them can be cut while the job runs (root only)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.live import commands
from tests.live.faults import ALL, WORLD, Answer, Fault, Position
from tests.live.harness import JOBS, DumpRequest, Job, free_port, rank_env, running_rank

DEVICE = "net0"
PREFIX = "10.213.77"
FIRST = f"{PREFIX}.1"


@dataclass(frozen=True, slots=True)
class Network:
    """A bridge with one namespace a rank."""

    tag: str

    def address(self, rank: int) -> str:
        return f"{PREFIX}.{rank + 1}"

    def namespace(self, rank: int) -> str:
        return f"{self.tag}-{rank}"

    def cut_pair(self, one: int, other: int) -> None:
        """Drop what the two ranks send to each other; both still reach the rest."""
        for rank, peer in ((one, other), (other, one)):
            ip("-n", self.namespace(rank), "route", "add", "blackhole", f"{self.address(peer)}/32")

    def cut_off(self, rank: int) -> None:
        """Take the switch port of a rank down."""
        ip("link", "set", f"{self.tag}p{rank}", "down")


@contextmanager
def network(world: int = WORLD) -> Iterator[Network]:
    """Build the namespaces and take them away again."""
    net = Network(f"fx{os.getpid() % 100000}")
    with ExitStack() as stack:
        ip("link", "add", net.tag, "type", "bridge")
        stack.callback(ip, "link", "del", net.tag)
        ip("link", "set", net.tag, "up")
        for rank in range(world):
            ip("netns", "add", net.namespace(rank))
            stack.callback(ip, "netns", "del", net.namespace(rank))
            plug_in(net, rank)
            # Sockets that still send keep a namespace, and with it the link, alive after its deletion.
            stack.callback(ip, "link", "del", f"{net.tag}p{rank}")
        yield net


def plug_in(net: Network, rank: int) -> None:
    inside, port = net.namespace(rank), f"{net.tag}p{rank}"
    ip("link", "add", port, "type", "veth", "peer", "name", DEVICE, "netns", inside)
    ip("link", "set", port, "master", net.tag, "up")
    ip("-n", inside, "address", "add", f"{net.address(rank)}/24", "dev", DEVICE)
    for device in ("lo", DEVICE):
        ip("-n", inside, "link", "set", device, "up")


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@contextmanager
def launch_apart(net: Network, script: str, env: Mapping[str, str], world: int = WORLD) -> Iterator[Job]:
    """Like `launch`, with every rank in its own namespace."""
    port = free_port()
    shared = {**os.environ, **env, "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    shared |= {"MASTER_ADDR": net.address(0), "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": DEVICE}
    command = [sys.executable, str(JOBS / script)]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="job-", ignore_cleanup_errors=True)))
        ranks = []
        for rank in range(world):
            inside = ["ip", "netns", "exec", net.namespace(rank), *command]
            own = shared | rank_env(folder, rank, DumpRequest.SERVER)
            ranks.append(stack.enter_context(running_rank(folder / f"rank{rank}.log", inside, own)))
        yield Job(folder, port, tuple(ranks))


@contextmanager
def link_of_a_pair_cut(folder: Path, at: Position) -> Iterator[Job]:
    with network() as net, launch_apart(net, "train_diffusion.py", {"OUTPUT_DIR": str(folder), "SAVE_EVERY": "1000000"}) as job:
        job.wait_steps(at.step)
        net.cut_pair(at.victim, (at.victim + 1) % WORLD)
        job.wait_hang()
        yield job


@contextmanager
def link_of_a_rank_cut(folder: Path, at: Position) -> Iterator[Job]:
    with network() as net, launch_apart(net, "train_diffusion.py", {"OUTPUT_DIR": str(folder), "SAVE_EVERY": "1000000"}) as job:
        job.wait_steps(at.step)
        net.cut_off(at.victim)
        job.wait_hang()
        yield job


def collect_apart(job: Job, bundle: Path) -> None:
    """Collect from outside the namespaces."""
    commands.forensics(["collect", "-o", str(bundle), "--job", f"{FIRST}:{job.port}"])


def both_ends_or_everybody(at: Position) -> tuple[tuple[int, ...], ...]:
    ends = sorted((at.victim, (at.victim + 1) % WORLD))
    return (tuple(ends), ALL)


def cut_rank_or_everybody(at: Position) -> tuple[tuple[int, ...], ...]:
    return ((at.victim,), ALL)


CUTS = (
    Fault(link_of_a_pair_cut, Position(1, 20), Answer(("network_down", "unknown"), ranks=both_ends_or_everybody)),
    Fault(link_of_a_rank_cut, Position(2, 20), Answer(("network_down", "unknown"), ranks=cut_rank_or_everybody)),
)
