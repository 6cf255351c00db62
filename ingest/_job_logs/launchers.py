"""How launchers other than torchrun say that a process ended: MPI, Horovod, DeepSpeed, torch's spawn, Ray.

Upstream: `help-orterun.txt` of Open MPI and of PRRTE, src/pm/hydra of pmodels/mpich, horovod/runner/gloo_run.py,
deepspeed/launcher/launch.py, torch/distributed/launch.py before 1.9, torch/multiprocessing/spawn.py, Ray Train, composer/cli/
launcher.py of MosaicML, jsrun of LSF, Azure Machine Learning, the subprocess launcher of Lightning, the executors of vLLM,
paddle/distributed/fleet/launch_utils.py and launch/controllers of PaddlePaddle, mindspore/parallel/cluster/process_entity.
A rank in MPI_COMM_WORLD is that of the job. DeepSpeed and the old launch.py print the command of the last process of the node,
whichever failed. The number of a spawned process counts on its host.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping

from forensics.ingest._job_logs import ray_actors
from forensics.ingest._job_logs.ended import DESCRIBED, Ended
from forensics.ingest._job_logs.patterns import mentions
from forensics.ingest._job_logs.ray_actors import RayActors
from forensics.ingest._shared.values import rank_number

WORDS = (
    *("exited on", "exited due to", "Process name:", "Exit code:", " RUNNING AT ", "KILLED BY SIGNAL:", "EXIT STATUS:"),
    *("MPI_ABORT was", " called MPI_Abort(", " exit with exception."),
    *("exits with return code", "CalledProcessError: ", "exit with status code", " terminated with ", "Error Snippet]"),
    *(" crashed with exit code", " exited with code ", " died unexpectedly", *ray_actors.WORDS),
    " received at time=",
    " failed to start",
    "Expected zero exit code",
    "signaled to shutdown",
    " died from signal ",
    "the trainer process with rank=",
    "ray::",
    "eplica ",
    " status failed cmd ",
    "Process 'worker on rank ",
)
START_WORDS = (
    *ray_actors.STARTS,
    "torchrun ",
    "accelerate launch ",
    "deepspeed ",
    "mpirun ",
    "mpiexec ",
    "horovodrun ",
    "-m torch.distributed.",
    "# nThread ",
)
_START = re.compile(
    r"(?:\([\w.-]{1,64}\) )?(?:\[?[\w.-]{1,64}@[^$#]{1,160})?[$#] (?:\w{1,64}=\S{0,200} ){0,16}"
    r"(?:torchrun|accelerate launch|deepspeed|mpirun|mpiexec|horovodrun|python3? -m torch\.distributed\.\w+) "
    r"(?!-{1,2}(?:version|help|V|h)\b)"
    # The first line of each program of nccl-tests.
    r"|# nThread \d"
)
_NODE = re.compile(r" --(?:node|machine)[_-]rank[= ](\d{1,5})\b")
_LONGEST_BLOCK = 256
_NOTICED = re.compile(
    r"process rank (?P<rank>\d{1,7}) with PID (?P<pid>\S{1,32}) on node \S{1,255} exited on"
    r"(?: signal (?P<signal>\d{1,2})|\s*$)"
)
# A process that left without the end that MPI asks for; the line breaks before or behind the name of the node.
_LEFT = re.compile(r" has exited due to process rank (?P<rank>\d{1,7}) with PID (?P<pid>\S{1,32}) on\b")
# Elastic Horovod counts processes on their host, as their ranks may change.
_NAMED = re.compile(
    r"Process name: (?:\[\[\d{1,10},\d{1,10}\],(?P<mpi>\d{1,7})\]|(?:(?P<gloo>\d{1,7})|(?P<slot>[\w.-]{1,253}\[\d{1,5}\]))\s*$)"
)
_RUNNING = re.compile(r"(?:RANK (?P<rank>\d{1,7}) )?PID (?P<pid>\d{1,9}) RUNNING AT (?:[\w.-]{1,64}@)?(?P<host>[\w.-]{1,253})")
_ABORTED = re.compile(
    r"MPI_ABORT was (?:invoked|called) (?:on|by) "
    r"(?:rank (?P<rank>\d{1,7})|process \[\[\d{1,10},\d{1,10}\],(?P<process>\d{1,7})\])"
)
# MPICH, and what is made of it (Intel MPI, Cray): each of several processes may write it.
_OF_MPICH = re.compile(r"application called MPI_Abort\(MPI_COMM_WORLD, (?P<code>-?\d{1,10})\) - process (?P<rank>\d{1,7})\b")
_CODE = re.compile(r"(?P<how>^signal|Exit code|EXIT STATUS|EXIT CODE|KILLED BY SIGNAL|[Ee]rror ?code):? +(?P<code>-?\d{1,5})")
_STATUS = re.compile(r"Process (?P<rank>\d{1,7}) exit with status code (?P<code>-?\d{1,5})")
_RETURNED = re.compile(r"exits with return code = (?P<code>-?\d{1,5})")
_CALLED = re.compile(r"(?:returned non-zero exit status (?P<code>\d{1,3})|died with <Signals\.\w{3,12}: (?P<signal>\d{1,2})>)")
_LAST_LOCAL = re.compile(r"--local[_-]rank=(?P<local>\d{1,5})")
_SPAWNED = re.compile(
    r"[Pp]rocess (?P<local>\d{1,5}) terminated with "
    r"(?:signal (?P<signal>SIG[A-Z0-9]{2,8})|exit code (?P<code>-?\d{1,5})|the following error)"
)
_CRASHED = re.compile(r"\bRank (?P<rank>\d{1,7}) crashed with exit code (?P<code>-?\d{1,5})")
_GLOBAL = re.compile(r"Global rank (?P<rank>\d{1,7}) \(PID (?P<pid>\d{1,9})\) exited with code (?P<code>-?\d{1,5})")
_EXPECTED = re.compile(r"Expected zero exit code but got (?P<code>-\d{1,2}) for pid: (?P<pid>\d{1,9})\b")
_CHILD = re.compile(r"Child process with PID (?P<pid>\d{1,9}) terminated with code (?P<code>-?\d{1,5})")
# msrun of MindSpore, of each worker that it finds ended when it looks.
_OF_MSRUN = re.compile(r"\] Worker process (?P<pid>\d{1,9}) exit with exception\.")
_WORKER = re.compile(r"(?:Worker proc VllmWorker-|RayWorkerProc rank=\[)(?P<rank>\d{1,7})\]? died unexpectedly")
# A driver hears of the first task that raises; its peers may raise the same, so it is no end of a rank.
_RAISED = re.compile(
    r"(?:ray\.exceptions\.RayTaskError(?:\((?P<error>\w{1,80})\))?: |^\s{0,24})ray::[\w.:<>-]{1,200}\(\) "
    r"\(pid=(?P<pid>\d{1,9})(?:, ip=(?P<address>[\w.:]{1,45}))?(?:, [^)]{0,160}?\[rank=(?P<rank>\d{1,7})\])?"
)
_LOST_ANOTHER = frozenset({"ActorDiedError", "RayActorError", "ActorUnavailableError", "DistBackendError", "EngineDeadError"})
# PaddlePaddle: of trainers that were seen at once none is stated to be the first; the number of a container counts on its host.
_TRAINERS = re.compile(r"Out of all \d{1,7} trainers, the trainer process with rank=\[(?P<ranks>\d{1,7}(?:, \d{1,7}){0,255})\]")
_CONTAINER = re.compile(r"^Container rank (?P<local>\d{1,5}) status failed cmd .{1,2000}? code (?P<code>-?\d{1,5}) log ")
# Vertex AI, of the replica of a pool of workers.
_POOL = re.compile(r"[Rr]eplica (?P<pool>workerpool\d{1,3}-\d{1,5}) exited with a non-zero status of (?P<code>\d{1,3})\b")
# text-generation-inference; of shards that were killed together none is stated to be the first.
_SHARD = re.compile(r"Shard process was signaled to shutdown with signal (?P<signal>\d{1,2}) rank=(?P<rank>\d{1,7})\b")
# The launcher hears of the first shard that ends before it is ready, and ends the others for it.
_UNREADY = re.compile(r"text_generation_launcher: Shard (?P<rank>\d{1,7}) failed to start\b")
# mpiexec of PALS (HPE Cray EX) prints the ends of the ranks as it learns of them, those that it ended included.
_LISTED = re.compile(
    r"^(?:\S{1,255}: )?rank (?P<rank>\d{1,7}) "
    r"(?:died from signal (?P<signal>\d{1,2})(?: and dumped core)?|exited with code (?P<code>\d{1,3}))$"
)
# jsrun of LSF.
_NOTICED_FIRST = re.compile(
    r"One or more process(?:es)? \(first noticed rank (?P<rank>\d{1,7})\) terminated with signal (?P<signal>\d{1,2})\b"
)
# Azure Machine Learning, of all processes in no order; those that it ended itself follow from another one.
_OF_AZURE = re.compile(
    r"Process 'worker on rank (?P<rank>\d{1,7}) and node \d{1,5}' exited with code (?P<code>-?\d{1,5})\b"
    r"(?!.{0,160}terminated by the runtime due to failure in other processes)"
)
# The ranks of an engine are those of the job where there is one engine, which calls itself the first replica.
_REPLICA = re.compile(r"_DP[1-9]")
# Signals that no peer causes.
_UNCAUSED = frozenset({-signal.SIGKILL, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE})
# A signal that nobody sends, as the handler of the process itself reports it.
_CRASH = re.compile(r"\b[EF] (?P<pid>\d{1,9}) \d{1,9}\] \S{1,40}: \*\*\* (?P<signal>SIG(?:BUS|SEGV|ILL|FPE)) received at time=")


class Starts:
    """Commands at a prompt that start a job, and all workers of Ray Train: each begins another attempt, but on another node."""

    def __init__(self) -> None:
        self._nodes: set[str] = set()

    def begins(self, line: str) -> bool:
        """Whether this line begins one; the command of a node of which none was given yet belongs to that of the others."""
        if not mentions(line, START_WORDS) or not (_START.match(line) or mentions(line, ray_actors.STARTS)):
            return False
        stated = _NODE.search(line)
        is_another_node = stated is not None and bool(self._nodes) and stated[1] not in self._nodes
        self._nodes = {*(self._nodes if is_another_node else ()), *((stated[1],) if stated else ())}
        return not is_another_node


class LauncherEnds:
    """Reads what launchers say, some over two lines: who, and then how."""

    def __init__(self) -> None:
        self._named: tuple[int | None, str] | None = None
        self._code: tuple[str, int] | None = None
        self._actors = RayActors()
        self._signals: dict[str, str] = {}
        self._lines = 0
        self._is_listing = False

    @property
    def actors(self) -> Mapping[tuple[str, str | None], int]:
        """Ranks of actors of Ray that died, by number and address of their process."""
        return self._actors.found

    @property
    def is_open(self) -> bool:
        """Whether somebody is named whose end is stated next."""
        return self._named is not None or self._actors.is_open

    def feed(self, line: str) -> Iterator[Ended]:
        """What this line completes."""
        self._lines += 1
        if self._lines > _LONGEST_BLOCK:
            self._named = None
        if not self.is_open and not mentions(line, WORDS):
            return
        yield from _mpi(line)
        yield from _last_command(line)
        if spawned := _SPAWNED.search(line):
            # The first in order is reported: an error of the program may be that of all.
            killed = f"{_signal(spawned['signal'])} local_rank={spawned['local']}" if spawned["signal"] else None
            yield Ended(None, f"exitcode={killed or spawned['code'] or 1}")
        if ray := ray_actors.SNIPPET.search(line):
            yield from (Ended(rank_number(rank), "exitcode=1") for rank in ray["ranks"].split(","))
        yield from _by_process(line)
        yield from self._actor(line)
        yield from self._listed(line)
        yield from self._over_two_lines(line)

    def _listed(self, line: str) -> Iterator[Ended]:
        """Ends of ranks in no order; a kill below another end may be the launcher's own."""
        if listed := _LISTED.match(line):
            number = f"-{listed['signal']}" if listed["signal"] else listed["code"]
            late = " late" if self._is_listing and number == f"-{int(signal.SIGKILL)}" else ""
            self._is_listing = True
            yield Ended(rank_number(listed["rank"]), f"exitcode={number} time=list by=mpi{late}")

    def _actor(self, line: str) -> Iterator[Ended]:
        yield from self._actors.feed(line, self._signals)
        if crashed := _CRASH.search(line):
            self._signals[crashed["pid"]] = _signal(crashed["signal"])

    def _over_two_lines(self, line: str) -> Iterator[Ended]:
        before = self._named
        named, running, aborted = _NAMED.search(line), _RUNNING.search(line), _ABORTED.search(line)
        noticed = _NOTICED.search(line)
        if named:
            slot = f" slot={named['slot']}" if named["slot"] else ""
            self._named = rank_number(named["mpi"] or named["gloo"] or ""), f"{slot} first by=mpi"
        elif noticed and not noticed["signal"]:
            self._named = rank_number(noticed["rank"]), " first by=mpi"
        elif running:
            self._named = rank_number(running["rank"] or ""), f" pid={running['pid']} host={running['host']} by=mpi"
        elif aborted:
            self._named = rank_number(aborted["rank"] or aborted["process"]), " first by=mpi"
        code = _CODE.search(line)
        if code and self._named is None and code["how"] == "Exit code":
            self._code = code["code"], self._lines
        if named and named["gloo"] and self._code is not None and self._lines - self._code[1] <= 2:
            # horovodrun prints the code above the name.
            self._named = None
            yield Ended(rank_number(named["gloo"]), f"exitcode={self._code[0]} first by=mpi")
            return
        if self._named is not before:
            self._lines = 0
        if code and self._named is not None:
            rank, mark = self._named
            self._named = None
            number = f"-{code['code']}" if "signal" in code["how"].lower() else code["code"]
            yield Ended(rank, f"exitcode={number}{mark}")


def _mpi(line: str) -> Iterator[Ended]:
    if (noticed := _NOTICED.search(line)) and noticed["signal"]:
        pid = f" pid={noticed['pid']}" if noticed["pid"].isdecimal() else ""
        yield Ended(rank_number(noticed["rank"]), f"exitcode=-{noticed['signal']}{pid} first by=mpi")
    if left := _LEFT.search(line):
        yield Ended(rank_number(left["rank"]), "exitcode=unknown first by=mpi")
    if called := _OF_MPICH.search(line):
        yield Ended(rank_number(called["rank"]), f"exitcode={max(1, int(called['code']))}{DESCRIBED}")
    if status := _STATUS.search(line):
        yield Ended(rank_number(status["rank"]), f"exitcode={status['code']}")


def _by_process(line: str) -> Iterator[Ended]:
    """One line that shows who and how; what ends the others with the first process is marked like MPI.

    Ends of one list have no order: they share a time.
    """
    if crashed := _CRASHED.search(line):
        yield Ended(rank_number(crashed["rank"]), f"exitcode={crashed['code']} first by=mpi")
    if ended := _GLOBAL.search(line):
        yield Ended(rank_number(ended["rank"]), f"exitcode={ended['code']} pid={ended['pid']} time=list by=mpi")
    if shard := _SHARD.search(line):
        yield Ended(rank_number(shard["rank"]), f"exitcode=-{shard['signal']} time=list by=mpi")
    if (raised := _RAISED.search(line)) and raised["error"] not in _LOST_ANOTHER:
        where = f" ip={raised['address']}" if raised["address"] else ""
        yield Ended(rank_number(raised["rank"] or ""), f"raised pid={raised['pid']}{where}")
    if trainers := _TRAINERS.search(line):
        yield from (Ended(rank_number(rank), "exitcode=unknown time=list by=mpi") for rank in trainers["ranks"].split(", "))
    if pool := _POOL.search(line):
        yield Ended(None, f"exitcode={pool['code']} pod={pool['pool']}")
    if noticed := _NOTICED_FIRST.search(line):
        yield Ended(rank_number(noticed["rank"]), f"exitcode=-{noticed['signal']} by=mpi")
    for process in _OF_AZURE.finditer(line):
        yield Ended(rank_number(process["rank"]), f"exitcode={process['code']}{DESCRIBED}")
    if container := _CONTAINER.match(line):
        yield Ended(None, f"exitcode={container['code']} local_rank={container['local']}")
    if unready := _UNREADY.search(line):
        yield Ended(rank_number(unready["rank"]), "exitcode=1 first by=mpi")
    if (worker := _WORKER.search(line)) and not _REPLICA.search(line):
        # Of several that died it names one, and not by its end: the number is no rank of this event.
        yield Ended(None, f"died worker={worker['rank']}")
    if (unexpected := _EXPECTED.search(line)) and int(unexpected["code"]) in _UNCAUSED:
        # The first in order is stated: an abort may follow from another one.
        yield Ended(None, f"exitcode={unexpected['code']} pid={unexpected['pid']} first")
    if found := _OF_MSRUN.search(line):
        yield Ended(None, f"exitcode=unknown pid={found['pid']}{DESCRIBED}")
    if child := _CHILD.search(line):
        yield Ended(None, f"exitcode={child['code']} pid={child['pid']} first by=mpi")


def _last_command(line: str) -> Iterator[Ended]:
    """The command that is printed is that of the last process of the node: it shows a rank where that is the only one."""
    how = _RETURNED.search(line) or (_CALLED.search(line) if "CalledProcessError: " in line else None)
    last = _LAST_LOCAL.search(line) if how else None
    if how:
        number = how["code"] or f"-{how.groupdict().get('signal')}"
        yield Ended(None, f"exitcode={number}{f' last_local_rank={last[1]}' if last else ''}")


def _signal(name: str) -> str:
    number = signal.Signals.__members__.get(name)
    return f"-{int(number)}" if number else "1"
