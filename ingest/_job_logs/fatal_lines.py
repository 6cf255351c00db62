"""Lines by which C and C++ end a process, as their runtimes print them: signals, aborts of glibc, what nothing caught, devices.

Upstream: failure handlers of absl and glog, malloc.c of glibc, `std::terminate` of libstdc++, device-side assertions of CUDA.
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

_CORRUPTED = (
    r"(?:free|malloc|realloc|calloc|munmap_chunk|malloc_consolidate)\(\): [\w .,/<>!=()-]{4,80}|double free or corruption"
    r"|corrupted (?:size vs\. prev_size|double-linked list)|\*\*\* stack smashing detected \*\*\*"
)
PATTERNS = (
    pattern("fatal_error", r"\*\*\* (?P<what>SIG(?:ABRT|SEGV|BUS|FPE|ILL))\b", "{what}", ("*** SIG",)),
    pattern("fatal_error", rf"^(?P<what>{_CORRUPTED})", "{what}"),
    # The bridge of Habana's PyTorch, whose C++ errors begin with the rank of the job.
    pattern(
        "fatal_error",
        r"\[Rank:(?P<rank>\d{1,7})\] FATAL ERROR :: MODULE:(?P<what>\w{1,40} ?.{0,400})",
        "{what}",
    ),
    # MVAPICH, of the process that got the signal.
    pattern(
        "fatal_error",
        r"mpi_rank_(?P<rank>\d{1,7})\]\[error_sighandler\] Caught error: (?P<what>[\w ()]{1,80})",
        "{what}",
    ),
    pattern("fatal_error", r"^ {0,4}what\(\): {1,4}(?P<what>.{1,400})", "{what}"),
    pattern("process_exit", r"^(?P<how>Illegal instruction|Floating point exception)(?: \(core dumped\))?$", "{how}"),
    pattern(
        "cuda_failure", r"\S{1,200}\.cu:\d{1,6}: .{0,200}?Assertion (?P<what>.{1,200}) failed", "device-side assert {what}"
    ),
    # NCCL, of what it wanted on its own device (src/include/alloc.h).
    pattern(
        "cuda_failure",
        r"Failed to CUDA (?:calloc(?: async)?|malloc) (?P<bytes>\d{1,19}) bytes",
        "out of memory for {bytes} bytes",
    ),
    # CUDA, of broken memory or a broken link of a GPU; the line alone, as where the frames above it are drawn in boxes.
    pattern(
        "device_error",
        r"(?P<what>uncorrectable (?:ECC error(?= encountered)|NVLink error(?= detected))|CUDA_ERROR_ECC_UNCORRECTABLE)",
        "{what}",
        ("uncorrectable ", "CUDA_ERROR_ECC_UNC"),
    ),
    # The runtime of Neuron (Trainium, Inferentia), of a device of its host.
    pattern(
        "device_error",
        r"\[ND (?P<device>\d{1,3})\](?:\[NC \d{1,3}\])? .{0,60}?"
        r"(?P<what>(?:[Uu]ncorrectable|unrecoverable) (?:\w{1,12} ){0,2}error)",
        "an {what} of Neuron device {device}",
        ("[ND ",),
    ),
    # The driver of a TPU, of a chip of its host.
    pattern("device_error", r"!!!! FATAL ERROR !!!! for \[(?P<what>/dev/\w{1,16} [\w:.-]{1,128})\]", "a fatal error of {what}"),
    # The master of a session of TPUs, of a worker whose chips failed.
    pattern("worker_failed", r"detected TPU session error from worker (?P<worker>[\w.-]{1,253})", "{worker}"),
    # NCCL before 2.9, of a call unlike that of a peer, by the number within the communicator.
    pattern(
        "mismatch_near",
        r"Mismatched collective detected, please check your collective calls at and around rank (?P<near>\d{1,7})",
        "{near}",
    ),
    # PyTorch/XLA, of the process of one device; an error of the program is that of all.
    pattern("raised_on_device", r"Exception in device=(?P<what>[A-Z]{2,6}:\d{1,7}): ", "{what}"),
    # Monitored barriers of gloo, of a rank that rank 0 did not let go on: only the log of rank 0 says who is missing.
    pattern("barrier_unanswered", r"successfully reached monitoredBarrier, but received errors", ""),
    pattern("node_failed", r"(?:srun|salloc): error: Node failure on (?P<host>\S+)", "{host}", ("srun: ", "salloc: ")),
    # Open MPI 3 and 4, and PRRTE of Open MPI 5, which calls a job by its launcher.
    pattern(
        "node_failed",
        r"Remote daemon: \[(?:\[\d{1,10},\d{1,5}\],\d{1,7}|[\w.-]{1,255}@\d{1,10},\d{1,7})\] on node (?P<host>\S{1,253})",
        "{host}",
    ),
    pattern("launch_failed", r"srun: error: Task launch for \S{1,64} failed on node (?P<host>[\w.-]{1,253}): ", "{host}"),
    pattern(
        "node_failed",
        r"The node with node id: \w{1,80} and address: (?P<host>[\w.:-]{1,64}) and node name: .{1,255}? has been marked dead",
        "{host}",
    ),
    # Storage Scale (GPFS), of a node that renewed no lease and, as a rule, answered no ping.
    pattern(
        "node_expelled",
        r"\bNode [\d.:a-f]{3,45} \((?P<host>[\w.-]{1,253})\) is being expelled (?:because of|due to) (?:an )?expired lease",
        "{host}",
        ("Node ",),
    ),
    # What launchers that start their part of each node by ssh print of one to which they did not get, and ssh itself.
    *(
        pattern("ssh_failed", regex, "{host}")
        for regex in (
            r"ssh: connect to host (?P<host>(?!\S*git)[\w.:-]{1,253}) port \d{1,5}: ",
            r"ssh: Could not resolve hostname (?P<host>(?!\S*git)[\w.-]{1,253}): ",
            r"pdsh@[\w.-]{1,253}: (?P<host>[\w.-]{1,253}): ssh exited with exit code 255\b",
            r"Error: failed to run torchrun .{1,2000}? on (?P<host>[\w.-]{1,253}), is localhost: \w{4,5}, "
            r"exception: (?!Encountered a bad command)",
        )
    ),
    # MPICH and its kin, of the peer of a connection; messages of its own name no other rank so.
    pattern("rank_lost", r"Communication error with rank (?P<peer>\d{1,7}): Connection (?:reset|closed|refused)", "{peer}"),
    # DLRover, of the nodes whose test before the training failed.
    pattern("node_suspected", r"Fault nodes are: \[(?P<nodes>\d{1,6}(?:, \d{1,6}){0,63})\]", "{nodes}"),
    # The kernel of a client of Lustre: what its processes were writing is lost.
    pattern("client_evicted", r"This client was evicted by (?P<server>[\w.-]{1,128});", "{server}"),
    pattern("cuda_failure", r"HIP error: (?P<what>[\w -]{4,200})", "{what}"),
    # Checks of C++ programs, whose failure aborts the process: absl's log in its own format, and TensorFlow's.
    pattern(
        "fatal_error",
        r"\bF(?:\d{4} [\d:.]{8,26} {1,9}\d{1,9})? \S{1,200}:\d{1,6}\] (?P<what>(?:Check failed|Non-OK-status): .{1,400})",
        "{what}",
        ("F",),
    ),
    # ROCm's runtime, in the process whose device failed; a bar of progress does not end its line.
    pattern("fatal_error", r"(?P<what>Queue 0x\w{1,16} aborting with error : HSA_STATUS_ERROR_\w{1,60})", "{what}"),
    pattern(
        "fatal_error", r"(?:^|(?:/it|it/s)\])(?P<what>(?:Memory access fault|HW Exception) by GPU node-\d{1,5})\b", "{what}"
    ),
)
WORDS = (
    *("*** SIG", "free(): ", "alloc(): ", "munmap_chunk(): ", "malloc_consolidate(): ", "double free or corruption"),
    *(
        "corrupted size vs",
        "corrupted double",
        "*** stack smashing",
        "what():",
        "Illegal instruction",
        "Floating point exception",
    ),
    *(
        ".cu:",
        "HIP error: ",
        *("ssh: connect to host", "ssh: Could not resolve", "ssh exited with exit code 255", "Error: failed to run torchrun"),
        "client was evicted by",
        "is being expelled ",
        "Fault nodes are: ",
        "Communication error with rank",
        "reached monitoredBarrier",
        "uncorrectable ECC",
        "uncorrectable NVLink",
        "ECC_UNCORRECTABLE",
        "[ND ",
        "Failed to CUDA ",
        "] Check failed: ",
        "] Non-OK-status: ",
        "!!!! FATAL ERROR !!!! for ",
        "detected TPU session error",
        "Mismatched collective",
        "Exception in device=",
        "Memory access fault",
        "HW Exception by GPU",
        "aborting with error : HSA",
        "] FATAL ERROR :: ",
        "][error_sighandler]",
    ),
)
