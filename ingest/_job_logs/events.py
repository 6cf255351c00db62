"""What the lines of a training log mean, one by one: the table of patterns."""

from __future__ import annotations

from forensics.ingest._job_logs import (
    batch_limits,
    deepep_lines,
    fatal_lines,
    finished_lines,
    megascale_lines,
    monitor_lines,
    unreached_lines,
)
from forensics.ingest._job_logs.patterns import (
    FALLEN_OFF,
    MISSED_BARRIER,
    SLURM_CANCELLED,
    SLURM_OUT_OF_MEMORY,
    TASK_OUT_OF_MEMORY,
    mentions,
    pattern,
)

# An address, or a name: one without a digit or a dot is a word of a sentence where no port stands behind it.
_PEER = (
    r"\[?(?P<peer>[0-9A-Fa-f.:]+[0-9A-Fa-f](?![\w-]|\.\w)|(?=[\w-]*[\d.]|[\w-]+(?:\]?:\d|<))[\w.-]+)\]?(?::(?P<port>\d{1,5}))?"
)

_OTHERS = (fatal_lines, finished_lines, megascale_lines, deepep_lines, monitor_lines, batch_limits, unreached_lines)
PATTERNS = (
    pattern(
        "peer_closed",
        rf"(?:Read|Write) error {_PEER}: (?:Connection|Broken pipe)",
        "{peer}:{port}",
        ("Read error ", "Write error "),
    ),
    pattern("peer_closed", rf"Connection (?:closed|reset) by (?:remote )?peer {_PEER}", "{peer}:{port}"),
    pattern("peer_closed", r"Peer host: {1,8}(?P<peer>[\w.-]{1,255})\s*$", "{peer}"),
    pattern(
        "peer_closed",
        r"Call to (?:recv from|send to|connect to) (?P<peer>[\w.:-]+)<(?P<port>\d{1,5})> failed : "
        r"(?:Connection re|Broken pipe)",
        "{peer}:{port}",
    ),
    # The service thread of NCCL notes how a local rank leaves in good order.
    pattern(
        "peer_closed",
        r"(?:gloo|c10d|TCPStore|NCCL).*(?:Connection (?:closed|reset) by(?! localRank)|Broken pipe)",
        "",
        ("gloo", "c10d", "TCPStore", "NCCL"),
    ),
    pattern("peer_closed", r"ncclRemoteError|remote process exited or there was a network error", ""),
    pattern(
        "completion_error",
        r"Got completion from peer (?P<peer>\S+) with (?:error |status=(?:[^(,]{1,80}\()?)(?P<status>\d{1,3})\b"
        r".*?vendor[ _]err[ =](?P<vendor>\d{1,6})(?:.*? hca (?P<nic>[\w.-]+))?",
        "peer={peer} status={status} vendor={vendor} nic={nic}",
    ),
    pattern(
        "nic_event",
        r"NET/IB ?: (?:(?P<nic>[\w.-]+:\d+) )?(?:async fatal event|Got async (?:error )?event)[^:]{0,80}: (?P<what>[\w ]+)",
        "{nic} {what}",
    ),
    pattern("nccl_warning", r"\] (?P<where>\S{1,200}:\d{1,7})(?: \([^)]{0,80}\))? NCCL WARN ", "{where}"),
    pattern(
        "watchdog_timeout",
        # Not what a sentence mentions.
        r"(?<![\w,.\"'`] )(?<![\"'`])Watchdog caught collective operation timeout(?=:|\s*$)"
        r"(?:: Work\w+\((?:SeqNum=(?P<sequence>\d+), )?OpType=(?P<operation>\w+))?",
        "{operation} seq={sequence}",
        ("Watchdog caught",),
    ),
    pattern("watchdog_report", r"Timeout at (?:\w{2,8} )?work: (?P<number>\d+), last enqueued", "work {number}"),
    pattern(
        "watchdog_progress",
        r"\[PG (?:ID \d+ PG GUID )?(?P<group>[^\]]{0,200}?) Rank \d+\].*"
        r"[Ll]ast enqueued (?:\w+ )?work: (?P<enqueued>-?\d+),.{0,120}?last completed (?:\w+ )?work: (?P<completed>-?\d+)",
        "pg={group} enqueued={enqueued} completed={completed}",
        ("[PG ",),
    ),
    pattern(
        "dump_signal",
        r"Received a dump signal due to a collective timeout from +(?P<who>this local rank|rank -?\d{1,7})",
        "{who}",
    ),
    pattern(
        "watchdog_stuck",
        r"[Ww]atchdog got stuck for (?P<seconds>\d+) seconds",
        "{seconds} s",
        ("Watchdog got", "watchdog got"),
    ),
    pattern("watchdog_stuck", r"Heartbeat monitor timed out|detected no heartbeat of its watchdog", ""),
    pattern(
        "watchdog_died",
        r"(?:[Ww]atchdog thread|watchdogHandler) (?:terminated with|caught) exception: (?P<what>.{1,400})",
        "{what}",
        ("watchdog thread", "Watchdog thread", "watchdogHandler"),
    ),
    pattern("terminated", r"terminate called after throwing an instance of '(?P<what>[^']{1,200})'", "{what}"),
    pattern("terminated", r"Worker proc (?P<what>\S{1,80}) died unexpectedly", "{what}"),
    pattern("terminated", r"(?P<what>EngineCore) encountered a fatal error", "{what}", ("EngineCore encountered",)),
    pattern("parent_exited", r"Parent process exited, terminating worker", ""),
    pattern(
        "start_failed",
        r"(?P<what>Duplicate GPU detected)(?P<who> : rank \d+ and rank \d+ both on CUDA device \w+)?",
        "{what}{who}",
    ),
    pattern("mismatch_raised", r"Error: (?P<what>Detected mismatch between collectives) on ranks", "{what}"),
    pattern("cuda_failure", r"Cuda failure (?:\d{1,5} )?'(?P<what>[^']{1,200})'", "{what}"),
    pattern(
        "stall_report",
        r"One or more tensors were submitted to be .{0,120}?waiting for remainder of ranks for more than (?P<seconds>\d{1,9})",
        "{seconds} s",
    ),
    pattern("stall_report", r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<seconds>\d{1,9})", "{seconds} s"),
    pattern("barrier_timeout", MISSED_BARRIER, "missing={ranks}", ("Rank",)),
    pattern("barrier_timeout", r"Timed out initializing process group in store based barrier", "store"),
    pattern(
        "barrier_timeout", r"Timed out after \d{1,9} seconds waiting for clients\. (?P<came>\d{1,7}/\d{1,7})", "{came} came"
    ),
    pattern(
        "barrier_timeout",
        r"(?<![\w,.\"'`] )Barrier timed out\. (?:Barrier_id|Id): (?P<what>(?!Shutdown::)\S{1,200})",
        "{what}",
        ("Barrier timed out. ",),
    ),
    pattern("gil_not_free", r"Could not acquire GIL within (?P<ms>\d+) ms on exit", "{ms} ms"),
    pattern(
        "desync_report",
        r"\[(?P<ranks>[\d, ]{1,400})\] (?P<what>joined but didn't finish|finished) collective #(?P<at>\d+)",
        "ranks={ranks} {what} {at}",
    ),
    pattern("desync_report", r"ranks \[(?P<ranks>[\d, ]{1,400})\] are the lagging ranks", "ranks={ranks} never joined"),
    pattern(
        "transfer_timeout", r"Timed out waiting (?P<ms>\d+)ms for (?P<what>\w+) operation to complete", "{what} after {ms} ms"
    ),
    pattern("store_timeout", r"wait timeout after (?P<ms>\d{4,})ms, keys: (?P<keys>[^\s,\"']{1,200})", "{keys} after {ms} ms"),
    pattern(
        "size_mismatch",
        r"enforce fail at \S{0,200}gloo\S{0,200}\].{0,400}?(?P<got>\d{1,20}) vs (?P<expected>\d{1,20})",
        "{got} vs {expected}",
    ),
    pattern(
        "process_exit",
        r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)",
        "exitcode={code} pid={pid} local_rank={local}",
    ),
    pattern(
        "process_exit",
        r"srun: error: (?P<host>\S+): tasks? (?P<task>[\d,-]+): (?P<how>[\w .]+)",
        "task={task} host={host} {how}",
    ),
    pattern(
        "process_exit",
        r"line \d+: +(?P<pid>\d+) (?P<how>Killed|Aborted|Segmentation fault|Bus error|Terminated)\b",
        "pid={pid} {how}",
    ),
    pattern("process_exit", r"^(?P<how>Killed|Aborted|Segmentation fault|Bus error)(?: \(core dumped\))?$", "{how}"),
    pattern(
        "worker_exit",
        r"DataLoader worker \(pid\(?s?\)? (?P<pid>[\d, ]+)\) (?P<how>is killed by signal: \w+|exited unexpectedly)",
        "pid={pid} {how}",
    ),
    pattern("fatal_error", r"^Fatal Python error: (?P<what>.+)", "{what}"),
    *(known for each in _OTHERS for known in each.PATTERNS),
    # What torch quotes of NCCL behind the rank whose host has no shared memory left.
    pattern("out_of_shared_memory", r"^Error while creating shared memory segment (?P<what>\S{1,200})", "{what}"),
    pattern(
        "signal_sent",
        r"(?:Sending|Closing|Unable to shutdown) process (?P<pid>\d{1,9}) (?:closing|via)(?: [\w.]{1,20},)?"
        r" (?:signal|forcefully exiting via) (?:Signals\.)?(?P<signal>\w{1,12})",
        "pid={pid} {signal}",
        ("Sending process ", "Closing process ", "Unable to shutdown process "),
    ),
    pattern("signal_sent", r"terminated with code -?\d{1,5}\. Forcefully terminat", "by=lightning"),
    pattern("signal_sent", r"Received sigquit from a child proces", "by=sglang"),  # some releases leave out the last letter
    # A broadcast that workers of vLLM do not read yet: they may compile as well as hang.
    pattern(
        "broadcast_waits", r"No available shared memory broadcast block found in (?P<seconds>\d{1,6}) ?second", "{seconds} s"
    ),
    pattern("signal_sent", r"SIGQUIT received\. signum=\w{1,8}, frame=", "by=sglang"),
    SLURM_CANCELLED,
    pattern(
        "job_cancelled",
        r"(?:JOB|STEP) (?P<job>\S+) STEPD TERMINATED ON \S+ AT \S+(?P<why> DUE TO [A-Z ]+)?",
        "job={job}{why}",
        ("JOB ", "STEP "),
    ),
    pattern("job_cancelled", r"srun: .*(?:forcing job termination|Job step aborted: Waiting up to \d+ seconds)", ""),
    pattern(
        "job_cancelled",
        r"Received (?:Signals\.)?(?P<signal>SIG\w+|\d{1,2}) death signal, shutting down workers",
        "launcher got signal {signal}",
    ),
    pattern("job_cancelled", r"SignalException: Process \d+ got signal: (?P<signal>\d+)", "launcher got signal {signal}"),
    SLURM_OUT_OF_MEMORY,
    *TASK_OUT_OF_MEMORY,
    # Of the kernel, as it stands in its own log.
    pattern(
        "oom_kill", r"[Oo]ut of memory: Kill(?:ed)? process (?P<pid>\d{1,9})\b", "{pid}", ("Out of memory: ", "out of memory: ")
    ),
    pattern("oom_kill", r"oom-kill:constraint=.*\bpid=(?P<pid>\d{1,9})\b", "{pid}"),
    pattern(
        "xid",
        r"NVRM: Xid \((?:PCI:)?(?P<device>[\w:.]+)\): (?P<code>\d{1,5})\b(?:, pid='?(?P<pid>\d{1,9}))?",
        "code={code} pci={device} pid={pid}",
    ),
    pattern("xid", FALLEN_OFF, "code=79 pci={device} pid="),
    # pytest, of a whole session; what failed stands in front.
    pattern("tests_passed", r" passed(?:, \d{1,6} [a-z]{4,10})* in \d[\d.]{0,11}s\b", "", (" passed",)),
    # What the next writer of the same terminal says may stand behind a prompt.
    pattern("debugger_prompt", r"^(?P<what>\(Pdb(?:\+\+)?\)|ipdb>)(?: {0,4}$| (?=\[rank\d))", "{what}", ("(Pdb", "ipdb>")),
    pattern("task_blocked", r"INFO: task \S{1,64}:(?P<pid>\d{1,9}) blocked for more than \d", "pid={pid}"),
    # Megatron-LM computes a step again when its result is no number: an error of the device does not come again.
    pattern(
        "result_differs",
        r"[Rr]ank (?P<rank>\d{1,7}), node (?P<host>\S{1,255}), device (?P<device>\d{1,3}), iteration #(?P<step>\d{1,12}): "
        r"(?:First rerun: unexpected result is not reproducible|Possible (?P<how>transient|persistent) error)",
        "device={device} host={host} iteration={step}",
        ("Rank ", "rank "),
    ),
)
"""In the order of preference within one kind."""

# One of these stands in every line that some pattern matches.
WORDS = (
    *(word for each in _OTHERS for word in each.WORDS),
    *(
        "Read error ",
        "Write error ",
        "Connection closed by",
        "Connection reset by",
        "Broken pipe",
        "Call to ",
        "ncclRemoteError",
    ),
    *("remote process exited", "Got completion from peer", "async fatal event", "Got async", "NCCL WARN", "Watchdog caught"),
    *("ast enqueued", "dump signal", "atchdog got stuck", "Heartbeat monitor timed out", "detected no heartbeat"),
    *("atchdog thread", "watchdogHandler", "throwing an instance of", "Cuda failure", "were submitted to be"),
    *("monitoredBarrier", "Barrier timed out. ", "Peer host:"),
    *(
        "self.watchdog_timeout=",
        "Timed out",
        "acquire GIL",
        "finish collective #",
        "finished collective #",
        "lagging ranks",
        "wait timeout after",
    ),
    *(
        "enforce fail",
        "exitcode",
        "srun: error",
        "Node failure on ",
        "Duplicate GPU",
        "Job step aborted",
        "forcing job",
        "Killed",
        "Aborted",
        "Segmentation fault",
        "Bus error",
        "Terminated",
    ),
    *(
        "DataLoader worker",
        "Fatal Python error",
        " memory segment",
        "Forcefully terminat",
        "has been marked dead",
        "Received sigquit",
        "memory broadcast block",
        "SIGQUIT received",
        *("closing signal", "via signal", "forcefully exiting", "Remote daemon: "),
        "CANCELLED AT",
        "STEPD TERMINATED",
    ),
    *("NVRM: Xid", "off the bus", "death signal, shutting", "SignalException", "oom_kill", "oom-kill", "ut of memory: Kill"),
    "due to memory ",
    *(
        "INFO: task ",
        "(Pdb",
        "ipdb>",
        "died unexpectedly",
        "EngineCore encountered",
        " passed",
        "Parent process exited",
        "unexpected result is not",
        "Possible transient error",
        "Possible persistent error",
        "Error: Detected mismatch",
    ),
)


def may_be_event(line: str) -> bool:
    """Whether any of the patterns may match."""
    return mentions(line, WORDS)
