#!/bin/sh
# Epilog of Slurm: what a job that did not end well left on its node (kernel log, GPUs, logs of the collector inside the ranks).
# Slurm gives no search path. It must end with 0, and soon: an epilog that fails drains the node.
PATH="${FORENSICS_PATH:-/usr/local/bin}:/usr/bin:/bin:/usr/sbin:/sbin"
case "${SLURM_JOB_EXIT_CODE:-unknown}" in 0 | 0:0) exit 0 ;; esac
folder="${FORENSICS_BUNDLES:-/var/log/forensics}"
name="$folder/job-${SLURM_JOB_ID:-unknown}-$(uname -n)"
if command -v forensics >/dev/null 2>&1 && mkdir -p "$folder"; then
    timeout "${FORENSICS_EPILOG_S:-60}" forensics collect --host-only --force -o "$name.tar" >"$name.log" 2>&1 </dev/null
fi
exit 0
