"""What a shim log covers: which hooks were installed, what was lost, and who wrote it. Not hooked is not zero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from forensics.ingest.interface import Batch, Problem
from forensics.ingest.shim_log import layout
from forensics.ingest.shim_log.clock import Clock
from forensics.ingest.shim_log.file import ShimFile, Table, text
from forensics.ingest.shim_log.flows import last_tick
from forensics.ingest.shim_log.rings import Ring

_REASONS = (
    None,
    "a smaller log: no room for the wanted size",
    "no space",
    "the file could not be made",
    "the file could not be mapped",
    "no heartbeat thread",
    "an NCCL function was called that the NCCL of its caller does not have",
    "an unknown interface was left alone",
    "internal error",
    "a smaller log: more than a sixteenth of the free space",
    "the smallest log is more than a sixteenth of the free space",
    "the folder is a link, of somebody else, or writable by others",
    "the file was cut while it was in use, or its file system had no room",
    "the file was removed while it was in use",
)
_LOST = (12, 13)
"""Reasons that came after recording had begun."""
_HOOK_NCCL, _HOOK_PROFILER, _HOOK_CONTEXT, _HOOK_LOOKUP, _HOOK_LINKED = 32, 0, 18, 16, 17
_HOOK_PROXY, _HOOK_TWO_COPIES = 3, 33
HookStatus = tuple[str, str, str | None]


def reason_text(reason: int, error: int) -> str | None:
    """A reason of the writer in words."""
    known = _REASONS[reason] if reason < len(_REASONS) else f"reason {reason}"
    return known if known is None or error == 0 else f"{known} (errno {error})"


def note_text(reason: int, error: int) -> str:
    """What the note beside a log, or in its place, says: why there is none, or why it ends."""
    words = reason_text(reason, error) or "reason unknown"
    return (
        f"{'recording ended' if reason == _LOST[0] else 'the log is lost'}: {words}"
        if reason in _LOST
        else f"recorded nothing: {words}"
    )


def coverage_batches(log: ShimFile, clock: Clock, rings: Sequence[Ring]) -> Iterator[Batch | Problem]:
    """Coverage rows, the configuration that the head and the live page tell, and problems of the log itself."""
    hooks = [*_hooks(log.live), _log_status(log), *_history(rings)]
    ticks = last_tick(log, rings)
    begin, end = int(log.head["created_ns"]), _realtime(clock, ticks)
    yield Batch(
        "coverage",
        {
            "scope": ["rank"] * len(hooks),
            "kind": [kind for kind, _, _ in hooks],
            "status": [status for _, status, _ in hooks],
            "reason": [reason for _, _, reason in hooks],
            "begin_ns": [begin] * len(hooks),
            "end_ns": [end] * len(hooks),
        },
    )
    facts = {key: value for key, value in _facts(log, rings) if value}
    yield Batch("job_config", {"key": list(facts), "value": list(facts.values()), "confidence": ["read"] * len(facts)})
    yield from _problems(log, rings)


def _realtime(clock: Clock, ticks: int) -> int | None:
    import numpy as np

    values, missing = clock.realtime(np.array([ticks], np.uint64))
    return None if missing[0] else int(values[0])


def _bit(words: Any, number: int) -> bool:
    return bool(int(words[number // 64]) >> (number % 64) & 1)


def _hooks(live: Any) -> Iterator[HookStatus]:
    """Status of each hook; the numbers of hooks are bits of the second word."""
    hooked, called = live["hooked"], live["called"]
    if _bit(called, 64 + _HOOK_NCCL):
        yield "nccl_api", *_called_api(live)
    elif _bit(called, 64 + _HOOK_PROFILER):
        yield "nccl_api", "not_found", "no call came through the preloaded functions, the profiler saw some: not hooked"
    else:
        yield "nccl_api", "not_found", "no NCCL call came through the preloaded functions"
    if not _bit(called, 64 + _HOOK_PROFILER):
        yield "nccl_profiler", "not_configured", "NCCL did not start the profiler plugin"
    elif _bit(called, 64 + _HOOK_PROXY):
        yield "nccl_profiler", "ok", None
    else:
        yield "nccl_profiler", "partial", "no proxy operation was seen: no progress evidence, as within one node"
    yield "verbs", *_verbs(hooked, called)


def _called_api(live: Any) -> tuple[str, str | None]:
    missing = [name for number, name in {**layout.OPERATIONS, **layout.EVENTS}.items() if _bit(live["unresolved"], number)]
    if missing:
        return "partial", f"not in the NCCL of the caller: {', '.join(missing)}"
    two = _bit(live["called"], 64 + _HOOK_TWO_COPIES)
    return "ok", "two copies of NCCL are in use" if two else None


def _verbs(hooked: Any, called: Any) -> tuple[str, str | None]:
    if _bit(called, 64 + _HOOK_CONTEXT) or _bit(hooked, 64 + _HOOK_CONTEXT):
        return "ok", None
    if _bit(called, 64 + _HOOK_LOOKUP) or _bit(called, 64 + _HOOK_LINKED):
        return "partial", "libibverbs was loaded, no device was opened through the hook"
    return "not_configured", "libibverbs was not reached through the hook"


def _log_status(log: ShimFile) -> HookStatus:
    dropped = int(log.live["dropped"].sum())
    lost = sum(int(log.live[name]) for name in ("lost_comms", "lost_proxy_ops", "lost_queue_pairs"))
    reason = reason_text(int(log.live["reason"]), int(log.live["reason_errno"]))
    if dropped or lost:
        return "shim_log", "partial", f"{dropped} records found no ring, {lost} states no slot"
    return "shim_log", "partial" if reason else "ok", reason


def _history(rings: Sequence[Ring]) -> Iterator[HookStatus]:
    """What was left out because only the end of the history was asked for."""
    if unread := sum(ring.unread for ring in rings):
        yield "shim_history", "partial", f"{unread} records before the onset of the fault not read; --full reads them"


def _facts(log: ShimFile, rings: Sequence[Ring]) -> Iterator[tuple[str, str | None]]:
    head, live = log.head, log.live
    yield "world_size", str(int(head["world_size"])) if head["world_size"] > 0 else None
    yield "shim.job", text(head["job"])
    yield "shim.run", text(head["run"])
    yield "shim.pid", str(int(head["pid"]))
    yield "shim.process_start", str(int(head["process_start"]))
    yield "shim.boot_id", text(head["boot_id"])
    yield "shim.executable", text(head["executable"])
    yield "shim.rank_variable", text(head["rank_variable"])
    yield "shim.local_rank", str(int(head["local_rank"])) if head["local_rank"] >= 0 else None
    yield "shim.state", layout.LOG_STATES.get(int(live["state"]))
    yield "shim.beats", str(int(live["beats"]))
    yield "shim.profiler_version", str(int(live["profiler_version"])) if live["profiler_version"] else None
    yield "nccl_version", _version(int(live["nccl_version"]))
    yield "env.CUDA_VISIBLE_DEVICES", text(head["visible_devices"])
    for number, name in enumerate(layout.RING_CLASSES):
        own = [ring for ring in rings if ring.ring_class == name]
        kept = sum(len(ring.records) for ring in own)
        lost = sum(ring.overwritten for ring in own), sum(ring.torn for ring in own), int(live["dropped"][number])
        written = sum(ring.written for ring in own)
        unread = sum(ring.unread for ring in own)
        left = f" unread={unread}" if unread else ""
        lost_text = f"overwritten={lost[0]} torn={lost[1]} dropped={lost[2]}"
        yield f"shim.records.{name}", f"written={written} kept={kept}{left} {lost_text}"


def _version(code: int) -> str | None:
    """NCCL's version code: 21803 is 2.18.3; before 2.9 it had one digit less."""
    if not code:
        return None
    return (
        f"{code // 10000}.{code // 100 % 100}.{code % 100}"
        if code >= 10000
        else f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    )


def _problems(log: ShimFile, rings: Sequence[Ring]) -> Iterator[Problem]:
    for ring in rings:
        if ring.torn:
            yield Problem(f"{ring.torn} records of thread {ring.thread} were being written or are damaged; left out", "rings")
        if ring.beyond:
            yield Problem(f"{ring.beyond} records of thread {ring.thread} lie behind the cut", "rings")
    reason = reason_text(int(log.live["reason"]), int(log.live["reason_errno"]))
    if reason:
        note = text(log.live["note"])
        yield Problem(f"the writer says: {reason}" + (f"; {note}" if note and note not in reason else ""), "byte=2048")


def clock_batch(log: ShimFile, readings: Table) -> Batch | None:
    """The readings of the clock table."""
    host = log.host
    if not len(readings) or host is None:
        return None
    count = len(readings)
    columns = {name: readings[name].tolist() for name in ("bound_ns", "realtime_ns", "monotonic_ns", "boottime_ns")}
    return Batch("clocks", {"host": [host] * count, "method": ["read by the collector in the process"] * count, **columns})
