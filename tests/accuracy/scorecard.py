"""The first part of docs/accuracy.md: what was never run, then real, written and simulated evidence side by side."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.accuracy import sittings
from tests.accuracy.scoring import Row, Score
from tests.accuracy.sittings import Sitting
from tests.accuracy.tally import Tally

SUITES = Path(__file__).parents[2] / "docs/suites.md"
_NEVER = """\
## Never run on

What no figure on this page or any other one speaks of:

- several GPUs, and what only devices tell: RCCL, RAS, Inspector, DCGM, cuda-gdb and Nsight exports were read as their
  sources and public reports print them, and produced by stand-ins with the same binary interface. NCCL 2.28.9 was run with
  torch 2.11 on one H100 alone, in eleven jobs of four ranks that it took for four hosts, with TCP between them (below); dumps
  of four larger jobs were published by others
- an InfiniBand or RoCE NIC, a real switch, NVLink: the verbs shim ran on a stand-in, NIC captures come from the simulator alone
- a hang of more than 8 real ranks, or of several real hosts: larger jobs are simulated, or logs
- an AArch64, ROCm or Ascend machine, a TPU; JAX was run on CPUs alone
- a hang in production that somebody recorded with `forensics collect`, and whose cause was then confirmed
- real jobs that are slow because of hardware: those of the tests sleep, compute more, or share cores"""
_NOTES = """\
Right is: exactly the ranks that the evidence can tell, and for a sound job nobody. Outcome, cause and stage are not asked for
here; the sections below and [the suites](suites.md) have them. Named others: an innocent rank is among the suspects, also where
these stand below *if the job is stuck*. The rest named nobody, or too few or too many of the right ones. Intervals are those of
Wilson, 95 %. Evidence **in parts** is what is left of a bundle after a part of it was lost, renamed, written in other formats,
cut, merged and packed; most of these parts cannot tell a stuck job from a sound one."""
_FRESH = """\
## Fresh evidence, sat once

Programs, generators and logs that no rule was written for, each set sat once before anything was mended for it, all sets
together. What a set taught was mended, so each is older than the program of today; [every set](#every-set-sat-once) is listed
at the end, the newest last. Most sets were made by somebody who knew the program, which flatters."""
_LIMITS = """\
### What is known to be wrong, or silent

- **Logs of a gloo job that hangs** hold nothing of it until a time-out; those of a slow one nothing at all. They name nobody,
  which counts as wrong here.
- **Dumps alone of a slow gloo job** name nobody: nothing in them shows that the clocks of the ranks are one. What a slow stage
  of 1F1B over gloo costs is silent, since no recorder holds its messages.
- **One moment** (dumps without dates, one round of stacks) does not tell a call that is a second old from one that is a day
  old: suspects stand below *if the job is stuck*, and are innocent where it is not.
- **A send and a receive of different tags**, a mesh of which two ranks skip a step, a parameter server, and a pipeline whose
  blocking sends face each other are called a deadlock of all ranks in it, of which two are to blame.
- **A rank that sleeps long by design** before a collective is called hung. A first rank that is asleep in an evaluation is
  given five minutes, whether it evaluates or hangs.
- **A pipeline that meets at nothing**, in rings that do not reach back to its first step and hold no moment at which nothing is
  under way: the rank is known, its pass is not.
- **Jobs without a recorder**: a rank at work while others wait is named after five minutes that its logs are silent, long work
  that a sound job does once included; of slow ones the rank that alone works at five or more of the moments sampled (six are
  taken), else nobody.
- **A slow rank whose own lateness is not seen** (PCIe): the rank that waited for it, and so came late to another group, may be
  named beside it.
- **A proxy that holds up messages now and then** is a `suspect` by recorders; a flapping link leaves the same.
- **A wait for a device without a frame** (`loss.item()` of a GPU that is asked again and again) looks like work in stacks: the
  rank that is elsewhere is one to begin with. Where `synchronize`, `tolist` or JAX wait, it is named.
- **A device that is late to the first collective of a step** may be slow in forward or in backward: its stage is unknown.
- **A network of which a job never asks two thirds** looks slow to the collector's logs: a `suspect`, and no rank.
- **A size that gloo refuses**: who aborts may be the innocent receiver, so it is a place to begin and nobody is named.
- **Pipelines over gloo**: the microbatch of a hang is not known; a slow rank is named by traces, without them it is one of its
  pipeline at best. A stage with larger (not more) layers is a `suspect` in traces. A send left out in a pipeline names the two
  that wait for it in some forms.
- **Runs mixed in one folder**: the log of a former run that failed, beside that of a sound one, accuses its rank where their
  steps have no dates and the later one does not begin amid them, or where it is not yet further and keeps the same pace.
- **A NIC that lacks up to a quarter of its rate in an exchange**, and a port that flaps for milliseconds, are silent in
  captures.
- **Captures of NICs of which nothing tells the rank**: host and device are pointed at, nobody is named.
- **A collective of all ranks that became slow** is said of the whole job by recorders, whatever the NIC, link or proxy; one
  that became so in the last steps is silent.
- **Ranks in step with one whose GPU hands over slowly** are called slow beside it where they meet others alone.
- **A host that is late once behind the passes**, where a pipeline gathers its parameters there, is taken for a device that is
  slow in forward: the rank is right.
- **Pipelines of two replicas** with one slow rank: nothing tells which of the two is unusual. Late batches and slow hosts of
  pipelines are silent in traces alone.
- **Collectives between hosts**: three proxies that only send are taken for a dead link, both of whose ends are named. Where the
  rank at fault left no log, 19 of 35 are named as a side without a cause, and for 16 nobody is.
- **Tables of devices** (nvidia-smi, counters) tell no ranks; the next steps point to the device instead.
- **Chats and BMC event logs** are refused as no evidence.
- **A GPU by its number on a host alone**, or a preempted pod of which nothing shows the ranks, is pointed at, not named."""
_COUNT = re.compile(r"\d+")
_PARTS = re.compile(r"\| field form \| (\d+) \| (\d+) \| \d+ \| \d+ \| (\d+) \|")


def section(rows: Sequence[Row], analysers: Sequence[str], logs: Tally, fresh: Sequence[Sitting]) -> str:
    """The part of the page: `analysers` are the columns of the rows that get the whole bundle and the dumps alone."""
    lines = ["| evidence | real: right | real: named others | simulated: right | simulated: named others |", "|---" * 5 + "|"]
    simulated = suites(SUITES.read_text(encoding="utf-8"))
    lines += [f"| {what} | {_cells(real)} | {_cells(made)} |" for what, real, made in _lines(rows, analysers, simulated)]
    known = f"Of 160 logs modelled on public reports, known by now: right {logs.cells().replace(' | ', ', named others ')}."
    table = "\n".join(lines)
    return "\n\n".join((_NEVER, "## Scorecard", table, known, _NOTES, _FRESH, sittings.overview(fresh), _LIMITS))


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
