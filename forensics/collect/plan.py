"""What is collected, in which order and with which deadline, as data.

What evaporates comes first: thread states and Python stacks of all ranks at the same moments, at uneven times, and the Flight
Recorder twice, early and late, so that a job that moves is seen to move. A dump through the pipe comes after that, because
it makes the job do something; logs come last.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

from forensics.bundle.layout import Status, member_name, node_path
from forensics.collect.collectors import (
    clock,
    fr_files,
    fr_live,
    fr_pipe,
    gpu_smi,
    ib_counters,
    kernel_log,
    log_files,
    nccl_ras,
    proc_tasks,
    py_spy,
    shim_logs,
    stage_files,
    versions,
)
from forensics.collect.record import Run
from forensics.collect.schedule import Task
from forensics.collect.target import Context, Settings, Target

_SPARE_S = 5.0
_RESERVE_S = 2.0
LEAST_FACTOR, MOST_FACTOR = 0.6, 1.7
"""Bounds of an interval, as multiples of the one asked for: wide enough that its double and its half do not fit every draw."""


@dataclass(frozen=True, slots=True)
class RankCollector:
    """A collector that runs for every rank: how often, when, and after which other collectors of the same rank."""

    id: str
    collect: Callable[[Context, Target, int], Iterable[Run]]
    deadline_s: Callable[[Settings], float]
    times: Callable[[Settings], tuple[float, ...]] = lambda settings: (0.0,)
    after: tuple[str, ...] = ()


def _samples(settings: Settings) -> tuple[float, ...]:
    """Process facts and stacks of all ranks are taken at the same times."""
    return sample_times(settings.samples, settings.interval_s, settings.seed)


def _twice(settings: Settings) -> tuple[float, ...]:
    return (0.0, max(settings.recorder_gap_s, _samples(settings)[-1]))


RANK_COLLECTORS = (
    RankCollector(proc_tasks.ID, proc_tasks.collect_tasks, lambda settings: settings.stack_s + _SPARE_S, _samples),
    RankCollector(py_spy.ID, py_spy.collect_stacks, lambda settings: settings.stack_s * 4, _samples),
    RankCollector(fr_live.ID, fr_live.collect_live, lambda settings: settings.answer_s * 4 + _RESERVE_S, _twice),
    RankCollector(fr_files.ID, fr_files.collect_files, lambda settings: settings.answer_s * 2 + _SPARE_S),
    RankCollector(shim_logs.ID, shim_logs.collect_logs, lambda settings: 30.0),
    RankCollector(stage_files.ID, stage_files.collect_stages, lambda settings: 30.0),
    RankCollector(
        fr_pipe.ID, fr_pipe.collect_pipe, lambda settings: settings.dump_wait_s + _SPARE_S, after=(fr_files.ID, fr_live.ID)
    ),
    RankCollector(log_files.ID, log_files.collect_logs, lambda settings: 30.0, after=(py_spy.ID,)),
)


def make_plan(context: Context, targets: Sequence[Target]) -> list[Task]:
    """All tasks of a collection, ranks first."""
    tasks = [task for target in targets for collector in RANK_COLLECTORS for task in _rank_tasks(context, collector, target)]
    return [*tasks, *_host_tasks(context, targets)]


def _rank_tasks(context: Context, collector: RankCollector, target: Target) -> Iterable[Task]:
    settings = context.settings
    before: tuple[str, ...] = tuple(
        _key(other.id, target.rank, len(other.times(settings)) - 1) for other in RANK_COLLECTORS if other.id in collector.after
    )
    for sample, offset in enumerate(collector.times(settings)):
        key = _key(collector.id, target.rank, sample)
        yield Task(
            key,
            collector.id,
            target.rank,
            sample,
            partial(_collect_rank, collector, context, target, sample),
            collector.deadline_s(settings),
            offset,
            before,
            target.pid,
        )
        before = (key,)


def _collect_rank(collector: RankCollector, context: Context, target: Target, sample: int) -> Iterable[Run]:
    """The runs of a rank's collector; when its process goes away meanwhile, that is the reason, not the file it took along."""
    try:
        yield from collector.collect(context, target, sample)
    except (FileNotFoundError, ProcessLookupError):
        if target.pid is None or context.procfs.is_alive(target.pid):
            raise
        yield Run(collector.id, target.rank, Status.NOT_FOUND, proc_tasks.gone(target), pid=target.pid, sample=sample)


def _host_tasks(context: Context, targets: Sequence[Target]) -> Iterable[Task]:
    settings = context.settings
    first, second = _twice(settings)
    environ = next((target.environ for target in targets if target.environ), {})
    ras = partial(
        nccl_ras.collect_ras,
        context,
        targets,
        address=environ.get("NCCL_RAS_ADDR") or nccl_ras.DEFAULT_ADDRESS,
        switched_off=environ.get("NCCL_RAS_ENABLE") == "0",
    )
    counters = partial(ib_counters.collect_counters, context)
    yield _host_task(nccl_ras.ID, 0, partial(ras, sample=0), nccl_ras.ANSWER_S + _SPARE_S)
    yield _host_task(nccl_ras.ID, 1, partial(ras, sample=1), nccl_ras.ANSWER_S + _SPARE_S, second)
    yield _host_task(ib_counters.ID, 0, partial(counters, 0), settings.answer_s + _RESERVE_S, first)
    yield _host_task(ib_counters.ID, 1, partial(counters, 1), settings.answer_s + _RESERVE_S, second)
    yield _host_task(kernel_log.ID, 0, partial(kernel_log.collect_kernel_log, context, 0), settings.answer_s * 2 + _SPARE_S)
    yield _host_task(gpu_smi.ID, 0, partial(gpu_smi.collect_smi, context, 0), gpu_smi.TIMEOUT_S + _SPARE_S)
    yield _host_task(clock.ID, 0, partial(clock.collect_sync, context, 0), settings.answer_s * 2 + _RESERVE_S)
    yield _host_task(versions.ID, 0, partial(versions.collect_versions, context, targets), settings.answer_s * 2)
    if not targets:
        yield _host_task(shim_logs.ID, 0, partial(shim_logs.collect_left, context), 60.0)
    for number, (name, witness) in enumerate(sorted(_shared_logs(targets).items())):
        work = partial(_shared_log, context, name, witness)
        yield _host_task(log_files.ID, number, work, 30.0, _samples(settings)[-1])


def _host_task(name: str, sample: int, work: Callable[[], Iterable[Run]], deadline_s: float, offset: float = 0.0) -> Task:
    previous = (_key(name, None, sample - 1),) if sample else ()
    return Task(_key(name, None, sample), name, None, sample, work, deadline_s, offset, previous)


def _key(name: str, rank: int | None, sample: int) -> str:
    return f"{name}/{'host' if rank is None else rank}/{sample}"


def shared_log_path(node: str, name: str, names: Sequence[str]) -> str:
    """Member of a log that several ranks write; numbered where two such logs have the same file name."""
    same = sorted(other for other in names if Path(other).name == Path(name).name)
    number = f"{same.index(name)}." if len(same) > 1 else ""
    return node_path(node, f"logs/{number}{member_name(Path(name).name)}")


def _shared_logs(targets: Sequence[Target]) -> Mapping[str, Target]:
    """Each shared log with one of the ranks that write it."""
    found: dict[str, Target] = {}
    for target in targets:
        for name in target.shared_logs:
            if target.pid is not None and target.state == "alive":
                found.setdefault(name, target)
    return found


def _shared_log(context: Context, name: str, target: Target) -> Iterable[Run]:
    if target.pid is None:
        return
    for number, link in log_files.open_logs(context.procfs, target.pid).items():
        if link == name:
            path = context.procfs.path(target.pid, f"fd/{number}")
            yield log_files.copy_log(context, None, log_files.LogSource(path, name, target.shared_logs[name]))
            return


def sample_times(count: int, interval_s: float, seed: int) -> tuple[float, ...]:
    """Seconds after the start of a collection at which each of `count` samples is due; the same for the same seed.

    A job whose step takes as long as an even interval would be met at the same place of its step each time, and look frozen.
    Each interval is drawn from another part of the range, in random order: two are hardly ever alike.
    """
    draw = random.Random(seed)
    intervals = count - 1
    parts = draw.sample(range(intervals), intervals) if intervals > 0 else []
    width = MOST_FACTOR - LEAST_FACTOR
    factors = (LEAST_FACTOR + width * (part + draw.random()) / intervals for part in parts)
    return tuple(accumulate((factor * interval_s for factor in factors), initial=0.0))[:count]
