"""Verdicts made by hand; tests vary them with `dataclasses.replace`."""

from __future__ import annotations

from forensics.model import (
    Anomaly,
    Cause,
    Component,
    Confidence,
    CoverageRow,
    Evidence,
    Granularity,
    GroupRow,
    Label,
    Members,
    Outcome,
    RuleOutcome,
    Since,
    StageName,
    StageRef,
    Suspect,
    TimelineEntry,
    TreeLine,
    Verdict,
    Victims,
    WaitKind,
)

STALL_NS = 1_795_174_136_123_000_000
SINCE = Since(STALL_NS, "realtime of gpu-017", 3_000_000, 412)

DATALOADER = Suspect(
    fault=1,
    ranks=(2,),
    members=Members.EACH,
    hosts=("gpu-017",),
    granularity=Granularity.RANK,
    resource=None,
    anomaly=Anomaly.FAIL_STOP,
    stage=StageRef(StageName.DATA, Component.HOST, step=412),
    cause=Cause.DATALOADER_STALL,
    mechanism=None,
    impact=None,
    since=None,
    confidence=Confidence.LIKELY,
    rules=("FX110",),
    evidence=(
        Evidence(
            "rank 2 enqueued and completed collective 5 of 0:default_pg; the 3 other members wait in collective 6",
            "ranks/2/fr/0.json#entry=5",
        ),
        Evidence("3 of 3 samples at load_batch (data.py:14) > read", "ranks/2/stacks/0.json#thread=6130"),
        Evidence("the kernel log has no message of a file system", "nodes/gpu-017/kernel/dmesg.txt", supports=False),
    ),
    next_steps=("stat the shard from a shell that may hang", "forensics collect --deep --ranks 2"),
)

FILE_SYSTEM = Suspect(
    fault=1,
    ranks=(2,),
    members=Members.EACH,
    hosts=("gpu-017",),
    granularity=Granularity.HOST,
    resource=None,
    anomaly=Anomaly.FAIL_STOP,
    stage=StageRef(StageName.DATA, Component.HOST),
    cause=Cause.HOST_STALL,
    mechanism=None,
    impact=None,
    since=None,
    confidence=Confidence.SUSPECT,
    rules=("FX112",),
    evidence=(Evidence("the main thread sleeps in nfs_wait_bit_killable", "ranks/2/proc/0.json"),),
    next_steps=(),
)

HANG = Verdict(
    outcome=Outcome.HANG,
    summary="rank 2 never enqueued the all_reduce that every other rank waits in: it is still reading its next batch.",
    since=SINCE,
    suspects=(DATALOADER, FILE_SYSTEM),
    victims=(Victims((0, 1, 3), (2,)),),
    labels=(Label("telemetry_limited", "telemetry", "no dump of a second moment, so that progress was not compared"),),
    world_size=4,
    tree=(
        TreeLine(0, (0, 1, 2, 3), ("<module> (hang.py:24)", "main (hang.py:23)"), None),
        TreeLine(
            1,
            (0, 1, 3),
            ("train_step (hang.py:11)", "backward (hang.py:16)", "all_reduce (distributed_c10d.py:3252)"),
            WaitKind.COLLECTIVE,
        ),
        TreeLine(1, (2,), ("train_step (hang.py:10)", "load_batch (hang.py:14)"), WaitKind.IO),
    ),
    groups=(
        GroupRow("0:default_pg", (0, 1, 2, 3), "reported", 6, "all_reduce", "[[1024]]", (0, 1, 3), (2,), ()),
        GroupRow("1:tp_0", (0, 1), "reported", 80, "all_gather", None, (), (), (0, 1)),
    ),
    timeline=(
        TimelineEntry(STALL_NS + 600_000_000_000, "gpu-018", "watchdog: timeout of all_reduce", "ranks/3/logs/a#line=9"),
        TimelineEntry(STALL_NS - 1_500_000_000, "gpu-017", "last collective completed", None),
    ),
    coverage=(
        CoverageRow("fr.live", "rank", ("0", "2", "3"), (), (("1", "not_configured: no worker server"),)),
        CoverageRow("stack.pyspy", "rank", ("0", "1", "2", "3"), (), ()),
        CoverageRow("kernel.log", "host", ("gpu-017",), (), (("gpu-018", "permission"),)),
    ),
    not_checked=("Xid errors of gpu-018",),
    ruled_out=(
        RuleOutcome("FX110", "dataloader stall", "fired", ""),
        RuleOutcome("FX201", "collective order mismatch", "ruled_out", "collective 6 is the same in 3 of 3 ranks"),
        RuleOutcome("FX301", "chunk not transmitted", "not_applicable", "no chunk states"),
        RuleOutcome("FX302", "queue pair error", "not_applicable", "no work-request samples"),
    ),
    warnings=(Evidence("the last line is cut", "ranks/1/logs/a#line=912"),),
    would_change=("a collective 6 of rank 2 in a later dump: it would be slow, not stuck",),
    bundle_sha256="5d" * 32,
)

HEALTHY = Verdict(
    outcome=Outcome.HEALTHY,
    summary="every rank completed collectives between the two looks.",
    since=None,
    suspects=(),
    victims=(),
    labels=(),
    world_size=4,
    coverage=(CoverageRow("fr.live", "rank", ("0", "1", "2", "3"), (), ()),),
    bundle_sha256="ab" * 32,
)
