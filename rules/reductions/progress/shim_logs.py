"""Whether the job still moves by the logs of the collector inside its processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forensics.rules.reductions.progress.liveness import LEAST_SILENCE_NS, Liveness, Motion
from forensics.rules.reductions.ranks.shim_logs import ShimLog, last_beats


def logged_motion(logs: Iterable[ShimLog], factor: float, silent: Iterable[int] = ()) -> Liveness | None:
    """Decide from the logs whether the job moves; `silent` are ranks whose heartbeat stopped. None when nothing tells it.

    All logs go on to be written while their process waits: the time from the last call to the last heartbeat is silence.
    """
    known = [log for log in logs if log.active_ns is not None]
    running = [log for log in known if not log.ended and log.rank not in set(silent)]
    if known and not [log for log in known if not log.ended]:
        return Liveness(Motion.MOVING, f"every process with a log ended in order ({len(known)})")
    if not running:
        return None
    until = last_beats(running)
    silences = {log.rank: max(0, until[log.rank] - (log.active_ns or 0)) for log in running}
    pauses = [log.pause_ns for log in known if log.pause_ns is not None]
    return _judged(min(silences.values()), max(silences.values()), max(pauses, default=None), factor, running)


def _judged(least: int, most: int, pause: int | None, factor: float, logs: Sequence[ShimLog]) -> Liveness:
    text = f"no call and no chunk moved in any log for {least / 1e9:.1f} s before its last heartbeat"
    source = max(logs, key=lambda log: (log.active_ns or 0, log.source)).source
    if pause is None:
        motion = Motion.TOO_EARLY if least < LEAST_SILENCE_NS else Motion.UNSEEN
        return Liveness(motion, f"{text}, and too few calls came before", silence_ns=least, source=source)
    text = f"{text}; pauses of up to {pause / 1e9:.1f} s occurred twice before"
    if any(log.graphs for log in logs):
        return Liveness(Motion.UNSEEN, "operations were captured in CUDA graphs, whose replays make no call", source=source)
    if least >= max(factor * pause, LEAST_SILENCE_NS):
        return Liveness(Motion.STALLED, text, silence_ns=least, pause_ns=pause, source=source)
    if most <= min(pause, LEAST_SILENCE_NS):
        return Liveness(Motion.MOVING, f"all {len(logs)} ranks made calls up to the end of their logs", source=source)
    return Liveness(Motion.TOO_EARLY, text, silence_ns=least, pause_ns=pause, source=source)
