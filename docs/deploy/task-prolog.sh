#!/bin/sh
# TaskProlog of Slurm: puts what would not be seen of a hang into the output of the first task of each node.
# Slurm takes "print TEXT" from standard output. It must end with 0: a prolog that fails ends the task or drains the node.
if [ "${SLURM_LOCALID:-0}" = 0 ] && command -v forensics >/dev/null 2>&1; then
    timeout "${FORENSICS_PREFLIGHT_S:-30}" forensics doctor 2>&1 </dev/null | sed 's/^/print forensics doctor: /'
fi
exit 0
