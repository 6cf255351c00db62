"""What the critical path says of a delay: whether it cost the step anything, and how much."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from forensics.model import Evidence, Finding, Impact
from forensics.rules.reductions.pipeline.call_place import CallPlace
from forensics.rules.reductions.pipeline.call_places import CallPlaces
from forensics.rules.reductions.pipeline.delay import Delay, Delays
from forensics.rules.reductions.pipeline.iteration import pass_text
from forensics.rules.reductions.pipeline.slow_steps import SlowStep, SlowSteps
from forensics.rules.reductions.text.evidence_text import counted

_SHOWN, _MS = 2, 1e6
# Times what is expected, and of the delay.
_FAR_LONGER, _MOST = 2.0, 0.5


@dataclass(frozen=True, slots=True)
class OnPath:
    """The delays of one subject beside the critical paths of their steps.

    `late` are dated slow steps in which its passes were late on the path, with those passes; `recoverable_ns` is what these
    steps would be shorter without. `dated` of the delays are in steps whose passes are dated; `is_absorbed`: all are, and the
    pass that held somebody up cost the step nothing in any. `in_turn`: receives are known to wait for the work called before.
    """

    late: tuple[tuple[SlowStep, tuple[int, ...]], ...]
    dated: int
    recoverable_ns: float
    is_absorbed: bool
    in_turn: bool = False

    def added(self, finding: Finding, typical_ns: float) -> Finding:
        """The finding with what could be recovered, and the passes that say so."""
        if not self.late or finding.impact is None:
            return finding
        steps = len(self.late)
        share = round(self.recoverable_ns / (self.recoverable_ns + steps * typical_ns), 3)
        impact = Impact(round(self.recoverable_ns), share, steps, "critical_path")
        return replace(finding, impact=impact, evidence=(*finding.evidence, *self._evidence()))

    def shows_device(self, delay: Delay) -> bool:
        """Whether a device was behind call after call of a pass that took far longer than expected, by most of the delay.

        Memory that is allocated holds a host up once. Other lengths of samples make no pass of one rank twice as long.
        """
        if not delay.is_spread or delay.on_host is not False:
            return False
        own = [(step, node) for step, nodes in self.late if step.number == delay.step for node in nodes]
        longer = [
            step.durations[node] - step.expected[node]
            for step, node in own
            if step.durations[node] >= _FAR_LONGER * step.expected[node]
        ]
        return bool(sum(longer) >= _MOST * delay.excess_ns)

    def place(self, number: int) -> CallPlace | None:
        """Where a step was held up: its only late pass of the subject; None where there are several, or where it is the first.

        What a rank does before its first pass of a step is no part of that pass, and messages do not tell it from it.
        """
        nodes = next(((step, nodes) for step, nodes in self.late if step.number == number), None)
        if nodes is None or len(nodes[1]) > 1:
            return None
        part, own = nodes[0].part(nodes[1][0])
        if any(work.passes[0] == own for work in part.works):
            return None
        return part.place(own)

    def _evidence(self) -> Iterator[Evidence]:
        for step, nodes in sorted(self.late, key=lambda each: -max(each[0].durations[list(each[1])]))[:_SHOWN]:
            worst = max(nodes, key=lambda node: step.durations[node] - step.expected[node])
            much = f"took {step.durations[worst] / _MS:.0f} ms, expected {step.expected[worst] / _MS:.0f} ms"
            more = f" (the worst of {len(nodes)} late passes of this step)" if len(nodes) > 1 else ""
            yield Evidence(f"on the critical path: {named(step, worst)} {much}{more}", None)
        yield Evidence(
            f"on the critical path in {len(self.late)} of {counted(self.dated, 'slow step')} whose passes are dated", None
        )
        for step, _ in self.late[:1]:
            yield from absorbed(step)


def absorbed(step: SlowStep) -> Iterator[Evidence]:
    """Over-long passes of a step that cost it nothing."""
    for node in step.absorbed()[:_SHOWN]:
        much = f"took {step.durations[node] / _MS:.0f} ms, expected {step.expected[node] / _MS:.0f} ms"
        spare = f"{step.judged.times.slack[node] / _MS:.0f} ms"
        yield Evidence(f"absorbed by bubbles: {named(step, node)} {much}, and could be {spare} later still", None)


def named(step: SlowStep, node: int) -> str:
    """A pass in words."""
    part, own = step.part(node)
    return pass_text(part.place(own), step.ranks(node))


def agreeing(slow: SlowSteps, delays: Delays) -> SlowSteps:
    """The slow steps of which some late pass is of a rank that held the step up by its calls, where both are known.

    Of the others one of both is wrong, and the path rests on more that was inferred.
    """
    return replace(slow, found=tuple(step for step in slow.found if _agrees(step, delays)))


def _agrees(step: SlowStep, delays: Delays) -> bool:
    held_up = {rank for delay in delays.found if delay.step == step.number for rank in delay.ranks}
    late = {rank for node in step.judged.late.tolist() for rank in step.ranks(node)}
    return not held_up or not late or not held_up.isdisjoint(late)


def on_path(found: Sequence[Delay], places: CallPlaces, slow: SlowSteps) -> OnPath:
    """What the graphs of their steps say of some delays with the same ranks."""
    late: list[tuple[SlowStep, tuple[int, ...]]] = []
    absorbed_in = dated = 0
    recoverable, in_turn = 0.0, True
    for delay in found:
        step = slow.step(delay.step)
        if step is None:
            continue
        dated += 1
        in_turn &= step.in_turn
        own = [node for node in step.judged.late.tolist() if set(delay.ranks) & set(step.ranks(node))]
        if own:
            late.append((step, tuple(own)))
            recoverable += step.recoverable(delay.ranks)
        place = places.of_call(delay.witness, delay.communicator, delay.sequence)
        node = step.find(delay.witness, place) if place else None
        absorbed_in += not own and node is not None and node in step.judged.absorbed
    return OnPath(tuple(late), dated, recoverable, 0 < absorbed_in == len(found), dated > 0 and in_turn)
