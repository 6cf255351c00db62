"""Words of which one stands in every line of a log that some reader may know."""

from __future__ import annotations

from functools import cache

from forensics.ingest._job_logs import (
    alert_texts,
    barriers,
    calls,
    comm_findings,
    coordination,
    desync,
    device_tables,
    events,
    hccl,
    horovod,
    host_ranks,
    identities,
    launchers,
    lost_daemons,
    mpi_fronts,
    nccl_lines,
    nccl_tests,
    nodes,
    norm_tables,
    own_ranks,
    placements,
    pods,
    ray_collectives,
    recorder_analysis,
    stack_dumps,
    stage_times,
    stated_versions,
    stated_world,
    straggler_reports,
    torchrun,
    tracebacks,
    training_lines,
    watchdog_lines,
)
from forensics.ingest._job_logs.line_origin import OWN_WORDS
from forensics.ingest._job_logs.word_places import Words, words

_WORDS = (
    *(
        *watchdog_lines.WORDS,
        *hccl.WORDS,
        *horovod.WORDS,
        *barriers.WORDS,
        *calls.WORDS,
        *comm_findings.WORDS,
        *coordination.WORDS,
        *desync.WORDS,
        *device_tables.WORDS,
        *ray_collectives.WORDS,
        *recorder_analysis.WORDS,
        *stack_dumps.WORDS,
        *stage_times.WORDS,
        *stated_versions.WORDS,
        *stated_world.WORDS,
        *straggler_reports.WORDS,
        *torchrun.WORDS,
        *training_lines.WORDS,
    ),
    *(
        *launchers.WORDS,
        *launchers.START_WORDS,
        *mpi_fronts.WORDS,
        *nccl_tests.WORDS,
        *norm_tables.WORDS,
        *lost_daemons.WORDS,
        *alert_texts.WORDS,
        *nodes.KERNEL_LOGS,
        *own_ranks.WORDS,
        *pods.WORDS,
        *identities.WORDS,
        *placements.WORDS,
        *OWN_WORDS,
        *events.WORDS,
        *tracebacks.UNCAUGHT_WORDS,
        tracebacks.TRACEBACK,
        tracebacks.WORKER_ENDS,
        tracebacks.SHARD_ENDS,
        *tracebacks.SURVIVED,
        *tracebacks.CHAINED,
    ),
)
_EXPRESSIONS = {
    **torchrun.EXPRESSIONS,
    **placements.EXPRESSIONS,
    **host_ranks.EXPRESSIONS,
    **stack_dumps.EXPRESSIONS,
    **stage_times.EXPRESSIONS,
    **stated_world.EXPRESSIONS,
    **straggler_reports.EXPRESSIONS,
}


@cache
def wanted(has_nodes: bool, has_processes: bool) -> Words:
    """What is looked for where several nodes, or several processes, are known already or not."""
    by_nodes = () if has_nodes else nodes.WORDS
    by_nccl = nccl_lines.MEANING if has_processes else nccl_lines.WORDS
    return words([*_WORDS, *by_nodes, *by_nccl], {**_EXPRESSIONS, **({} if has_nodes else nodes.EXPRESSIONS)})
