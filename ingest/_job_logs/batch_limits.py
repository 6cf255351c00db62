"""Lines by which PBS, Torque and LSF say in the output of a job that they ended it, for a limit or for a node that was lost.

Upstream: mom_main.c and mom_comm.c of Torque and OpenPBS; the reasons of LSF for the end of a job (`bacct -l`).
"""

from __future__ import annotations

from forensics.ingest._job_logs.patterns import pattern

_PBS = r"=>> PBS: job killed: "
PATTERNS = (
    pattern("job_cancelled", _PBS + r"walltime \d{1,12} exceeded limit", "DUE TO TIME LIMIT"),
    pattern("job_cancelled", _PBS + r"(?:v?mem|pmem|pvmem) \d{1,15}\w{0,2} exceeded limit", "DUE TO MEMORY LIMIT"),
    pattern("node_failed", _PBS + r"node \d{1,7} \((?P<host>[\w.-]{1,253})\) requested job terminate, 'EOF'", "{host}"),
    pattern("job_cancelled", r"^TERM_RUNLIMIT: job killed", "DUE TO TIME LIMIT"),
    pattern("job_cancelled", r"^TERM_MEMLIMIT: job killed", "DUE TO MEMORY LIMIT"),
    pattern("job_cancelled", r"^TERM_PREEMPT: job killed", "DUE TO PREEMPTION"),
    pattern("job_cancelled", r"^TERM_(?:FORCE_)?(?:OWNER|ADMIN): job killed", "DUE TO REQUEST"),
)
WORDS = ("=>> PBS: job killed", "LIMIT: job killed", "TERM_PREEMPT: ", "OWNER: job killed", "ADMIN: job killed")
