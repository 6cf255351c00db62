"""The first part of docs/accuracy.md: what was never run, then real, written and simulated evidence side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forensics.fixtures.suites.intervals import share
from tests.accuracy.scoring import Row, Score

SUITES = Path(__file__).parents[2] / "docs/suites.md"
_NEVER = """\
## Never run on

What no figure on this page or any other one speaks of:

- a GPU: NCCL and RCCL, their Flight Recorder dumps, RAS, Inspector and profiler plugins, nvidia-smi, DCGM, cuda-gdb and Nsight
  exports were read as their sources and public reports print them, and produced by stand-ins with the same binary interface
  (but for dumps of four NCCL jobs that others published, below)
- an InfiniBand or RoCE NIC, a real switch, NVLink: the verbs shim ran on a stand-in, NIC captures come from the simulator alone
- a hang of more than 8 real ranks, or of several real hosts: larger jobs are simulated, or logs
- an AArch64, ROCm or Ascend machine
- a hang in production that somebody recorded with `forensics collect`, and whose cause was then confirmed
- real jobs that are slow because of hardware: those of the tests sleep, compute more, or share cores"""
_PUBLISHED = "published dumps of four hung NCCL jobs of 16 ranks (not in the repository)"
_NETWORK = (
    "logs of collectors and NIC captures by another simulator, from the format pages alone, sat once (not in the repository)"
)
_DUMPS = "dumps by another generator: hangs, slow, sound (pipelines and FSDP, 16 to 32 ranks), sat once (not in the repository)"
_TRACED = "three steps of `torch.profiler` alone"
_OF_TRACES = (
    ("6 jobs with a throttled GPU (interleaved, zero bubble, 1F1B, GPipe, long context, FSDP), first sitting", (3, 2, 6)),
    ("7 sound jobs, first sitting", (6, 1, 7)),
    ("5 other slow jobs, after what these taught, sat once", (3, 1, 5)),
    ("8 other sound jobs, after what these taught, sat once", (8, 0, 8)),
)
_THIRD = "dumps by a third generator (tensor, pipeline and data parallel, 4 to 32 ranks), sat once"
_SLOWED = "dumps by a fourth generator (data, tensor, pipeline, expert parallel, FSDP, 4 to 32 ranks), sat once"
_STOPPED = "105 collectives that stop between hosts (rings and trees, stepped through one by one), logs of collectors, sat once"
_EXCHANGES = "exchanges among experts (4 to 24 ranks), logs of collectors by a program that knows the format page alone"
_OF_EXCHANGES = (
    ("14 slow jobs with {}, first sitting", (0, 0, 14)),
    ("4 sound jobs with {}, first sitting", (4, 0, 4)),
    ("15 other slow jobs with {}, after what these taught, sat once", (15, 0, 15)),
    ("8 other sound jobs with {}, after what these taught, sat once", (8, 0, 8)),
    ("13 hung jobs with {}, first sitting", (13, 0, 13)),
)
_GLOO = "15 gloo pipelines of another program (hangs, slow, sound), whole bundle, sat once (not in the repository)"
_PROGRAMS = (
    "16 hung jobs of four other programs (FSDP2, experts, rewards, a ring), whole bundle, sat once (not in the repository)"
)
_BARRIERS = "10 hung jobs of another program (barriers of files and stores, threads, asyncio, messages), whole bundle, sat once"
_TEN = "10 hung jobs of ten other programs (evaluation, decoders, meshes, tags, stale locks)"
_SIX = "6 hung jobs of six more (checkpoints, asyncio, two orders, FSDP2, messages, a key), after what these ten taught"
_FIVE = "5 sound jobs of as many other programs"
_HUNG = "5 hung jobs of a new user (GPT, FSDP2 with a queue, DTensor, a pipeline, two groups)"
_SLOW = "4 slow jobs of a new user (starved, a slow mount, a hook, garbage collection)"
_FINE = "6 sound jobs of a new user (compiling, saving, joining, a bar, a download, an end)"
_MORE = "6 jobs of six more of a new user (3 hung, 1 slow, 2 sound), after what these taught"
_HUNG_TOO = "5 hung jobs of another new user (ring attention, actors and rollouts, experts, a parameter server, mp.spawn)"
_SLOW_TOO = "4 slow jobs of another new user (a mesh, local SGD, augmentation, a bash loop)"
_FINE_TOO = "4 sound jobs of another new user (validating, between epochs, one rank compiling, an early stop)"
_MORE_TOO = "6 jobs of six more of another new user (3 hung, 1 slow, 2 sound), after what these taught"
_HUNG_THIRD = "6 hung jobs of a third new user (a debugger, a service, a checkpoint, skipped batches, RPC, two threads)"
_SLOW_THIRD = "4 slow jobs of a third new user (histograms, anomaly detection, a busy thread, long sequences)"
_FINE_THIRD = "3 sound jobs of a third new user (a pool that tokenizes, environments, an end after retries)"
_MORE_THIRD = "6 jobs of six more of a third new user (3 hung, 1 slow, 2 sound), after what these taught"
_HUNG_FOURTH = "12 hung jobs of a fourth new user (1F1B, DTensor, mp.spawn, DCP, groups of pairs, a prompt)"
_ENDED_FOURTH = "3 jobs of a fourth new user that ended (a segfault, a SIGKILL, a call on one rank)"
_SLOW_FOURTH = "3 slow jobs of a fourth new user (a stage of 1F1B, garbage collection, starved)"
_FINE_FOURTH = "12 sound jobs of a fourth new user (a server, an evaluation, a save, Join, trials, actors)"
_MORE_FOURTH = "12 jobs of twelve more of a fourth new user (6 hung, 6 sound), after what these taught"
_HUNG_FIFTH = "6 hung jobs of a fifth new user (a sharded optimizer, experts, RPC, locks, a child process)"
_FINE_FIFTH = "6 sound jobs of a fifth new user (accumulation, an average on rank 0, slow files, a pool)"
_OUTSIDE_FIFTH = "15 jobs of a fifth new user that wait for something outside (7 sound, 8 hung), after what these taught"
_MORE_FIFTH = "12 jobs of twelve more of a fifth new user (6 hung, 6 sound), after what these taught"
_BY_FORMS: Mapping[str, Mapping[str, tuple[int, int, int]]] = {
    _TEN: {
        "whole bundle": (8, 2, 10),
        "dumps alone": (7, 0, 10),
        "one round of stacks": (5, 0, 10),
        "logs after the time-out": (1, 0, 10),
        "logs after SIGABRT": (0, 0, 10),
    },
    _SIX: {
        "whole bundle": (6, 0, 6),
        "dumps alone": (4, 0, 6),
        "one round of stacks": (2, 0, 6),
        "logs after the time-out": (0, 0, 6),
        "logs after SIGABRT": (2, 0, 6),
    },
    _FIVE: {
        "whole bundle": (5, 0, 5),
        "dumps alone": (4, 1, 5),
        "one round of stacks": (4, 1, 5),
        "logs after SIGABRT": (5, 0, 5),
    },
    _HUNG: {"whole bundle": (3, 1, 5), "dumps alone": (2, 1, 3), "one round of stacks": (1, 0, 5), "logs": (0, 0, 5)},
    _SLOW: {"whole bundle": (2, 0, 4), "dumps alone": (0, 0, 3), "traces of torch.profiler": (3, 0, 4), "logs": (0, 0, 4)},
    _FINE: {"whole bundle": (5, 1, 6), "dumps alone": (2, 0, 2), "one round of stacks": (5, 0, 5), "logs": (6, 0, 6)},
    _MORE: {"whole bundle": (6, 0, 6), "dumps alone": (4, 0, 5), "one round of stacks": (4, 0, 6), "logs": (2, 0, 6)},
    _HUNG_TOO: {"whole bundle": (4, 1, 5), "dumps alone": (1, 0, 4), "one round of stacks": (2, 1, 5), "logs": (0, 0, 5)},
    _SLOW_TOO: {"whole bundle": (4, 0, 4), "dumps alone": (0, 0, 4), "traces of torch.profiler": (3, 0, 4), "logs": (0, 0, 4)},
    _FINE_TOO: {"whole bundle": (2, 1, 3), "dumps alone": (3, 0, 3), "one round of stacks": (3, 0, 3), "logs": (4, 0, 4)},
    _MORE_TOO: {"whole bundle": (4, 1, 6), "dumps alone": (5, 0, 6), "one round of stacks": (3, 0, 6), "logs": (2, 0, 6)},
    _HUNG_THIRD: {"whole bundle": (4, 1, 6), "dumps alone": (4, 1, 5), "one round of stacks": (2, 0, 6), "logs": (0, 0, 6)},
    _SLOW_THIRD: {
        "whole bundle": (4, 0, 4),
        "dumps alone": (0, 0, 4),
        "traces of torch.profiler": (4, 0, 4),
        "logs": (0, 0, 4),
    },
    _FINE_THIRD: {"whole bundle": (1, 1, 2), "dumps alone": (1, 1, 2), "one round of stacks": (2, 0, 2), "logs": (3, 0, 3)},
    _MORE_THIRD: {"whole bundle": (5, 1, 6), "dumps alone": (3, 0, 5), "one round of stacks": (4, 0, 6), "logs": (2, 0, 6)},
    _HUNG_FOURTH: {
        "whole bundle": (9, 3, 12),
        "dumps alone": (5, 0, 10),
        "one round of stacks": (5, 0, 12),
        "logs": (0, 0, 12),
    },
    _ENDED_FOURTH: {"logs": (1, 0, 3)},
    _SLOW_FOURTH: {
        "whole bundle": (1, 0, 3),
        "dumps alone": (0, 0, 3),
        "one round of stacks": (1, 0, 3),
        "logs": (0, 0, 3),
    },
    _FINE_FOURTH: {
        "whole bundle": (10, 2, 12),
        "dumps alone": (7, 4, 11),
        "one round of stacks": (10, 2, 12),
        "logs": (12, 0, 12),
    },
    _MORE_FOURTH: {
        "whole bundle": (7, 5, 12),
        "dumps alone": (7, 4, 12),
        "one round of stacks": (5, 5, 12),
        "logs": (6, 0, 12),
    },
    _HUNG_FIFTH: {"whole bundle": (5, 1, 6)},
    _FINE_FIFTH: {"whole bundle": (6, 0, 6)},
    _OUTSIDE_FIFTH: {"whole bundle": (14, 1, 15)},
    _MORE_FIFTH: {"whole bundle": (9, 3, 12)},
}
"""Programs that nobody wrote rules for, each sat once and not in the repository: right, named others, of how many."""
_SOUND = "44 sound jobs of a busy host (`tests/live/test_sound_jobs.py`, sat four times)"
_NOTES = """\
Right is: exactly the ranks that the evidence can tell, and for a sound job nobody. Outcome, cause and stage are not asked for
here; the sections below and [the suites](suites.md) have them. Named others: an innocent rank is among the suspects. The rest
named nobody, or too few or too many of the right ones. Intervals are those of Wilson, 95 %. Evidence **in parts** is what is
left of a bundle after a part of it was lost, renamed, told in other formats, cut, merged and packed; most of these parts
cannot tell a stuck job from a sound one.

Of the ten hung jobs of ten other programs 9 bundles, 6 logs after the time-out and 5 logs after SIGABRT were right afterwards
(the last in files that are called by their ranks); of the six more 1 log after the time-out. The bundle that still names
others is of a pipeline in which a send and a receive of different tags wait: all four ranks, of which two are to blame. Of
the sound jobs, the one that was called hung by its dumps is since then a lead (`inconclusive`, *if the job is stuck*), as the
one named by one round of stacks was. In one of them a rank is slow in every step: to name it counts as right.

Of the jobs of a new user 4 of 5 bundles of hung ones and 3 of 4 of slow ones were right afterwards, and the download, a rank
that reads while the others wait, is no hang any more. A mesh in which two ranks skip a step is still called a deadlock of all
four ranks, and dumps alone of a slow job of gloo name nobody: nothing in them tells that their clocks are one. A log alone
tells a hung job from a sound one in none of these; that nobody is named counts as wrong for a hung or slow job.

Of those of another new user the pasted stacks named a process that Python starts beside a job, and the sound job was one in
which a rank validates in small pieces: both are mended. Of the six more, a loop on a busy host was taken for such work
(mended: 5 of 6), and a sound job in which one rank computes a score in Python for 20 s was called hung (`gil held`,
`confirmed`), for it looks like an endless loop (mended: nobody is named, and no rank at work is
`confirmed`). The parameter server is called a deadlock of all three ranks, of which two wait
for each other. A trace of local SGD tells the rank, and takes pauses between its inner steps for its backward pass. For one
of the hung ones the answer written before was the other rank: which of the two forks while its lock is held is chance, and
the stacks show which did.

Of those of a third new user an asynchronous checkpoint, written as a sound job, hung: its thread and the steps make
collectives in one group, and the rank whose thread came first was accused of a call too much or too few (mended: all ranks, as
a group). The sound job that was called hung waits for a pool of processes that tokenizes (mended: nobody is named). Of the six
more, a program that a rank of `mp.spawn` had started was taken for the only rank, and the others for dead (mended). The RPC job
without collectives names nobody. Three were collected again where the moment had been missed, and the worse verdict counts; one
of the sound ones of the six had its long preparation behind it.

Of those of a fourth new user the sound jobs that were called hung are a server without a request and an evaluation on rank 0
(mended: nobody is named). Of the hung ones groups of which each rank made its own only named an innocent rank (mended: nobody);
messages and roots that differ name all that fit. Two ended ones are silent, of which one is pointed to since then. Of the
twelve more the sound ones that were called hung wait for a line at a prompt, for a request in an event loop (since then a
suspicion), and for a file in a folder: each looks like a rank that waits for what never comes. A job on a host short of CPU was
called slow by half a second (mended: nobody is named). Suspects *if the job is stuck* count as named: those of sound jobs by
dumps or stacks alone are all such. What a slow stage of 1F1B over gloo costs is silent: no recorder holds its messages.

Of those of a fifth new user only bundles were sat. The hung ones in which others are named wait for a remote call, which a
thread of another rank works on (mended: that rank is named). Of the fifteen that wait for something outside, the sound ones
wait for a line at a terminal or a pipe, a request in an event loop or to another thread, a file, the next night and a program
that scores; that one was called hung (mended). The hung ones stop in a pipe, a file that never comes, a silent service and a
question, amid a step or before the broadcast of a batch. Of the twelve more two sound ones are called hung: one reads from a
broker that publishes nothing (since then a suspicion), one uploads so slowly that it wakes every four seconds. A sum of gloo
whose sizes differ was laid on the rank that aborted, by logs alone, where its sender was at fault (mended: one of the two).

The dumps of the third generator have call paths and times that a watchdog found up to 0.1 s late. Of the hangs 24 were sat
first: a call left out among look-alikes was called a deadlock of all four ranks (mended). The 30 after them numbered
microbatches on through all steps in three cases (mended). Three slow jobs are silent, whose rank loses 0.2 to 0.5 s before
its data arrives or in one pass of a step; of two stages one of two is named, and of four tensor peers that are late alike
the one that noise left above the threshold. Of the sound jobs two are suspected where the times of the files are lost: their
dumps alone do not tell a call that is a second old from one that is a day old.

Of the slow dumps of the fourth generator, which no time inside calls dates, 1 of 6 was right, and 7 of 12 of those that it
dates. A sound job whose dumps were not taken at once was called hung by one GPU, and a stage that waited for another was
named beside it where hosts run steps ahead (both mended). Of a second set, sat once, 7 of 12 slow ones were right, and in 2
others were named (tensor peers of a late loader; a deadlock of two that moved); of 6 sound ones a rank with longer data was.

Of the 105 collectives (a GPU, a proxy, the receives of a proxy, the data or the credits of one link stops; one to four ranks
on a host, one to four channels; `tests/unit/rules/proxy_machine.py`) 102 were right afterwards. The first sitting took each
of the 21 proxies for a dead link, nine times with an innocent end, and named two ranks of other hosts for a GPU inside one.
Still both ends of a link are named for three proxies that only send: nothing tells them from the way back. Where the rank at
fault left no log, 19 of 35 are named as a side without a cause, and for 16 nobody is.

Of the slow jobs with exchanges (a rank late by its host, its GPU or its tokens, a NIC slow both ways or one way) nobody was
named: groups of sends to many were taken for a pipeline, and who is late to an exchange was not told. The four of NICs were
missed by the program's own mistake (it left out the queue pairs of receivers), others stood under logs that it ended too late.
Mended, all 14 are right, the four whose tokens are uneven as `expert imbalance`. Who wrote the mend wrote the program too: it
flatters. Sound jobs are half of them `inconclusive`, for no line of a NIC is known. The program was wrong twice more before
the hung jobs (a host, a NIC, its sends, a link, a GPU) were sat as they count here: channels differed between the ends of a
message, and ranks that were through made no further call, for which six of them were called stalled. One of the two ends of a
link was named twice over (mended)."""
_COUNT = re.compile(r"\d+")
_PARTS = re.compile(r"\| field form \| (\d+) \| (\d+) \| \d+ \| \d+ \| (\d+) \|")


@dataclass(frozen=True, slots=True)
class Tally:
    """Of how many cases the ranks were right, and in how many others were named."""

    right: int
    others: int
    cases: int

    def cells(self) -> str:
        """Two cells of a row, each a share with its interval."""
        return f"{share(self.right, self.cases)} | {share(self.others, self.cases)}"


def section(rows: Sequence[Row], analysers: Sequence[str], logs: Tally, unseen: Tally) -> str:
    """The part of the page: `analysers` are the columns of the rows that get the whole bundle and the dumps alone."""
    lines = ["| evidence | real: right | real: named others | simulated: right | simulated: named others |", "|---" * 5 + "|"]
    simulated = suites(SUITES.read_text(encoding="utf-8"))
    lines += [f"| {what} | {_cells(real)} | {_cells(made)} |" for what, real, made in _lines(rows, analysers, simulated)]
    written = ["| log | right | named others |", "|---" * 3 + "|"]
    for what, found in (
        ("160 logs modelled on public reports, known by now", logs),
        ("new logs of that kind, sat once", unseen),
    ):
        written.append(f"| {what} | {found.cells()} |")
    parts = (
        _NEVER,
        "## Scorecard\n",
        "\n".join(lines),
        "Logs are neither: each was written anew after a public report.",
        "\n".join(written),
    )
    return "\n\n".join((*(part.strip("\n") for part in parts), _NOTES))


def _lines(
    rows: Sequence[Row], analysers: Sequence[str], simulated: Mapping[str, Tally]
) -> Iterator[tuple[str, Tally | None, Tally | None]]:
    whole, dumps = analysers
    stuck, moving = [row for row in rows if not row.moves], [row for row in rows if row.moves]
    yield "a hang, whole bundle", _tally(stuck, whole), simulated.get("hang")
    yield "a hang, dumps alone", _tally(stuck, dumps), None
    yield "a slow iteration", None, simulated.get("slowdown")
    yield "faults of NICs, PCIe, GPUs and background load (Mycroft's kinds)", None, simulated.get("ccl")
    yield "NIC captures (Pulse's kinds)", None, simulated.get("nic")
    yield "a stage that is slow on one rank (StageFrontier's kinds)", None, simulated.get("frontier")
    yield "a job that moves, nobody to be named", _tally(moving, whole), simulated.get("healthy")
    yield _PUBLISHED, Tally(4, 0, 4), None
    yield _PROGRAMS, Tally(10, 2, 16), None
    yield _BARRIERS, Tally(7, 0, 10), None
    yield _GLOO, Tally(7, 1, 15), None
    for programs, forms in _BY_FORMS.items():
        for form, counted in forms.items():
            yield f"{programs}, {form}, sat once", Tally(*counted), None
    yield _SOUND, Tally(44, 0, 44), None
    yield _NETWORK, None, Tally(30, 5, 37)
    yield _DUMPS, None, Tally(5, 4, 14)
    yield _STOPPED, None, Tally(78, 15, 105)
    yield f"54 hangs of ten kinds: {_THIRD}", None, Tally(53, 1, 54)
    yield f"6 slow jobs: {_THIRD}", None, Tally(1, 2, 6)
    yield f"16 sound jobs: {_THIRD}", None, Tally(16, 0, 16)
    yield f"18 slow jobs: {_SLOWED}", None, Tally(8, 1, 18)
    yield f"9 sound jobs: {_SLOWED}", None, Tally(8, 1, 9)
    yield from ((jobs.format(_EXCHANGES), None, Tally(*counted)) for jobs, counted in _OF_EXCHANGES)
    yield from ((f"{_TRACED}: {jobs}", None, Tally(*counted)) for jobs, counted in _OF_TRACES)
    yield "in parts", None, simulated.get("in parts")


def _tally(rows: Iterable[Row], analyser: str) -> Tally:
    found = list(rows)
    scores = Counter(row.scores[analyser] for row in found)
    others = sum(not any(set(row.named[analyser]) <= set(one) for one in row.truth) for row in found)
    return Tally(scores[Score.EXACT], others, len(found))


def _cells(found: Tally | None) -> str:
    return found.cells() if found else "not run | not run"


def suites(page: str) -> dict[str, Tally]:
    """Tallies of the suites by name, as docs/suites.md has them, and under `in parts` those of all field forms."""
    found = {line["suite"]: _of_line(line) for line in _overview(page) if line["cases"] not in ("", "0")}
    parts = [tuple(map(int, cells)) for cells in _PARTS.findall(page)]
    if parts:
        cases, right, others = map(sum, zip(*parts, strict=True))
        found["in parts"] = Tally(right, others, cases)
    return found


def _overview(page: str) -> Iterator[dict[str, str]]:
    """The lines of the table of all suites by the names of its columns, which later pages have more of."""
    lines = iter(page.splitlines())
    head = next((_split(line) for line in lines if line.startswith("| suite |")), [])
    next(lines, None)
    for line in lines:
        if not line.startswith("|"):
            return
        yield dict(zip(head, _split(line), strict=True))


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _of_line(line: Mapping[str, str]) -> Tally:
    right, others, cases = (int(_COUNT.findall(line[name])[0]) for name in ("right ranks", "accused wrongly", "cases"))
    return Tally(right, others, cases)
