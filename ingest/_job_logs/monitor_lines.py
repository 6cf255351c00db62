"""Lines by which something that watches over processes says that one of them is gone, or that it did not come on.

So do tables of the nodes of a cluster: Ray's, where a node that its autoscaler asked to go did nothing wrong, and the daemon
that keeps nodes of AWS ParallelCluster.
Upstream: `RankMonitorServer` of nvidia-resiliency-ext, which kills the rank that it watches when its time is over;
collective_all_reduce_strategy.py of TensorFlow; src/lighthouse.rs of torchft; `ray list nodes`; clustermgtd;
TaskSchedulerImpl and DAGScheduler of Spark,
whose barrier stages run the ranks of TorchDistributor and of Horovod.
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

ALERT = "alert firing "
"""In front of an alert of Prometheus that fires, as exports of them are written."""
TAKEN = "platform took "
"""In front of a virtual machine that its cloud started anew or ended, and of how, as records of such events are written."""
NODE_GONE = "instance was ended under node "
"""In front of a node of a job of AWS Batch, as records of them are written."""
KILLED_BY_MONITOR = "its monitor ends it"
PATTERNS = (
    # All ranks wait when one hangs: whose monitor looks first is chance.
    pattern(
        "stall_report",
        r"\[RankMonitorServer:(?P<rank>\d{1,7})(?:@[\w.-]{1,253})?\] (?:Did not get (?:initial|subsequent) heartbeat"
        r"|Section '[^']{1,80}' has been open for|Was out of section for)",
        KILLED_BY_MONITOR,
        ("[RankMonitorServer:",),
    ),
    pattern(
        "process_lost", r"Cluster check alive failed, (?P<who>/job:\w{1,64}/replica:\d{1,5}/task:\d{1,7}) is down", "task {who}"
    ),
    pattern("process_lost", r"::lighthouse\W{1,5}Replica (?P<who>\S{1,253}) timed out \(last heartbeat", "replica group {who}"),
    # Ray's monitor of the memory of a node, which ends the workers that hold most.
    pattern(
        "process_lost",
        r"(?<!\D0 )Workers \(tasks / actors\) killed due to memory pressure \(OOM\).{0,160}?\bIP: (?P<who>[\w.:]{2,64})\)",
        "worker of Ray on {who} (killed for the memory of its node)",
        ("Workers (tasks",),
    ),
    # libfabric's provider of EFA, of a peer that its device reached and whose process did not answer.
    pattern("process_lost", r"Unresponsive receiver \(.{1,400}?Peer host id: (?P<who>[\w.-]{1,80})", "host {who}"),
    # An executor that was asked to go did nothing wrong.
    pattern(
        "process_lost",
        r"Lost executor (?P<who>[\w-]{1,64} on [\w.:-]{1,253}): (?!.{0,80}(?:decommission|killed by driver))",
        "executor {who}",
    ),
    pattern(
        "barrier_task_failed",
        r"barrier task (?:Result|ShuffleMap)Task\(\d{1,9}, (?P<task>\d{1,7})\) finished unsuccessfully",
        "{task}",
    ),
    pattern(
        "node_dead",
        r"\b[0-9a-f]{40,64} {1,8}(?P<who>[\w.:-]{2,253}) {1,24}(?:True|False) {1,24}DEAD\b"
        r"(?! {1,40}(?:Expected termination|Termination of node that's idle|.{0,80}(?:autoscaler|scaled down|SIGTERM)))",
        "{who}",
    ),
    pattern(
        "node_dead",
        r"Node state check: node (?P<who>[\w-]{1,253})\([\w.:]{1,64}\) in (?:\w{1,16} state: )?[\w+*]{0,60}(?:DOWN|FAIL)",
        "{who}",
    ),
    pattern("node_dead", rf"^{NODE_GONE}(?P<who>\d{{1,6}} \(i-\w{{1,32}}\))", "{who}"),
    # `gcloud compute operations list`, and records of Azure's scheduled events.
    pattern(
        "node_taken",
        r"compute\.instances\.(?P<how>hostError|preempted|terminateOnHostMaintenance) {1,8}\S{0,200}\binstances/"
        r"(?P<who>[a-z][\w-]{0,62})\b",
        "{who} {how}",
    ),
    pattern("node_taken", rf"^{TAKEN}(?P<who>[\w.-]{{1,80}}) (?P<how>\w{{1,40}})$", "{who} {how}"),
    # Flux, whose shell of a job is one process on each node.
    pattern(
        "node_failed",
        r"lost contact with job shell on (?:broker )?(?P<host>[A-Za-z][\w.-]{0,252}) \((?:shell )?rank \d{1,7}\)",
        "{host}",
    ),
    pattern(
        "container_failed",
        r"slurmstepd-(?P<host>[A-Za-z][\w.-]{0,252}): error: pyxis: (?:container start failed|couldn't start container"
        r"|failed to (?:create|import|start))",
        "{host}",
    ),
    # Lightning, of the number that each process was given.
    pattern("rank_taken", r"GLOBAL_RANK: (?P<number>\d{1,7}), MEMBER: \d{1,7}/(?P<size>\d{1,7})", "rank={number} of={size}"),
    # `npu-smi info`, and `hccn_tool -i 6 -link -g` of one device after the other.
    pattern(
        "npu_unhealthy",
        r"^\| (?P<npu>\d{1,2}) {1,8}\d{3}\w{1,12} {1,24}\| (?:Alarm|Critical|UNKNOWN) {1,12}\|",
        "NPU {npu}",
        ("| ",),
    ),
    pattern("npu_unhealthy", r"^link status: DOWN\b", "the link of an NPU"),
    # The device plugin of Kubernetes, which leaves out Xids that programs cause.
    pattern("gpu_unhealthy", r"XidCriticalError: Xid=(?P<code>\d{1,3}) on Device=(?P<who>GPU-[\w-]{4,64})", "{who} Xid {code}"),
    pattern("alert", rf"^{ALERT}(?P<name>\S{{1,120}}) (?P<where>host=\S{{1,253}}(?: device=\S{{1,80}})?)", "{where} {name}"),
)
WORDS = (
    "[RankMonitorServer:",
    "Cluster check alive failed",
    "::lighthouse",
    "Unresponsive receiver (",
    "Lost executor ",
    "killed due to memory pressure",
    "finished unsuccessfully",
    *(
        " DEAD",
        "Node state check: ",
        "| Alarm ",
        "| Critical ",
        "| UNKNOWN ",
        "link status: DOWN",
        ALERT,
        NODE_GONE,
        "GLOBAL_RANK: ",
    ),
    *("XidCriticalError: ", TAKEN, "compute.instances.", "lost contact with job shell", "error: pyxis: "),
)
