"""One rank goes on with other work, by its log, while all its peers wait for it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from forensics.model import Belief, Cause, Component, Confidence, Evidence, Finding, Mechanism, StageName, StageRef
from forensics.rules.interface import Need, Rule
from forensics.rules.reductions.logs.work import Work, WorkInLogs
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import ranks_text

_STAGES = (
    (re.compile(r"(?i)check ?point|sav(?:e|ed|ing)\b|\bnfs|ckpt|fsync"), StageName.CHECKPOINT, Cause.CHECKPOINT_STALL),
    (re.compile(r"(?i)valid|eval|\bcv\b|\btest|sampling|predict|generat"), StageName.EVAL, Cause.HOST_STALL),
    (
        re.compile(r"(?i)token|dataset|preproc|prepar|shard|download|\bcach|\bmap\b|load"),
        StageName.DATA,
        Cause.DATALOADER_STALL,
    ),
)


def _evaluate(roster: Roster, work: WorkInLogs) -> Iterator[Finding]:
    found = work.found
    if found is None or (found.wait.rank in roster.ranks and roster.rank(found.wait.rank).dead):
        return
    stage, cause = next(
        ((stage, cause) for words, stage, cause in _STAGES if words.search(found.text)), (StageName.UNKNOWN, Cause.HOST_STALL)
    )
    sure = found.wait.sure and found.is_own
    yield Finding(
        ranks=(found.wait.rank,),
        cause=cause,
        stage=StageRef(name=stage, component=Component.HOST, sequence=found.wait.number or None),
        belief=Belief.BEHIND_AND_BUSY,
        confidence=Confidence.LIKELY if sure else Confidence.SUSPECT,
        evidence=tuple(_evidence(found)),
        mechanism=Mechanism("not_started", "local"),
        next_steps=(
            f"let all ranks come to what rank {found.wait.rank} was doing, or give its peers a timeout that is longer than it "
            "takes (timeout= of init_process_group or new_group)",
        ),
    )


def _evidence(found: Work) -> Iterator[Evidence]:
    wait, rank = found.wait, found.wait.rank
    verb = "was blocked" if found.is_blocked else "was at other work"
    yield Evidence(f'rank {rank} {verb}: "{found.text}"; {found.why}', found.source)
    what = f" {wait.kind}" if wait.kind and not wait.kind.startswith("store") else " a key in the store" if wait.kind else ""
    number = f" seq {wait.number}" if wait.number else ""
    length = f" after {wait.length_s:.0f} s" if wait.length_s else ""
    said = f"{ranks_text(wait.waiting)} gave up on{what}{number}{length}; rank {rank} gave up on nothing"
    yield Evidence(said, f"{wait.path}#line={wait.first}")
    if not found.is_own:
        yield Evidence("the line names no rank: it is taken for that of the one rank that waits for nothing", supports=False)


def _clears() -> None:
    """What a rank does not write about rules nothing out."""


RULE = Rule(
    code="FX155",
    name="working-in-logs",
    seed="Flight Recorder practice",
    needs=(Need(WorkInLogs, "logs", "lines that count on while the watchdogs of all other ranks give up"),),
    concludes="From logs alone: the one rank that goes on with other work while all its peers wait in one operation.",
    evaluate=_evaluate,
    clears=_clears,
)
