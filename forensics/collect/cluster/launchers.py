"""How a command is started on each host of a job with what the cluster has: srun, ssh, kubectl, or nothing at all.

Slurm: `--overlap` shares the processors of the job's own step, and `--gres=none` asks for no GPU: else the step would wait for
the hung job to end (srun(1), Slurm 20.11 and newer). Kubernetes: `kubectl exec -i POD -- COMMAND`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from forensics.collect.cluster.host_list import expand_hosts
from forensics.collect.cluster.site_ssh import site_ssh
from forensics.errors import ExitCode, ForensicsError

COMMAND = "forensics"
"""How the program is called on other hosts unless the user says otherwise."""

_ASK_S = 30
_WIDTH = 64
_POD = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")
# Of a step the environment says what the step asked for; of the collector's own only this is wanted.
_SLURM_KEPT = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")


@dataclass(frozen=True, slots=True)
class Target:
    """One place to collect from: `argv` starts the command there. `refusal` says why there is nobody to ask."""

    name: str
    argv: tuple[str, ...] = ()
    environ: Mapping[str, str] | None = field(default=None, repr=False)
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """Where to collect, as the user said it: a list of hosts, a Slurm job, a selector of pods, this host."""

    hosts: str = ""
    slurm: str = ""
    k8s: str = ""
    namespace: str = ""
    container: str = ""
    local: bool = False

    @property
    def any(self) -> bool:
        """Whether more than the default is asked for."""
        return bool(self.hosts or self.slurm or self.k8s or self.local)


def usual_width(places: Places) -> int:
    """How many hosts are asked at a time unless the user says: with hosts by ssh as many as the site's ClusterShell would."""
    return (site_ssh().width if places.hosts else None) or _WIDTH


def targets(places: Places, command: Sequence[str]) -> tuple[Target, ...]:
    """One target for each host or pod, by name; ForensicsError where the cluster cannot be asked or has none."""
    found = [_local(command)] if places.local else []
    if places.hosts:
        site = site_ssh()
        found += [_ssh(host, site.argv, command) for host in _expanded(places.hosts, "--hosts")]
    if places.slurm:
        found += _slurm(places.slurm, command)
    if places.k8s:
        found += _pods(places, command)
    return tuple({target.name: target for target in reversed(found)}[name] for name in sorted({one.name for one in found}))


def _expanded(text: str, option: str) -> tuple[str, ...]:
    try:
        return expand_hosts(text)
    except ValueError as error:
        raise ForensicsError(f"{option}: {error}", ExitCode.USAGE) from error


def _local(command: Sequence[str]) -> Target:
    """Here it is this very program unless the user names another."""
    here = (sys.executable, "-m", "forensics") if command[0] == COMMAND else (command[0],)
    return Target(os.uname().nodename, (*here, *command[1:]))


def _ssh(host: str, ssh: tuple[str, ...], command: Sequence[str]) -> Target:
    """The command is one word for the shell on the other side."""
    return Target(host.rpartition("@")[2], (*ssh, "--", host, shlex.join(command)))


def _slurm(job: str, command: Sequence[str]) -> list[Target]:
    """A step of its own for each node: a node that hangs then holds up nobody else."""
    if not re.fullmatch(r"\d{1,12}(?:[_+]\d{1,7})?", job):
        raise ForensicsError(f"--slurm {job}: not the number of a job", ExitCode.USAGE)
    listed = _asked(("squeue", "--noheader", f"--jobs={job}", "--states=RUNNING,COMPLETING,SUSPENDED", "--format=%N"))
    names = ",".join(listed.decode("utf-8", "replace").split())
    if not names:
        raise ForensicsError(f"--slurm {job}: squeue shows no nodes: the job does not run any more", ExitCode.NO_RANKS)
    environ = {key: value for key, value in os.environ.items() if not key.startswith("SLURM_") or key in _SLURM_KEPT}
    flags = (
        "--overlap",
        f"--jobid={job}",
        "--nodes=1",
        "--ntasks=1",
        "--gres=none",
        "--mem=0",
        "--cpu-bind=none",
        "--unbuffered",
    )
    return [
        Target(node, ("srun", *flags, "--quiet", f"--nodelist={node}", *command), environ)
        for node in _expanded(names, "--slurm")
    ]


def _pods(places: Places, command: Sequence[str]) -> list[Target]:
    """Pods by their selector; one that does not run is a target that nobody can ask."""
    scope = (f"--namespace={places.namespace}",) if places.namespace else ()
    try:
        document = orjson.loads(_asked(("kubectl", "get", "pods", *scope, f"--selector={places.k8s}", "--output=json")))
        found = [_pod(item, places, scope, command) for item in document["items"]]
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError):
        raise ForensicsError("kubectl get pods: its answer is no list of pods", ExitCode.UNREADABLE) from None
    if not found:
        raise ForensicsError(f"--k8s {places.k8s}: no pod has these labels", ExitCode.NO_RANKS)
    return found


def _pod(item: Mapping[str, Any], places: Places, scope: tuple[str, ...], command: Sequence[str]) -> Target:
    name, phase = str(item["metadata"]["name"]), str(item.get("status", {}).get("phase"))
    if not _POD.fullmatch(name):
        raise LookupError(name)
    if phase != "Running":
        return Target(name, refusal=f"the pod is {phase[:40]}, not running")
    container = (f"--container={places.container}",) if places.container else ()
    return Target(name, ("kubectl", "exec", "-i", *scope, name, *container, "--", *command))


def _asked(argv: tuple[str, ...]) -> bytes:
    """What a command of the cluster answers."""
    said = shlex.join(argv)
    try:
        run = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False)
    except subprocess.TimeoutExpired:
        raise ForensicsError(f"{said}: no answer in {_ASK_S} s", ExitCode.UNREADABLE) from None
    except OSError as error:
        raise ForensicsError(f"{argv[0]}: {error.strerror}", ExitCode.USAGE) from error
    if run.returncode:
        words = " ".join(run.stderr.decode("utf-8", "replace").split())[:300]
        raise ForensicsError(f"{said}: exit {run.returncode}: {words}", ExitCode.UNREADABLE)
    return run.stdout
