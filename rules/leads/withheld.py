"""Whom to look at again: the one rank that everybody waits for, where a rule names it and nothing shows yet that it stands."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from forensics.model import Assessment
from forensics.rules.reductions.progress.liveness import Liveness, Motion


def withheld_leads(assessments: Iterable[Assessment], liveness: Liveness) -> Iterator[str]:
    """The one rank by which withheld hypotheses explain all that is seen of a job that stands, and why it is not accused."""
    if liveness.motion is not Motion.STALLED:
        return
    whole = [
        each
        for each in assessments
        if each.withheld and each.explains and not (each.leaves or each.contradicted_by) and len(each.ranks) == 1
    ]
    if len({each.ranks for each in whole}) == 1:
        (rank,) = whole[0].ranks
        seen = f"all that waits does so for it, but {whole[0].withheld}"
        yield f"stack of rank {rank} minutes later: {seen}; if it is still there, the job hangs at it"
