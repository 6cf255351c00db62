"""Evidence that is lacking and could turn the verdict."""

from __future__ import annotations

from collections.abc import Iterator

from forensics.model import Outcome, StageName, Suspect
from forensics.rules.reductions.progress.liveness import Liveness, Motion
from forensics.rules.reductions.progress.speed import Speed
from forensics.rules.reductions.ranks.roster import Roster
from forensics.rules.reductions.text.evidence_text import ranks_text

_SECOND_LOOK = "a second collection some minutes later: it distinguishes a slow job from a stuck one"
_STEP_TIMES = (
    "step times: a log that prints them, traces of torch.profiler, or stages recorded by the job (`forensics recorder`); "
    "with a bundle of a good run of the same job, `--baseline BUNDLE`"
)
_TIMED = " with times inside calls (TORCH_NCCL_ENABLE_TIMING=1): it shows which pass was slow"
_FIRST_LOOK = (
    "stacks of all ranks, while the job still runs or when it hangs again: `forensics collect --diagnose` on each host, or "
    "`date; py-spy dump --pid PID` of each rank, twice, a minute apart"
)


def would_change(
    roster: Roster, liveness: Liveness, pace: Speed, suspects: tuple[Suspect, ...], outcome: Outcome
) -> tuple[str, ...]:
    """Evidence that is lacking, about the ranks under suspicion first, and could turn the verdict."""
    ranks = {rank for suspect in suspects[:3] for rank in suspect.ranks}
    facts = [known for rank in sorted(ranks) if not (known := roster.rank(rank)).dead]
    no_dump = [f.rank for f in facts if not f.has_recorder]
    if outcome is Outcome.SLOWDOWN:
        more = (_more_steps(pace.few),) if pace.few else ()
        is_placed = bool(suspects) and suspects[0].stage.name is not StageName.UNKNOWN
        dump = (f"a Flight Recorder dump of {ranks_text(no_dump)}{_TIMED}",) if no_dump and not is_placed else ()
        return (*dump, *more)
    found = []
    if no_stack := [f.rank for f in facts if not f.has_stack]:
        found.append(f"a stack of {ranks_text(no_stack)}: it shows the stage")
    if no_dump:
        found.append(f"a Flight Recorder dump of {ranks_text(no_dump)}: it shows whether it entered the operation")
    return (*found, *_of_motion(roster, liveness, pace, suspects))


def _more_steps(few: int) -> str:
    return f"a trace of more steps than {few}, ten or more: it shows whether what was seen recurs, and how steady the job is"


def _of_motion(roster: Roster, liveness: Liveness, pace: Speed, suspects: tuple[Suspect, ...]) -> Iterator[str]:
    if liveness.shown:
        if not suspects and not pace.was_measured:
            yield _more_steps(pace.few) if pace.few else _STEP_TIMES
    elif liveness.motion in (Motion.UNSEEN, Motion.TOO_EARLY):
        looked = any(each.has_stack or each.has_recorder or each.sampled for each in roster.ranks.values())
        yield _SECOND_LOOK if looked else _FIRST_LOOK
